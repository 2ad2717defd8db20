"""How long a sequence a model takes: its positions, and what happens beyond them."""

from __future__ import annotations

from typing import Any

from autotune.core.job import Frozen

#: transformers' common name of the number, and one it has no common name for (MPT).
_COMMON, _OTHER = "max_position_embeddings", "max_seq_len"


class Positions(Frozen):
    """The longest sequence a model is made for.

    Args:
        most: tokens.
        field: the field of the model's config that says so.
        fixed: whether a longer sequence fails, since positions are looked up in a table; else the
            model goes on, at positions it was not trained on (rotary ones).
    """

    most: int
    field: str = _COMMON
    fixed: bool = True

    @property
    def words(self) -> str:
        """The number and where it is from, for a sentence."""
        return f"{self.most} ({self.field})"


def positions_of(config: Any) -> Positions | None:
    """Return the positions a model's text config names, as a table; None when it names none.

    Args:
        config: transformers' config of the language model.
    """
    field = getattr(config, "attribute_map", {}).get(_COMMON, _COMMON)
    for name in (field, _OTHER):
        most = getattr(config, name, None)
        if isinstance(most, int) and most > 0:
            return Positions(most=most, field=name)
    return None

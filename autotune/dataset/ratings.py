"""Whether the weights of KTO's loss suit how many rows are rated desirable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.profile import Notice

#: The weighted desirable rows should be 1 to 4/3 times the weighted others (KTO paper, arXiv
#: 2402.01306, equation 8); TRL 1.16 computes with 1.33 (``KTOTrainer._prepare_dataset``).
_MOST_RATIO = 1.33


def uneven_ratings(desirable: int, rows: int, options: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Return a remark when ratings are uneven and the weights do not make up for it.

    Args:
        desirable: rows rated true.
        rows: all rated rows; ratings that are all the same have a remark of their own.
        options: TRL options the user set.
    """
    others = rows - desirable
    if desirable in (0, others, rows):
        return ()
    given = [float(options.get(name, 1.0)) for name in ("desirable_weight", "undesirable_weight")]
    ratio = desirable * given[0] / (others * given[1]) if all(given) else 0.0
    if 1.0 <= round(ratio, 2) <= _MOST_RATIO:
        return ()
    least = others * given[1] / desirable
    return (
        Notice(
            code="uneven-ratings",
            count=desirable,
            message=f"{desirable} of {rows} rows are rated desirable. For the weights of KTO's "
            f"loss to suit that, set desirable_weight between {least:.2f} and "
            f"{_MOST_RATIO * least:.2f} (it is {given[0]:g}, undesirable_weight {given[1]:g}).",
        ),
    )

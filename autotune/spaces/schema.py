"""The shape of a search-space file: which choices of which knobs to try.

Says nothing of validity; a file that lists an impossible combination is fine, the rules drop it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.knob import OFFLINE

Choices = Literal["auto"] | Annotated[list[Value], Field(min_length=1)]


class Dimension(BaseModel):
    """One knob of a space.

    Args:
        choices: values to try; ``auto`` takes them from the job and its data.
        when: try it only under these choices of other knobs; one that is not searched has the
            choice of the user's own config.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    choices: Choices
    when: dict[str, list[Value]] = Field(default_factory=dict)


class Space(BaseModel):
    """A search space as written in a file.

    Args:
        schema_version: version of this format.
        name: what ``--space`` calls it.
        trainer: the trainer it is for; ``any`` is every trainer of a fixed data set, and each
            leaves out the knobs it does not have.
        describe: one line on what it is good for.
        knobs: choices by knob; a bare list is a dimension without conditions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    name: str
    trainer: Literal["sft", "dpo", "reward", "kto", "any"]
    describe: str
    knobs: dict[str, Choices | Dimension] = Field(min_length=1)

    def suits(self, trainer: Trainer) -> bool:
        """Whether it is for a trainer."""
        return self.trainer == trainer or (self.trainer == "any" and trainer in OFFLINE)

    def dimensions(self) -> dict[str, Dimension]:
        """Return every knob as a dimension."""
        return {
            name: d if isinstance(d, Dimension) else Dimension(choices=d)
            for name, d in self.knobs.items()
        }


def as_written(choice: Value) -> str:
    """Return a choice as a space file has it: ``null``, ``true``, ``8``, ``bfd``."""
    if choice is None:
        return "null"
    return str(choice).lower() if isinstance(choice, bool) else str(choice)

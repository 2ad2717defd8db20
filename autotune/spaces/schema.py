"""The shape of a search-space file: which choices of which knobs to try.

Says nothing of validity; a file that lists an impossible combination is fine, the rules drop it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from autotune.core.candidate import Value

Choices = Literal["auto"] | list[Value]


class Dimension(BaseModel):
    """One knob of a space.

    Args:
        choices: values to try; ``auto`` takes them from the job and its data.
        when: try it only under these choices of other knobs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    choices: Choices
    when: dict[str, list[Value]] = Field(default_factory=dict)


class Space(BaseModel):
    """A search space as written in a file.

    Args:
        schema_version: version of this format.
        name: what ``--space`` calls it.
        trainer: the trainer it is for.
        describe: one line on what it is good for.
        knobs: choices by knob; a bare list is a dimension without conditions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    name: str
    trainer: Literal["sft", "dpo", "reward", "kto", "grpo", "rloo", "online-dpo"]
    describe: str
    knobs: dict[str, Choices | Dimension]

    def dimensions(self) -> dict[str, Dimension]:
        """Return every knob as a dimension."""
        return {
            name: d if isinstance(d, Dimension) else Dimension(choices=d)
            for name, d in self.knobs.items()
        }

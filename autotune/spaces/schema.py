"""The shape of a search-space file: which choices of which knobs to try.

Says nothing of validity; a file that lists an impossible combination is fine, the rules drop it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from autotune.core.candidate import Value
from autotune.knobs.catalog import KNOBS

Choices = Literal["auto"] | Annotated[list[Value], Field(min_length=1)]


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
    knobs: dict[str, Choices | Dimension] = Field(min_length=1)

    def dimensions(self) -> dict[str, Dimension]:
        """Return every knob as a dimension."""
        return {
            name: d if isinstance(d, Dimension) else Dimension(choices=d)
            for name, d in self.knobs.items()
        }


def json_schema() -> dict[str, Any]:
    """Return the JSON schema editors check space files against; knob names are listed."""
    schema = Space.model_json_schema()
    schema["properties"]["knobs"]["propertyNames"] = {"enum": [k.name for k in KNOBS]}
    return schema


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1))

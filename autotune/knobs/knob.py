"""The shape of one row of the knob table; holds no row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts

Place = Literal["training", "model", "peft", "script", "environment", "launcher"]
Options = dict[str, Any]
Write = Callable[[Value, Facts], Options]
Read = Callable[[Facts], Value]

#: Trainers that learn from a fixed data set. The online ones (GRPO, RLOO, Online DPO) get rows of
#: their own once they can be probed.
OFFLINE = (Trainer.SFT, Trainer.DPO, Trainer.REWARD, Trainer.KTO)


@dataclass(frozen=True)
class Knob:
    """One option, or one group of options that only make sense together.

    Args:
        name: canonical TRL name.
        place: what takes it: training arguments, model arguments, PEFT, script, environment,
            launcher.
        choices: every choice a space may list; None means any whole number from 1 to `largest`.
        trainers: trainers that have it.
        help: one line for the README table and ``autotune spaces show``.
        write: turns a choice into TRL options; of an environment knob, into variables.
        read: reads the choice out of the user's options.
        needs: by choice, the capabilities (``autotune.knobs.needs``) it asks of the machine.
        fixed_by: TRL options beside its own name that fix it when the user sets one of them.
        nullable: whether a knob of any whole number may be null too.
        largest: the largest such number.
    """

    name: str
    place: Place
    choices: tuple[Value, ...] | None
    trainers: tuple[Trainer, ...]
    help: str
    write: Write
    read: Read
    needs: Mapping[Value, tuple[str, ...]] = field(default_factory=dict)
    fixed_by: tuple[str, ...] = ()
    nullable: bool = False
    largest: int = 2**31 - 1  # torch.int32, in which lengths and positions are counted

    def accepts(self, choice: Value) -> bool:
        """Whether a space may list this choice."""
        if self.choices is not None:
            return any(choice == c and type(choice) is type(c) for c in self.choices)
        if choice is None:
            return self.nullable
        return type(choice) is int and 1 <= choice <= self.largest


def plain(name: str) -> Write:
    """Return a writer of one option."""
    return lambda choice, _: {name: choice}


def option(name: str, default: Value = None) -> Read:
    """Return a reader of one option.

    Args:
        name: TRL option.
        default: its value where neither the user nor TRL says anything.
    """

    def read(facts: Facts) -> Value:
        value = facts.option(name)
        # transformers turns some options into enumerations
        value = getattr(value, "value", value)
        return default if value is None else value

    return read

"""The knob table: what each knob is, where TRL takes it, what its choices mean.

One row per knob. A new knob is one row here, its rules in rules.py and a test. Says nothing of
what to try (search_spaces/) or of what is valid together (rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autotune.core.candidate import Candidate, Value
from autotune.core.errors import BadInput, nearest
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts

Place = Literal["training", "model", "peft", "script", "environment", "launcher"]
Options = dict[str, Any]


@dataclass(frozen=True)
class Knob:
    """One option, or one group of options that only make sense together.

    Args:
        name: canonical TRL name.
        place: what takes it: training arguments, model arguments, PEFT, script, environment,
            launcher.
        choices: every choice a space may list; None means any positive integer (or null).
        trainers: trainers that have it.
        needs: what the machine must have, in words; empty when nothing.
        help: one line for the README table and ``autotune spaces show``.
        write: turns a choice into TRL options.
        read: reads the choice out of the user's options.
    """

    name: str
    place: Place
    choices: tuple[Value, ...] | None
    trainers: tuple[Trainer, ...]
    needs: str
    help: str
    write: Callable[[Value, Facts], Options]
    read: Callable[[Facts], Value]

    def accepts(self, choice: Value) -> bool:
        """Whether a space may list this choice."""
        if self.choices is not None:
            return any(choice == c and type(choice) is type(c) for c in self.choices)
        return choice is None or (type(choice) is int and choice > 0)


def _plain(name: str) -> Callable[[Value, Facts], Options]:
    return lambda choice, _: {name: choice}


def _option(name: str) -> Callable[[Facts], Value]:
    return lambda facts: facts.option(name)


def _write_packing(choice: Value, _: Facts) -> Options:
    if choice == "none":
        return {"packing": False}
    return {"packing": True, "packing_strategy": choice}


def _read_packing(facts: Facts) -> Value:
    return str(facts.option("packing_strategy")) if facts.option("packing") else "none"


def _write_checkpointing(choice: Value, facts: Facts) -> Options:
    mine = dict(facts.option("gradient_checkpointing_kwargs") or {})
    selective = mine.pop("selective", None)
    if choice == "none":
        # TRL refuses selective without checkpointing, so the user's own must go with it.
        kwargs = {"gradient_checkpointing_kwargs": mine or None} if selective else {}
        return {"gradient_checkpointing": False, **kwargs}
    if choice == "selective":
        mine = {**mine, "selective": True}
    options: Options = {"gradient_checkpointing": True}
    if mine or facts.job.options.get("gradient_checkpointing_kwargs"):
        options["gradient_checkpointing_kwargs"] = mine or None
    return options


def _read_checkpointing(facts: Facts) -> Value:
    if not facts.option("gradient_checkpointing"):
        return "none"
    kwargs = facts.option("gradient_checkpointing_kwargs") or {}
    return "selective" if kwargs.get("selective") else "full"


def _read_multiple(facts: Facts) -> Value:
    value = facts.option("pad_to_multiple_of")
    return int(value) if value is not None else None


_ALL = (Trainer.SFT, Trainer.DPO, Trainer.REWARD, Trainer.KTO)

KNOBS: tuple[Knob, ...] = (
    Knob(
        name="per_device_train_batch_size",
        place="training",
        choices=None,
        trainers=_ALL,
        needs="",
        help="rows per micro-step; gradient_accumulation_steps follows so that the effective "
        "batch stays",
        write=_plain("per_device_train_batch_size"),
        read=_option("per_device_train_batch_size"),
    ),
    Knob(
        name="max_length",
        place="training",
        choices=None,
        trainers=_ALL,
        needs="",
        help="longest sequence in tokens; longer rows are cut, and with packing it is the length "
        "of a packed row",
        write=_plain("max_length"),
        read=_option("max_length"),
    ),
    Knob(
        name="packing",
        place="training",
        choices=("none", "bfd", "bfd_split", "wrapped"),
        trainers=(Trainer.SFT,),
        needs="",
        help="put several rows into one: bfd drops overflow, bfd_split keeps it, wrapped mixes "
        "documents",
        write=_write_packing,
        read=_read_packing,
    ),
    Knob(
        name="padding_free",
        place="training",
        choices=(False, True),
        trainers=(Trainer.SFT,),
        needs="",
        help="flatten a batch into one row without padding; rows must already be cut",
        write=_plain("padding_free"),
        read=_option("padding_free"),
    ),
    Knob(
        name="pad_to_multiple_of",
        place="training",
        choices=(None, 8, 16, 32, 64, 128),
        trainers=(Trainer.SFT, Trainer.REWARD),
        needs="",
        help="round the padded width up, for kernels that like it",
        write=_plain("pad_to_multiple_of"),
        read=_read_multiple,
    ),
    Knob(
        name="gradient_checkpointing",
        place="training",
        choices=("none", "full", "selective"),
        trainers=_ALL,
        needs="",
        help="recompute activations in the backward pass; selective keeps the attention output",
        write=_write_checkpointing,
        read=_read_checkpointing,
    ),
    Knob(
        name="activation_offloading",
        place="training",
        choices=(False, True),
        trainers=_ALL,
        needs="an accelerator",
        help="keep activations in host memory between forward and backward",
        write=_plain("activation_offloading"),
        read=_option("activation_offloading"),
    ),
)

BY_NAME: Mapping[str, Knob] = {k.name: k for k in KNOBS}


def knob(name: str) -> Knob:
    """Return a knob by its name.

    Raises:
        BadInput: there is no such knob; names the nearest.
    """
    if name not in BY_NAME:
        raise BadInput(
            f"unknown knob {name!r}{nearest(name, sorted(BY_NAME))}.",
            f"Knobs are {', '.join(BY_NAME)}.",
        )
    return BY_NAME[name]


def knobs_of(trainer: Trainer) -> tuple[Knob, ...]:
    """Return the knobs a trainer has, in table order."""
    return tuple(k for k in KNOBS if trainer in k.trainers)


def user_candidate(facts: Facts) -> Candidate:
    """Return the candidate that stands for the user's own config."""
    return Candidate(knobs={k.name: k.read(facts) for k in knobs_of(facts.job.trainer)})

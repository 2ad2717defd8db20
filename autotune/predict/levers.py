"""Changes to one config that could make it fit or make it faster: its neighbours in every lever."""

from __future__ import annotations

from autotune.core.candidate import Candidate, Value
from autotune.knobs.catalog import knobs_of
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical

#: Choices each lever is turned to, one at a time.
_TURNS: tuple[tuple[str, tuple[Value, ...]], ...] = (
    ("gradient_checkpointing", ("none", "selective", "full")),
    ("activation_offloading", (True, False)),
    ("padding_free", (True, False)),
    ("packing", ("bfd", "none")),
)


def levers(own: Candidate, facts: Facts) -> list[Candidate]:
    """Return canonical candidates that differ from a config in one lever.

    The micro-batch is halved and doubled with the effective batch held, the length is halved, and
    every other lever is turned to each of its sides. Which are valid is decided elsewhere.

    Args:
        own: the config.
        facts: job, rows and device.
    """
    batch, length = own.get("per_device_train_batch_size"), own.get("max_length")
    turns: list[dict[str, Value]] = []
    if isinstance(batch, int):
        turns += [{"per_device_train_batch_size": n} for n in (batch // 2, batch * 2) if n]
    if isinstance(length, int):
        turns.append({"max_length": max(1, length // 2)})
    known = {knob.name for knob in knobs_of(facts.job.trainer)}
    turns += [{name: choice} for name, choices in _TURNS for choice in choices if name in known]
    return [canonical(own.with_knobs(**turn), facts) for turn in turns]

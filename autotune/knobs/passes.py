"""The micro-batches of one pass over the data set under a candidate: from its knobs to shapes."""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.shapes import Shapes, shapes_of_pass
from autotune.knobs.facts import Facts
from autotune.knobs.translate import Settings


def pass_shapes(candidate: Candidate, settings: Settings, facts: Facts) -> Shapes:
    """Return the micro-batches one pass over the data set has under a candidate."""
    length = candidate.get("max_length")
    multiple = candidate.get("pad_to_multiple_of")
    order = candidate.get("train_sampling_strategy", facts.option("train_sampling_strategy"))
    return shapes_of_pass(
        facts.lengths,
        batch=int(candidate.get("per_device_train_batch_size") or 1),
        max_length=None if length is None else int(length),
        packing=str(candidate.get("packing", "none")),
        padding_free=bool(candidate.get("padding_free", False)),
        pad_to_multiple_of=None if multiple is None else int(multiple),
        group_by_length=order == "group_by_length",
        accumulation=settings.accumulation,
        shards=facts.shards,
        seed=facts.job.seed,
    )


def passes_of_run(settings: Settings, facts: Facts, updates: int) -> float:
    """Return how often the user's run goes over the data, by which what is run once is divided.

    Args:
        settings: what the candidate means to TRL.
        facts: job, rows and machine.
        updates: optimizer updates in one pass.
    """
    steps = int(settings.options.get("max_steps") or facts.option("max_steps") or -1)
    if steps > 0:
        return steps / max(1, updates)
    return float(facts.option("num_train_epochs") or 1.0)

"""Puts everything a run found out into the one result document, and says why the winner won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotune.core.about import __version__
from autotune.core.job import Budget, Job
from autotune.core.measurement import Measurement
from autotune.core.memory import Peaks
from autotune.core.prediction import Prediction
from autotune.core.result import Ratio, Result, Skipped, TrialRecord
from autotune.core.traced_step import TracedPeak
from autotune.core.units import show_alike, show_bytes
from autotune.knobs.facts import Facts
from autotune.knobs.isolation import overridden
from autotune.probe.prepared import Prepared
from autotune.study.choose import choice, reference, verification_of
from autotune.study.findings import findings
from autotune.study.guard import words
from autotune.study.refusals import is_refusal


@dataclass(frozen=True)
class Run:
    """What a run knows besides its trials.

    Args:
        job: what was asked, options as the user wrote them and resolved ones beside them.
        facts: the job with TRL's types, rows and machine.
        prepared: the resolved job.
        budget: memory the job may use.
        space: name, hash and sizes of the space.
        skipped: what was not tried.
        out_dir: the run's folder.
        notices: remarks made before the search.
    """

    job: Job
    facts: Facts
    prepared: Prepared
    budget: Budget
    space: dict[str, Any]
    skipped: tuple[Skipped, ...]
    out_dir: str
    notices: tuple[str, ...]


def assemble(
    run: Run,
    trials: tuple[TrialRecord, ...],
    *,
    speedup: Ratio | None,
    seconds: float,
    interrupted: bool,
    predictions: Sequence[Prediction] = (),
    gated: Mapping[str, Prediction] = MappingProxyType({}),
    refused: Sequence[Skipped] = (),
    traced: Mapping[str, TracedPeak] = MappingProxyType({}),
    unchecked: str = "",
) -> Result:
    """Return the result of a run, finished or not.

    Args:
        run: what is known besides the trials.
        trials: every probe so far, in order.
        speedup: best against reference, once both were measured in turns.
        seconds: what the search cost so far.
        interrupted: whether it was stopped early.
        predictions: what is expected of candidates, fastest first.
        gated: what was not probed because of its prediction, by key.
        refused: what only running showed to be invalid; such candidates are no trials.
        traced: what the compared peaks are made of, by key, where no prediction says it.
        unchecked: why the winner was not verified, where time was the reason.
    """
    against = reference(trials)
    best, because = choice(trials, speedup, run.facts.job.objective)
    return Result(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        autotune_version=__version__,
        job=run.job,
        budget=run.budget,
        device=run.prepared.device,
        environment=run.prepared.environment,
        profile=run.prepared.profile,
        eval_profile=run.prepared.eval_profile,
        space=run.space,
        trials=_with_eval_batch([t for t in trials if not is_refusal(t)], best),
        reference=against.candidate.key if against else None,
        best=best.candidate.key if best else None,
        chosen_because=because,
        verification=_verification(trials, best, unchecked),
        equivalence=words(best, against, trials, run.facts),
        speedup=speedup,
        skipped=(*refused, *_not_probed(gated, run.budget), *run.skipped),
        overrides=_overrides(run.job.options),
        notices=(*findings(trials, best, run.facts), *_refused(refused), *run.notices),
        search_seconds=seconds,
        pays_back_seconds=_pays_back(seconds, speedup),
        out_dir=run.out_dir,
        interrupted=interrupted,
        predictions=tuple(predictions),
        gated=tuple(gated),
        traced=dict(traced),
        lacks_weights=not run.prepared.model.has_weights and Path(run.job.model).is_dir(),
    )


def _refused(refused: Sequence[Skipped]) -> list[str]:
    """Say what only running showed to be invalid here, a sentence for every cause."""
    return [
        f"{line.what[0].upper()}{line.what[1:]} ({line.count} candidates): {line.reason}."
        for line in refused
    ]


def _not_probed(gated: Mapping[str, Prediction], budget: Budget) -> list[Skipped]:
    """Say in one line what was not probed because it is predicted not to fit."""
    if not gated:
        return []
    least = min(p.low_bytes for p in gated.values())
    return [
        Skipped(
            what="predicted not to fit",
            reason=f"predicted to need {show_bytes(least)} or more, beyond the "
            f"{show_bytes(budget.usable_bytes)} that may be used, whatever the error",
            count=len(gated),
        )
    ]


def _with_eval_batch(
    trials: Sequence[TrialRecord], best: TrialRecord | None
) -> tuple[TrialRecord, ...]:
    """Give the chosen candidate's trials the evaluation batch it was verified with."""
    found = verification_of(trials, best)
    lowered = found.options.get("per_device_eval_batch_size") if found is not None else None
    if found is None or lowered is None:
        return tuple(trials)
    more = {"per_device_eval_batch_size": lowered}
    return tuple(
        t.model_copy(update={"options": {**t.options, **more}})
        if t.candidate.key == found.candidate.key
        else t
        for t in trials
    )


def _verification(trials: tuple[TrialRecord, ...], best: TrialRecord | None, unchecked: str) -> str:
    """Return what the longer look at the chosen candidate showed; empty when there was none."""
    found = verification_of(trials, best)
    if found is None or found.report.measurement is None:
        tried = [t for t in trials if best is not None and t.candidate.key == best.candidate.key]
        last = next((t for t in reversed(tried) if t.role == "verification"), None)
        why = unchecked if last is None else last.report.ending.reason
        return f"NOT verified: {why}" if why else ""
    measured = found.report.measurement
    peaks = measured.update_peaks_bytes
    highest = max(*peaks, measured.peaks.deciding_bytes or 0)
    parts = [
        f"verified in a fresh process with {measured.weights} weights: {len(peaks)} updates over "
        f"the worst batches among typical and short ones, highest peak {show_bytes(highest)}"
        f"{measured.peak_where}, not growing"
    ]
    if measured.saved:
        parts.append("one checkpoint saved and trained on after it")
    if measured.evaluated:
        batch = found.options.get("per_device_eval_batch_size")
        lowered = f" at per_device_eval_batch_size {batch}" if batch is not None else ""
        parts.append(f"the longest evaluation rows evaluated{lowered}")
    return ", ".join(parts)


def _overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what probes replace of the user's options, one inside another by its path."""
    spread = (options.get("model_init_kwargs") or {}).get("device_map")
    own = overridden(options)
    return own if spread is None else {**own, "model_init_kwargs.device_map": spread}


def _pays_back(seconds: float, speedup: Ratio | None) -> float | None:
    """Return the reference training time after which the search has paid for itself."""
    if speedup is None or speedup.low <= 1.0:
        return None
    return seconds / (1.0 - 1.0 / speedup.value)


def most_where(measured: Measurement) -> str:
    """Return where the highest peak was, to follow `peaks_line`; empty when not known."""
    return f", most{measured.peak_where}" if measured.peak_where else ""


def peaks_line(peaks: Peaks) -> str:
    """Return the known peaks in words, each with its name, all in one unit."""
    known = {
        "allocated": peaks.allocated_bytes,
        "reserved": peaks.reserved_bytes,
        "context": peaks.context_bytes,
        "paged": peaks.paged_bytes,
        "process": peaks.process_bytes,
        "device used": peaks.device_used_bytes,
    }
    values = {name: value for name, value in known.items() if value is not None}
    shown = show_alike(values.values())
    return ", ".join(f"{name} {text}" for name, text in zip(values, shown, strict=True))

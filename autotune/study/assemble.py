"""Puts everything a run found out into the one result document, and says why the winner won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from autotune.core.about import __version__
from autotune.core.errors import EnvironmentUnable, NothingFits
from autotune.core.job import Budget, Job
from autotune.core.measurement import ProbeReport
from autotune.core.memory import Peaks
from autotune.core.outcome import Outcome
from autotune.core.prediction import Prediction
from autotune.core.result import Ratio, Result, Skipped, TrialRecord
from autotune.core.traced_step import TracedPeak
from autotune.core.units import show_alike, show_bytes, show_duration, show_ratio
from autotune.knobs.facts import Facts
from autotune.knobs.isolation import overridden
from autotune.probe.prepared import Prepared
from autotune.report.side_by_side import what_dominates
from autotune.study.choose import InVain, choice, in_vain, reference, verification_of
from autotune.study.guard import words
from autotune.study.strategy import cheapest

#: Values of transformers' ``device_map`` that divide a model among devices.
_SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")


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
    traced: Mapping[str, TracedPeak] = MappingProxyType({}),
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
        traced: what the compared peaks are made of, by key, where no prediction says it.
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
        trials=_with_eval_batch(trials, best),
        reference=against.candidate.key if against else None,
        best=best.candidate.key if best else None,
        chosen_because=because,
        verification=_verification(trials, best),
        equivalence=words(best, against, trials, run.facts),
        speedup=speedup,
        skipped=(*_not_probed(gated, run.budget), *run.skipped),
        overrides=_overrides(run.job.options),
        notices=(*_findings(trials, run), *_of_best(best), *run.notices),
        search_seconds=seconds,
        pays_back_seconds=_pays_back(seconds, speedup),
        out_dir=run.out_dir,
        interrupted=interrupted,
        predictions=tuple(predictions),
        gated=tuple(gated),
        traced=dict(traced),
    )


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
    trials: tuple[TrialRecord, ...], best: TrialRecord | None
) -> tuple[TrialRecord, ...]:
    """Give the chosen candidate's trials the evaluation batch it was verified with."""
    found = verification_of(trials, best)
    lowered = found.options.get("per_device_eval_batch_size") if found is not None else None
    if found is None or lowered is None:
        return trials
    more = {"per_device_eval_batch_size": lowered}
    return tuple(
        t.model_copy(update={"options": {**t.options, **more}})
        if t.candidate.key == found.candidate.key
        else t
        for t in trials
    )


def _verification(trials: tuple[TrialRecord, ...], best: TrialRecord | None) -> str:
    """Return what the longer look at the chosen candidate showed; empty when there was none."""
    found = verification_of(trials, best)
    if found is None or found.report.measurement is None:
        tried = [t for t in trials if best is not None and t.candidate.key == best.candidate.key]
        last = next((t for t in reversed(tried) if t.role == "verification"), None)
        return "" if last is None else f"NOT verified: {last.report.ending.reason}"
    measured = found.report.measurement
    peaks = measured.update_peaks_bytes
    parts = [
        f"verified in a fresh process with {measured.weights} weights: {len(peaks)} updates over "
        f"the worst batches, highest peak {show_bytes(max(peaks))}, not growing"
    ]
    if measured.saved:
        parts.append("one checkpoint saved and trained on after it")
    if measured.evaluated:
        batch = found.options.get("per_device_eval_batch_size")
        lowered = f" at per_device_eval_batch_size {batch}" if batch is not None else ""
        parts.append(f"the longest evaluation rows evaluated{lowered}")
    return ", ".join(parts)


def _findings(trials: tuple[TrialRecord, ...], run: Run) -> list[str]:
    """Return what a reader must know first."""
    found: list[str] = []
    baseline = next((t for t in reversed(trials) if t.role == "baseline"), None)
    if baseline is not None and baseline.report.ending.outcome is not Outcome.FITS:
        ending = baseline.report.ending
        verb = "does not fit" if ending.outcome.is_memory else "does not train"
        found.append(f"Your own config {verb}: {ending.reason} (phase {ending.phase.value}).")
    facts = run.facts
    length = facts.option("max_length")
    if facts.option("padding_free") and not facts.option("packing") and length is not None:
        found.append(
            f"TRL refuses padding_free without packing while max_length ({length}) is set: your "
            "config was measured on rows cut to it beforehand, which is how it can be trained."
        )
    vain = {found.knob: found for found in reversed(in_vain(trials))}
    found += [_saved_nothing(one) for one in vain.values()]
    spread = (facts.option("model_init_kwargs") or {}).get("device_map")
    if isinstance(spread, str) and spread in _SPREADING:
        found.append(
            f"device_map {spread} spreads the model over every device of your own run: it was "
            "measured on one device alone, and TRL trains on one per process."
        )
    if run.prepared.device.kind == "cpu":
        found.append("Measured on a CPU: not a recommendation for a GPU.")
    if run.facts.job.weights == "random":
        found.append(
            "The search used random weights built from the model's config: same memory and speed."
        )
    return found


def _overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what probes replace of the user's options, one inside another by its path."""
    spread = (options.get("model_init_kwargs") or {}).get("device_map")
    own = overridden(options)
    return own if spread is None else {**own, "model_init_kwargs.device_map": spread}


def _of_best(trial: TrialRecord | None) -> list[str]:
    """Say what of the chosen candidate does not show in its pass: retries, and what runs once."""
    found: list[str] = []
    measured = trial.report.measurement if trial is not None else None
    if trial is None or measured is None:
        return found
    if retries := measured.peaks.allocation_retries:
        found.append(
            "The chosen config fills its memory: torch's allocator had to give cached memory back "
            f"and try again, {retries} times in probe {trial.number}. The time is in its numbers; "
            "more --headroom avoids it."
        )
    once = trial.estimate.precompute_seconds if trial.estimate is not None else 0.0
    if once:
        found.append(
            f"precompute_ref_log_probs runs over the rows once before training, about "
            f"{show_duration(once)} on top of the passes; candidates were compared with its share."
        )
    return found


def _saved_nothing(one: InVain) -> str:
    """Say that a saver is not worth its time here."""
    times = [t.estimate.score_seconds for t in (one.trial, one.without) if t.estimate]
    return (
        f"{one.knob} saved no memory and made a pass {times[0] / times[1]:.2f} times as long "
        f"(probe {one.trial.number} against {one.without.number}): not recommended here."
    )


def _pays_back(seconds: float, speedup: Ratio | None) -> float | None:
    """Return the reference training time after which the search has paid for itself."""
    if speedup is None or speedup.low <= 1.0:
        return None
    return seconds / (1.0 - 1.0 / speedup.value)


def require_fit(result: Result) -> None:
    """Check that something fits.

    Raises:
        NothingFits: nothing does; names the nearest miss, its phase and what could be tried.
        EnvironmentUnable: nothing could be measured for another reason than memory.
    """
    if result.best is not None:
        return
    memory = [t for t in result.trials if t.report.ending.outcome.is_memory]
    limit = result.budget.usable_bytes
    if not memory:
        raise _not_measured(result)
    # Caps hide how much more was needed, so most bounds are equal: the cheapest then says most.
    least = min(t.report.needed_bytes or limit for t in memory)
    nearest = {t.candidate.key: t for t in memory if (t.report.needed_bytes or limit) == least}
    cheap = cheapest([t.candidate for t in nearest.values()])
    assert cheap is not None
    ending = nearest[cheap.key].report.ending
    batch, length = cheap.get("per_device_train_batch_size"), cheap.get("max_length")
    most = what_dominates(result)
    halved = (
        ", or --set dtype=bfloat16 (weights, gradients and optimizer states halve)"
        if cheap.get("dtype", "float32") == "float32"
        and cheap.get("quantization", "none") == "none"
        else ""
    )
    raise NothingFits(
        f"nothing fits {show_bytes(limit)} ({show_bytes(result.budget.total_bytes)} less "
        f"{show_ratio(result.budget.headroom_ratio)} headroom): even batch {batch} at {length} "
        f"tokens needs more than {show_bytes(max(least, limit))}, and ended in phase "
        f"{ending.phase.value}.",
        f"{most} Give it more --memory, a smaller max_length (--set max_length=...), a smaller "
        f"model{halved}.".strip(),
    )


def _more(report: ProbeReport) -> str | None:
    """Return the last words of a probe and where all of them are; None when there are none."""
    lines = report.ending.detail.strip().splitlines()[-2:]
    # a traceback ends in the reason, which was said
    tail = "" if report.ending.reason.rstrip(".") in " ".join(lines) else " / ".join(lines)
    log = "" if report.log_file is None else f" The whole log is {report.log_file}."
    return f"{tail}{log}".strip() or None


def _not_measured(result: Result) -> EnvironmentUnable:
    """Say why nothing could be measured when memory was not the reason."""
    if not result.trials:
        return EnvironmentUnable("nothing was probed.", "Raise --trials or --timeout.")
    report = result.trials[-1].report
    return EnvironmentUnable(
        f"no candidate could be measured: {report.ending.reason.rstrip('.')}.",
        _more(report),
    )


def peaks_line(peaks: Peaks) -> str:
    """Return the known peaks in words, each with its name, all in one unit."""
    known = {
        "allocated": peaks.allocated_bytes,
        "reserved": peaks.reserved_bytes,
        "process": peaks.process_bytes,
        "device used": peaks.device_used_bytes,
    }
    values = {name: value for name, value in known.items() if value is not None}
    shown = show_alike(values.values())
    return ", ".join(f"{name} {text}" for name, text in zip(values, shown, strict=True))

"""What a reader of a result must know first, in sentences; pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.job import Trainer
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.core.units import show_duration
from autotune.knobs.facts import Facts
from autotune.study.choose import InVain, in_vain
from autotune.study.idle import had_no_effect
from autotune.study.unmoved import unmoved

#: Values of transformers' ``device_map`` that divide a model among devices.
_SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")


#: Share of an epoch above which what is paid once per shape is said.
_WORTH_SAYING = 0.01


def findings(trials: Sequence[TrialRecord], best: TrialRecord | None, facts: Facts) -> list[str]:
    """Return what a run found out besides its winner, most important first.

    Args:
        trials: every record there is.
        best: the chosen candidate's trial; None when nothing fits.
        facts: job, rows and machine.
    """
    found: list[str] = []
    baseline = next((t for t in reversed(trials) if t.role == "baseline"), None)
    if baseline is not None and baseline.report.ending.outcome is not Outcome.FITS:
        ending = baseline.report.ending
        verb = "does not fit" if ending.outcome.is_memory else "does not train"
        if ending.outcome is Outcome.TIMEOUT:
            verb = "was not measured"
        found.append(f"Your own config {verb}: {ending.reason} (phase {ending.phase.value}).")
    length = facts.option("max_length")
    flattens = facts.job.trainer is Trainer.SFT and facts.option("padding_free")
    if flattens and not facts.option("packing") and length is not None:
        found.append(
            f"TRL refuses padding_free without packing while max_length ({length}) is set: your "
            "config was measured on rows cut to it beforehand, which is how it can be trained."
        )
    vain = {found.knob: found for found in reversed(in_vain(trials))}
    found += [_saved_nothing(one) for one in vain.values()]
    found += unmoved(trials).values()
    found += had_no_effect(trials)
    spread = (facts.option("model_init_kwargs") or {}).get("device_map")
    if isinstance(spread, str) and spread in _SPREADING:
        found.append(
            f"device_map {spread} spreads the model over every device of your own run: it was "
            "measured on one device alone, and TRL trains on one per process."
        )
    if facts.device.kind == "cpu":
        found.append("Measured on a CPU: not a recommendation for a GPU.")
    if facts.job.weights == "random":
        found.append(
            "The search used random weights built from the model's config: same memory and speed."
        )
    return [*found, *_of_best(best)]


def _of_best(trial: TrialRecord | None) -> list[str]:
    """Say what of the chosen candidate does not show in its pass: retries, what runs once."""
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
    if measured.dropped_first_uses:
        found.append(_first_uses(trial, measured))
    if skipped := measured.skipped_updates:
        found.append(
            f"fp16: the gradient scaler skipped {skipped} updates of probe {trial.number} while "
            "its scale settled, as it does at the start of a real run; they are in no time."
        )
    once = trial.estimate.precompute_seconds if trial.estimate is not None else 0.0
    if once:
        found.append(
            f"precompute_ref_log_probs runs over the rows once before training, about "
            f"{show_duration(once)} on top of the passes; candidates were compared with its share."
        )
    return found


def _first_uses(trial: TrialRecord, measured: Measurement) -> str:
    """Say what the times of a probe leave out, and what a whole run pays where it matters."""
    said = (
        f"The times of the chosen config leave out {measured.dropped_first_uses} first uses of a "
        "shape, which may be slower (attention plans, compilation)"
    )
    estimate = trial.estimate
    if estimate is not None and estimate.first_use_seconds > _WORTH_SAYING * estimate.pass_seconds:
        said += (
            f": a whole run meets about {estimate.shapes:,} shapes, in all about "
            f"{show_duration(estimate.first_use_seconds)} once, on top of its epochs; "
            "pad_to_multiple_of or packing makes them fewer"
        )
    return f"{said}."


def _saved_nothing(one: InVain) -> str:
    """Say that a saver is not worth its time here."""
    times = [t.estimate.score_seconds for t in (one.trial, one.without) if t.estimate]
    return (
        f"{one.knob} saved no memory and made a pass {times[0] / times[1]:.2f} times as long "
        f"(probe {one.trial.number} against {one.without.number}): not recommended here."
    )

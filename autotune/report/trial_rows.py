"""One flat row for every trial, from which the tables and pages are made.

Numbers are as measured, in the units of their names; nothing is rounded. What was not measured is
None. Knobs get a ``knob.`` prefix, because a knob may be named like a number.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from autotune.core.result import Result, TrialRecord

#: Prefix of the column of a knob.
KNOB = "knob."


def trial_rows(result: Result) -> list[dict[str, Any]]:
    """Return the trials of a result as rows with equal keys, in the order they were probed."""
    knobs = sorted({name for trial in result.trials for name in trial.candidate.knobs})
    return [_row(result, trial, knobs) for trial in result.trials]


def _row(result: Result, trial: TrialRecord, knobs: list[str]) -> dict[str, Any]:
    key = trial.candidate.key
    ending = trial.report.ending
    row: dict[str, Any] = {
        "number": trial.number,
        "role": trial.role,
        "key": key,
        "is_best": key == result.best,
        "is_reference": key == result.reference,
        "outcome": ending.outcome.value,
        "phase": ending.phase.value,
        "reason": ending.reason or None,
        "changes": trial.changes,
        "note": trial.note or None,
    }
    row |= {f"{KNOB}{name}": trial.candidate.get(name) for name in knobs}
    row |= _memory(trial) | _weights(trial) | _speed(trial) | _predicted(trial)
    row["wall_seconds"] = trial.report.wall_seconds
    row["log_file"] = trial.report.log_file
    return row


def _memory(trial: TrialRecord) -> dict[str, Any]:
    measurement = trial.report.measurement
    peaks = measurement.peaks if measurement else None
    return {
        "peak_bytes": peaks.deciding_bytes if peaks else None,
        "allocated_bytes": peaks.allocated_bytes if peaks else None,
        "reserved_bytes": peaks.reserved_bytes if peaks else None,
        "context_bytes": peaks.context_bytes if peaks else None,
        "paged_bytes": peaks.paged_bytes if peaks else None,
        "process_bytes": peaks.process_bytes if peaks else None,
        "device_used_bytes": peaks.device_used_bytes if peaks else None,
        "peak_stage": measurement.peak_stage if measurement else None,
        "allocation_retries": peaks.allocation_retries if peaks else None,
        "needed_bytes": trial.report.needed_bytes,
        "cap_bytes": measurement.cap_bytes if measurement else None,
    }


def _weights(trial: TrialRecord) -> dict[str, Any]:
    measurement = trial.report.measurement
    counted = measurement.parameters if measurement else {}
    once = measurement.precompute if measurement else None
    return {
        "weights_bytes": counted.get("bytes"),
        "weights_dtype": counted.get("dtype"),
        "reference_bytes": counted.get("reference_bytes"),
        "reference_dtype": counted.get("reference_dtype") or None,
        "precompute_peak_bytes": once.peaks.deciding_bytes if once else None,
    }


def _predicted(trial: TrialRecord) -> dict[str, Any]:
    expected = trial.prediction
    return {
        "predicted_peak_bytes": expected.peak_bytes if expected else None,
        "predicted_score_seconds": expected.score_seconds if expected else None,
    }


def _speed(trial: TrialRecord) -> dict[str, Any]:
    estimate = trial.estimate
    measurement = trial.report.measurement
    timed = measurement.steady_steps if measurement else ()
    optimizer = measurement.optimizer_seconds if measurement else ()
    return {
        "score_seconds": estimate.score_seconds if estimate else None,
        "pass_seconds": estimate.pass_seconds if estimate else None,
        "precompute_seconds": estimate.precompute_seconds if estimate else None,
        "useful_tokens_per_s": estimate.useful_tokens_per_s if estimate else None,
        "padded_tokens_per_s": estimate.padded_tokens_per_s if estimate else None,
        "label_tokens_per_s": estimate.label_tokens_per_s if estimate else None,
        "retention_ratio": estimate.retention_ratio if estimate else None,
        "padding_ratio": estimate.padding_ratio if estimate else None,
        "tokens_dropped_ratio": estimate.tokens_dropped_ratio if estimate else None,
        "rows_cut": estimate.rows_cut if estimate else None,
        "rows_dropped": estimate.rows_dropped if estimate else None,
        "rows_split": estimate.rows_split if estimate else None,
        "rows_unlabelled": estimate.rows_unlabelled if estimate else None,
        "sequences_per_update": estimate.sequences_per_update if estimate else None,
        "updates_per_pass": estimate.updates_per_pass if estimate else None,
        "spread_ratio": estimate.spread_ratio if estimate else None,
        "step_seconds": median(step.seconds for step in timed) if timed else None,
        "optimizer_seconds": median(optimizer) if optimizer else None,
        "timed_steps": len(timed) or None,
        "first_uses_dropped": measurement.dropped_first_uses if measurement else None,
        "skipped_updates": measurement.skipped_updates if measurement else None,
    }

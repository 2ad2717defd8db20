"""Candidates and endings in the words people read, short enough for a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.core.candidate import Candidate
from autotune.core.environment import Device
from autotune.core.memory import charged_bytes
from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.core.units import show_bytes, show_duration
from autotune.study.session import LEARNED_FROM


def describe(candidate: Candidate, accumulation: int | None = None) -> str:
    """Return a candidate in a few words, e.g. ``4x2 · 512 · packing bfd · no checkpointing``."""
    batch = candidate.get("per_device_train_batch_size")
    parts = [f"{batch}x{accumulation}" if accumulation else f"batch {batch}"]
    parts.append(f"len {candidate.get('max_length')}")
    if candidate.get("packing", "none") != "none":
        parts.append(f"packing {candidate.get('packing')}")
    if candidate.get("padding_free"):
        parts.append("padding-free")
    multiple = candidate.get("pad_to_multiple_of")
    if multiple is not None:
        parts.append(f"pad {multiple}")
    checkpointing = str(candidate.get("gradient_checkpointing", "none"))
    parts.append({"none": "no ckpt", "full": "ckpt"}.get(checkpointing, f"ckpt {checkpointing}"))
    if candidate.get("activation_offloading"):
        parts.append("offload")
    if candidate.get("precompute_ref_log_probs"):
        parts.append("ref precomputed")
    if candidate.get("peft", "none") != "none":
        parts.append(_adapters(candidate))
    if candidate.get("quantization", "none") != "none":
        parts.append(str(candidate.get("quantization")))
    if candidate.get("dtype", "float32") != "float32":
        parts.append(str(candidate.get("dtype")))
    return " · ".join(parts)


def _adapters(candidate: Candidate) -> str:
    """Return which adapters: their kind, rank and layers, as far as they are searched."""
    rank, targets = candidate.get("lora_r"), candidate.get("lora_target_modules")
    parts = [candidate.get("peft"), rank and f"r{rank}", targets]
    return " ".join(str(part) for part in parts if part)


def peak_of(trial: TrialRecord) -> str:
    """Return the peak that decides, or the bound that is known of it."""
    measured = trial.report.measurement
    if trial.report.ending.outcome is Outcome.FITS and measured is not None:
        peak = measured.peaks.deciding_bytes
        return "?" if peak is None else show_bytes(peak)
    needed = trial.report.needed_bytes
    return f"> {show_bytes(needed)}" if needed else "-"


def pass_of(trial: TrialRecord) -> str:
    """Return the expected time of one pass over the reference tokens."""
    return "-" if trial.estimate is None else show_duration(trial.estimate.score_seconds)


def speed_of(trial: TrialRecord) -> str:
    """Return useful tokens per second."""
    return "-" if trial.estimate is None else f"{trial.estimate.useful_tokens_per_s:,.0f}"


def accumulation_of(trial: TrialRecord) -> int:
    """Return the gradient accumulation of a trial."""
    return int(trial.options.get("gradient_accumulation_steps", 1))


def predicted_of(trial: TrialRecord) -> str:
    """Return what was expected of a trial before it was probed; empty when nothing was."""
    if trial.prediction is None or trial.role not in LEARNED_FROM:
        return ""
    expected = trial.prediction
    return (
        f"predicted {show_bytes(expected.peak_bytes)}, pass {show_duration(expected.score_seconds)}"
    )


def misses_of(trials: Sequence[TrialRecord], device: Device) -> str:
    """Return by how much predictions were off, in the median; empty when there were none."""
    peaks, times = [], []
    for trial in trials:
        expected, measured = trial.prediction, trial.report.measurement
        if expected is None or measured is None or trial.estimate is None:
            continue
        if trial.role not in LEARNED_FROM:
            continue
        peak = charged_bytes(measured.peaks, device)
        if peak:
            peaks.append(abs(expected.peak_bytes / peak - 1.0))
        times.append(abs(expected.score_seconds / trial.estimate.score_seconds - 1.0))
    if not times or not peaks:
        return ""
    return (
        f"predictions off by {median(peaks):.0%} in memory, {median(times):.0%} in time "
        f"({len(times)} probes)"
    )

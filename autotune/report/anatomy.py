"""What a candidate's peak is made of, as values: traced where it was, else as far as it is known.

Knows no format. Without a trace only the weights are known, which every probe counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.core.memory import charged_bytes
from autotune.core.result import Result, TrialRecord
from autotune.core.traced_step import Component, TracedPeak
from autotune.core.units import show_bytes, show_duration

#: What every component is called, in the order it is drawn.
COMPONENTS: dict[Component, str] = {
    "weights": "weights",
    "reference": "reference model",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "saved activations",
    "logits": "logits and loss",
    "inputs": "inputs",
    "temporaries": "temporaries",
}
#: What no component of the step can change.
BESIDE = "context, allocator"
#: What is left of a peak that was not traced.
UNTOLD = "not told apart"
OFFLOADED = "offloaded to the host"


@dataclass(frozen=True)
class Part:
    """One part of a peak.

    Args:
        name: what it is called; what the same part of two peaks has in common.
        size_bytes: how much it holds.
        dtype: what it is stored in, where that is known.
    """

    name: str
    size_bytes: int
    dtype: str = ""


def parts_of(split: Mapping[Component, int], peak_bytes: int, offloaded_bytes: int) -> list[Part]:
    """Return the parts of a traced peak that hold something, in the order they are drawn.

    Args:
        split: bytes by component.
        peak_bytes: what the process is charged with; what it holds beside the step's tensors (the
            device's context, rounding and holes of the allocator) is a part of its own.
        offloaded_bytes: most bytes kept in host memory, which are no part of the peak.
    """
    sizes = [(words, split.get(component, 0)) for component, words in COMPONENTS.items()]
    sizes.append((BESIDE, peak_bytes - sum(split.values())))
    sizes.append((OFFLOADED, offloaded_bytes))
    return [Part(name, size) for name, size in sizes if size > 0]


def traced_peak(result: Result, trial: TrialRecord) -> TracedPeak | None:
    """Return what was traced of a trial's candidate; None when nothing was."""
    key = trial.candidate.key
    for one in (*result.predictions, *((trial.prediction,) if trial.prediction else ())):
        if one.candidate.key == key:
            return TracedPeak(
                peak_bytes=one.traced_bytes,
                phase=one.phase,
                split=one.split,
                offloaded_bytes=one.offloaded_bytes,
            )
    return result.traced.get(key)


def anatomy(result: Result, trial: TrialRecord) -> list[Part]:
    """Return what a trial's peak is made of; empty when nothing is known of it."""
    measured = trial.report.measurement
    peak = measured_peak(result, trial)
    traced = traced_peak(result, trial)
    counted = measured.parameters if measured is not None else {}
    if traced is not None:
        parts = parts_of(traced.split, peak or 0, traced.offloaded_bytes)
        if result.device.kind == "cpu":  # where tensors are all there is to a peak
            parts = [replace(p, name=UNTOLD) if p.name == BESIDE else p for p in parts]
        return _with_dtypes(parts, counted)
    known: dict[Component, int] = {
        "weights": int(counted.get("bytes", 0)),
        "reference": int(counted.get("reference_bytes", 0)),
    }
    parts = parts_of(known, 0, 0)
    rest = (peak or 0) - sum(part.size_bytes for part in parts)
    return _with_dtypes([*parts, Part(UNTOLD, rest)], counted) if parts and rest > 0 else []


def _with_dtypes(parts: Sequence[Part], counted: Mapping[str, Any]) -> list[Part]:
    known = {
        COMPONENTS["weights"]: str(counted.get("dtype", "")),
        COMPONENTS["reference"]: str(counted.get("reference_dtype", "")),
    }
    return [replace(part, dtype=known.get(part.name, "")) for part in parts]


def measured_peak(result: Result, trial: TrialRecord) -> int | None:
    """Return the measured peak in bytes that a trace speaks of; None when nothing was measured."""
    measured = trial.report.measurement
    return charged_bytes(measured.peaks, result.device) if measured is not None else None


def weights_words(trial: TrialRecord) -> str:
    """Say what weights a trial held, policy and reference apart, with sizes and dtypes.

    Empty when nobody counted them.
    """
    measured = trial.report.measurement
    counted = measured.parameters if measured is not None else {}
    if not counted.get("bytes") or not counted.get("dtype"):
        return ""
    trainable, total = int(counted["trainable"]), int(counted["total"])
    trained = "" if trainable == total else f" ({trainable:,} of {total:,} are trained)"
    own = f"{show_bytes(int(counted['bytes']))} in {counted['dtype']}{trained}"
    if not counted.get("reference_bytes"):
        return f"Weights: {own}"
    other = f"{show_bytes(int(counted['reference_bytes']))} in {counted['reference_dtype']}"
    return f"Weights: policy {own}, reference model {other}"


def precompute_words(trial: TrialRecord) -> str:
    """Say what the one-off pass over the reference took and held; empty when there was none."""
    measured = trial.report.measurement
    once = measured.precompute if measured is not None else None
    if once is None:
        return ""
    peak = once.peaks.deciding_bytes
    held = f", with a peak of its own of {show_bytes(peak)}" if peak is not None else ""
    return (
        f"The one-off pass over the reference took {show_duration(once.seconds)} for "
        f"{once.rows:,} rows{held}"
    )

"""What is charged to a process beside torch's allocator, in words: the context, paged states."""

from __future__ import annotations

from autotune.core.result import TrialRecord
from autotune.core.units import show_bytes


def beside_words(trial: TrialRecord) -> list[str]:
    """Return what a reader of a peak must know of the rest, one sentence each; empty on a CPU.

    Args:
        trial: a measured trial.
    """
    measured = trial.report.measurement
    if measured is None:
        return []
    peaks, found = measured.peaks, []
    if peaks.context_bytes is not None and peaks.process_bytes is None:
        why = peaks.absent.get("process", "not known")
        found.append(
            f"The driver has no figure for the process ({why}): its peak is what the allocator "
            f"reserved and {show_bytes(peaks.context_bytes)} for the CUDA context "
            f"({peaks.context_source})."
        )
    if peaks.paged_bytes:
        found.append(
            f"{show_bytes(peaks.paged_bytes)} of the peak are paged optimizer states: they leave "
            "the device only when it is full, and then every update waits for them."
        )
    return found

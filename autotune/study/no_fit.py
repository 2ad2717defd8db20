"""Says why a search chose nothing: by how much it missed, or what kept it from measuring."""

from __future__ import annotations

from autotune.core.errors import EnvironmentUnable, NothingFits
from autotune.core.measurement import ProbeReport
from autotune.core.result import Result
from autotune.core.units import show_bytes, show_ratio
from autotune.report.side_by_side import what_dominates
from autotune.study.strategy import cheapest


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

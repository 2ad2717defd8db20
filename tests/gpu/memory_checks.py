"""Checks of memory: stages one by one, caps near the need, and running out for real."""

from __future__ import annotations

from autotune.core.outcome import Outcome
from autotune.probe.classify import classify
from autotune.probe.observed import Observed
from autotune.probe.protocol import Failure, Verification
from tests.gpu.found import Found
from tests.gpu.lab import MIB, Lab, fits, numbers, peak


def stages(lab: Lab, found: Found) -> None:
    """Read what is reserved after the worst batch, mixed lengths, saving and evaluation."""
    spec = lab.spec("0.5B", per_device_train_batch_size=2)
    timed = lab.probe(spec, "timed")
    found.keep("worst batch, then paired rows", numbers(timed))
    found.expect(fits(timed), f"timed it ended as {timed.ending}")
    longest = spec.plan.worst[0]
    whole = Verification(save=True, eval_rows_dir=lab.rows_dir, eval_rows=longest)
    report = lab.probe(spec.model_copy(update={"verification": whole}), "verified")
    found.keep("twenty updates, a checkpoint, an evaluation", numbers(report))
    found.expect(fits(report), f"verified it ended as {report.ending}")
    if report.measurement is not None:
        found.expect(report.measurement.saved, "no checkpoint was saved")
        found.expect(report.measurement.evaluated, "nothing was evaluated")


def caps(lab: Lab, found: Found) -> None:
    """Fit a candidate just above its need, and not below it."""
    free = lab.probe(lab.spec("0.5B"), "free")
    found.keep("free", numbers(free))
    if free.measurement is None:
        found.expect(False, f"uncapped it ended as {free.ending}")
        return
    need = free.measurement.peaks.deciding_bytes or peak(free)
    # The CPU's cap holds the data segment, which grows in larger steps than resident pages; the
    # peak counts resident pages, among them those of libraries a first probe is the first to read.
    ratios = {1.1: True, 0.6: False, 1.02: True} if lab.on_gpu else {8.0: True, 0.1: False}
    for ratio, ends_well in ratios.items():
        report = lab.probe(lab.spec("0.5B", cap_bytes=int(ratio * need)), f"cap-{ratio}")
        found.keep(f"cap {ratio}", {"cap_bytes": int(ratio * need), **numbers(report)})
        found.expect(
            fits(report) if ends_well else report.ending.outcome.is_memory,
            f"at {ratio} of its need it ended as {report.ending.outcome.value}: "
            f"{report.ending.reason}",
        )


def out_of_memory(lab: Lab, found: Found) -> None:
    """Run out of the device's own memory and classify the error."""
    import torch

    try:
        torch.empty(2**50, dtype=torch.uint8, device=lab.device)
    except RuntimeError as error:
        kind = type(error)
        failure = Failure(type_name=f"{kind.__module__}.{kind.__qualname__}", message=str(error))
        seen = Observed(
            failure=failure,
            measurement=None,
            code=1,
            timed_out=False,
            deadline_s=60.0,
            peak_rss_bytes=None,
            host_total_bytes=2**36,
            cap_bytes=None,
            device=lab.device,
        )
        ending, _ = classify(seen)
        wanted = Outcome.OOM_DEVICE if lab.on_gpu else Outcome.OOM_HOST
        found.keep("words", str(error)[:500])
        found.keep("outcome", ending.outcome.value)
        found.expect(ending.outcome is wanted, f"{failure.type_name} ended as {ending.outcome}")
    else:
        found.expect(False, "a pebibyte could be allocated")
    report = lab.probe(lab.spec("0.5B", cap_bytes=(1500 if lab.on_gpu else 1) * MIB), "capped")
    found.keep("a cap below the weights", numbers(report))
    found.expect(report.ending.outcome.is_memory, f"below the weights: {report.ending}")

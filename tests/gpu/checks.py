"""The checks: each returns its evidence and a list of what is wrong (empty when all is well).

On a CPU every check does what can be done there with a tiny model, so that nothing of it rots.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autotune.core.outcome import Outcome
from autotune.core.result import read_result
from autotune.probe.child.device import open_device
from autotune.probe.classify import classify
from autotune.probe.launch import ColdLauncher
from autotune.probe.observed import Observed
from autotune.probe.protocol import Failure
from tests.gpu.history import record
from tests.gpu.lab import LORA, MIB, Lab, checkpointing, fits, numbers, peak


@dataclass
class Found:
    """What a check found.

    Args:
        evidence: numbers, as they go into the check's file.
        wrong: one sentence for everything that is not as it should be.
    """

    evidence: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def expect(self, true: bool, sentence: str) -> None:
        """Note a sentence when something is not so."""
        if not true:
            self.wrong.append(sentence)


def driver_against_torch(lab: Lab) -> Found:
    """Allocate known blocks and compare what torch and the driver say of them."""
    import torch

    found = Found()
    meter, _, sync = open_device(lab.device)
    torch.ones(8, device=lab.device).sum()
    sync()
    meter.reset()
    before = meter.read()
    size = (2048 if lab.on_gpu else 64) * MIB
    held = torch.ones(size, dtype=torch.uint8, device=lab.device)
    sync()
    after = meter.read()
    del held
    found.evidence = {
        "block_bytes": size,
        "before": before.model_dump(),
        "after": after.model_dump(),
    }
    names = ("allocated", "reserved", "process", "device_used") if lab.on_gpu else ("process",)
    grown: dict[str, int | None] = {}
    for name in names:
        first = getattr(before, f"{name}_bytes")
        last = getattr(after, f"{name}_bytes")
        grown[name] = None if first is None or last is None else last - first
        absent = name in after.absent
        found.expect(
            absent or (grown[name] is not None and abs((grown[name] or 0) - size) <= 0.05 * size),
            f"a block of {size} bytes grew the {name} peak by {grown[name]}",
        )
    found.evidence["grown_bytes"] = grown
    return found


def out_of_memory(lab: Lab) -> Found:
    """Run out of memory for real, under a cap and without one, and classify both."""
    import torch

    found = Found()
    report = lab.probe(lab.spec("0.5B", cap_bytes=(1500 if lab.on_gpu else 1) * MIB), "capped")
    found.evidence["capped"] = numbers(report)
    found.expect(
        report.ending.outcome.is_memory, f"a cap below the weights ended as {report.ending}"
    )
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
        found.evidence["uncapped"] = {"words": str(error)[:500], "outcome": ending.outcome.value}
        found.expect(ending.outcome is wanted, f"{failure.type_name} ended as {ending.outcome}")
    else:
        found.wrong.append("a pebibyte could be allocated")
    return found


def allocator_cap(lab: Lab) -> Found:
    """Fit a candidate just above its peak, and not below it."""
    found = Found()
    free = lab.probe(lab.spec("0.5B"), "free")
    found.evidence["free"] = numbers(free)
    if free.measurement is None:
        found.wrong.append(f"uncapped it ended as {free.ending}")
        return found
    need = free.measurement.peaks.deciding_bytes or peak(free)
    # The CPU's cap holds the data segment, which grows in larger steps than resident pages; the
    # peak counts resident pages, among them those of libraries a first probe is the first to read.
    above, below = (1.1, 0.6) if lab.on_gpu else (8.0, 0.1)
    for name, ratio, ends_well in (("above", above, True), ("below", below, False)):
        report = lab.probe(lab.spec("0.5B", cap_bytes=int(ratio * need)), name)
        found.evidence[name] = {"cap_bytes": int(ratio * need), **numbers(report)}
        found.expect(
            fits(report) if ends_well else report.ending.outcome.is_memory,
            f"at {ratio} of its peak it ended as {report.ending.outcome.value}: "
            f"{report.ending.reason}",
        )
    return found


def offload(lab: Lab) -> Found:
    """Offload activations: less memory, and the same update."""
    found = Found()
    base = lab.spec("0.5B", per_device_train_batch_size=4, **checkpointing("none"))
    plain = lab.probe(base, "plain")
    options = {**base.options, "activation_offloading": True}
    less = lab.probe(base.model_copy(update={"options": options}), "offloaded")
    same = lab.guard(base, {"activation_offloading": lab.on_gpu, **checkpointing("none")}, "same")
    found.evidence = {
        "plain": numbers(plain),
        "offloaded": numbers(less),
        "compared": same.model_dump(mode="json")["compared"],
    }
    found.expect(fits(plain), f"without offloading it ended as {plain.ending}")
    found.expect(fits(same), f"the updates are not equivalent: {same.ending.reason}")
    if not lab.on_gpu:
        found.expect(not fits(less), "TRL offloads on a CPU, where it needs an accelerator")
    elif not fits(less):
        found.wrong.append(f"offloading ended as {less.ending}")
    else:
        found.expect(peak(less) < peak(plain), "offloading does not lower the allocated peak")
    return found


def warm_fork(lab: Lab) -> Found:
    """Fork probes from a warm server on this device, and measure what cold ones measure."""
    found = Found()
    warm, unsafe = lab.runner, lab.why_cold
    cold = lab.run_on(ColdLauncher())
    found.evidence["unsafe"] = unsafe
    found.expect(not unsafe, f"a warm server is not safe here: {unsafe}")
    spec = lab.spec("0.5B")
    cold_report = cold.probe(spec, name="cold", deadline_s=150.0)
    found.evidence["cold"] = numbers(cold_report)
    found.expect(fits(cold_report), f"cold it ended as {cold_report.ending}")
    for name in ("warm", "warm-again"):
        report = None if unsafe else warm.probe(spec, name=name, deadline_s=150.0)
        if report is None:
            continue
        found.evidence[name] = numbers(report)
        found.expect(fits(report), f"{name} it ended as {report.ending}")
        if fits(report) and fits(cold_report):
            apart = abs(peak(report) / peak(cold_report) - 1.0)
            found.expect(apart <= 1e-3, f"{name} and cold peaks are {apart:.2%} apart")
    return found


def demo_search(lab: Lab) -> Found:
    """Tune the embedded demo from the command line; in a dry run a tinier job."""
    found = Found()
    out = lab.folder / "demo"
    job = ["--trials", "8"]
    if not lab.on_gpu:
        rows = lab.folder / "rows.jsonl"
        rows.write_text("\n".join(f'{{"text": "{"word " * n}"}}' for n in range(1, 20)), "utf-8")
        job = ["--trials", "1", "--space", "quick", "--set", "bf16=false"]
        job += ["--model", lab.model_dir("0.5B"), "--dataset", str(rows)]
    done = subprocess.run(
        [
            *[sys.executable, "-m", "autotune", "run", "--device", lab.device, *job],
            *["--memory", "2GiB", "--timeout", "60s", "--out", str(out)],
        ],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    found.evidence = {"code": done.returncode, "said": done.stdout[-4000:]}
    found.expect(done.returncode == 0, f"autotune run ended with {done.returncode}")
    if done.returncode:
        found.evidence["errors"] = done.stderr[-4000:]
        return found
    result = read_result(out)
    found.evidence |= {
        "chosen_because": result.chosen_because,
        "equivalence": result.equivalence,
        "verification": result.verification,
        "speedup": result.speedup.model_dump() if result.speedup else None,
        "device": result.device.model_dump(),
        "versions": result.environment.versions,
        "trials": [
            {"role": t.role, "knobs": t.candidate.knobs, **numbers(t.report)} for t in result.trials
        ],
    }
    found.expect(result.best is not None, "nothing was chosen")
    found.expect(result.verification.startswith("verified"), f"not so: {result.verification!r}")
    return found


def half_billion(lab: Lab) -> Found:
    """Measure candidates of a 0.5B-shaped model trained whole."""
    flat = {"padding_free": True, "max_length": None}
    return _candidates(
        lab,
        "0.5B",
        {
            "batch 1": {},
            "batch 4": {"per_device_train_batch_size": 4},
            "batch 4, no checkpointing": {
                "per_device_train_batch_size": 4,
                **checkpointing("none"),
            },
            "batch 4, padding-free": {"per_device_train_batch_size": 4, **flat},
            "packed": {"packing": True},
        },
    )


def seven_billion_lora(lab: Lab) -> Found:
    """Measure candidates of a 7B-shaped model trained by LoRA on frozen bf16 weights."""
    return _candidates(
        lab,
        "7B",
        {
            "batch 1": LORA,
            "batch 4": {**LORA, "per_device_train_batch_size": 4},
            "batch 4, no checkpointing": {
                **LORA,
                "per_device_train_batch_size": 4,
                **checkpointing("none"),
            },
            "packed": {**LORA, "packing": True},
        },
    )


def _candidates(lab: Lab, shape: str, candidates: dict[str, dict[str, Any]]) -> Found:
    found = Found()
    wanted = candidates if lab.on_gpu else dict(list(candidates.items())[-1:])
    for name, options in wanted.items():
        report = lab.probe(lab.spec(shape, **options), name.replace(" ", "-").replace(",", ""))
        found.evidence[name] = {"options": options, **numbers(report)}
        found.expect(fits(report), f"{name} ended as {report.ending}")
    return found


def allocator_history(lab: Lab) -> Found:
    """Record every allocation of six candidates' updates, as a fixture for the allocator replay."""
    found = Found()
    larger = {"per_device_train_batch_size": 4}
    candidates: dict[str, dict[str, Any]] = {
        "b1-full": {},
        "b1-none": checkpointing("none"),
        "b4-full": larger,
        "b4-none": {**larger, **checkpointing("none")},
        "b4-flat": {**larger, "padding_free": True, "max_length": None},
        "packed": {"packing": True},
    }
    wanted = candidates if lab.on_gpu else dict(list(candidates.items())[:1])
    for name, options in wanted.items():
        kept = record(lab, lab.spec("0.5B", **options), name)
        found.evidence[name] = {"options": options, **kept}
        found.expect(kept["events"] > 100, f"{name}: only {kept['events']} allocator events")
    return found


@dataclass(frozen=True)
class Check:
    """One check and the most seconds it may take on a GPU."""

    run: Callable[[Lab], Found]
    seconds: int


#: In the order they run; the cheap ones that explain the others come first. Together they may
#: take longer than the whole run may, in which case the last ones get what is left.
CHECKS: dict[str, Check] = {
    "driver-against-torch": Check(driver_against_torch, 40),
    "out-of-memory": Check(out_of_memory, 60),
    "allocator-cap": Check(allocator_cap, 70),
    "warm-fork": Check(warm_fork, 80),
    "offload": Check(offload, 80),
    "half-billion": Check(half_billion, 100),
    "seven-billion-lora": Check(seven_billion_lora, 140),
    "allocator-history": Check(allocator_history, 90),
    "demo-search": Check(demo_search, 150),
}


def as_json(found: Found) -> str:
    """Return the evidence of one check as it is written."""
    return json.dumps({"wrong": found.wrong, "evidence": found.evidence}, indent=1) + "\n"

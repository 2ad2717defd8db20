"""Checks of the machine: what its driver says, whether forks work, the demo, a second GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune.core.errors import ToolFailure
from autotune.core.result import read_result
from autotune.probe.child.device import open_device
from autotune.probe.cold import ColdLauncher
from autotune.probe.launch import open_launcher
from autotune.probe.protocol import InspectSpec
from autotune.probe.warm import WarmServer
from autotune.testing.fake_torch_build import ASKS_EVERY_DEVICE
from tests.gpu.found import Found
from tests.gpu.lab import MIB, Lab, fits, numbers, peak

#: Runs in a process of its own: which files NVML opens, and which CUDA.
_OPENED = """
import json, os, torch
def opened():
    folder = "/proc/self/fd"
    links = [os.path.join(folder, name) for name in os.listdir(folder)]
    names = {os.readlink(link) for link in links if os.path.islink(link)}
    return sorted(name for name in names if name.startswith("/dev/") and "null" not in name)
torch.cuda.device_count()
nvml = opened()
if torch.cuda.is_available():
    torch.ones(1, device="cuda")
print(json.dumps({"nvml": nvml, "cuda": opened()}))
"""


def versions_and_driver(lab: Lab, found: Found) -> None:
    """Say what is here, and compare what torch and the driver say of blocks of known size."""
    import torch

    found.keep("versions", lab.versions())
    found.keep("nvml", nvml_answers())
    variables = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    ran = _python(_OPENED, variables)
    found.keep("files opened", ran.stdout.strip() or ran.stderr[-500:])
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
    found.keep("before", before.model_dump())
    found.keep("after", after.model_dump())
    names = ("allocated", "reserved", "process", "device_used") if lab.on_gpu else ("process",)
    for name in names:
        first, last = (getattr(peaks, f"{name}_bytes") for peaks in (before, after))
        grown = None if first is None or last is None else last - first
        found.expect(
            name in after.absent or (grown is not None and abs(grown - size) <= 0.05 * size),
            f"a block of {size} bytes grew the {name} peak by {grown}",
        )


def nvml_answers() -> dict[str, Any]:
    """Return NVML's own answers, each by the name of what was asked, or its refusal."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the evidence)
        return {"init": repr(error)}
    handle: Any = None
    answers: dict[str, Any] = {"own pid": os.getpid()}

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(pynvml, name)(*arguments)
        except Exception as error:  # noqa: BLE001
            return repr(error)

    answers["driver"] = str(ask("nvmlSystemGetDriverVersion"))
    answers["count"] = ask("nvmlDeviceGetCount")
    handle = ask("nvmlDeviceGetHandleByIndex", 0)
    for name in ("Name", "UUID", "MigMode", "MemoryInfo", "ComputeRunningProcesses"):
        answers[name] = str(ask(f"nvmlDeviceGet{name}", handle))
    return answers


def warm_fork(lab: Lab, found: Found) -> None:
    """Fork probes with bitsandbytes and without; they measure what a fresh process measures."""
    packages = lab.folder / "packages"
    hidden, asking = packages / "hidden", packages / "asking"
    for folder in (hidden, asking / "bitsandbytes"):
        folder.mkdir(parents=True)
    hides = "import sys\n\nsys.modules['bitsandbytes'] = None\n"
    (hidden / "sitecustomize.py").write_text(hides, encoding="utf-8")
    (asking / "bitsandbytes" / "__init__.py").write_text(ASKS_EVERY_DEVICE, encoding="utf-8")
    installed = find_spec("bitsandbytes") is not None
    path = os.environ.get("PYTHONPATH", "")
    ways = {
        "without": {"PYTHONPATH": os.pathsep.join(filter(None, (str(hidden), path)))},
        "with": {}
        if installed
        else {"PYTHONPATH": os.pathsep.join(filter(None, (str(asking), path)))},
    }
    found.keep("bitsandbytes is installed", installed)
    spec = lab.spec("0.5B")
    # In a dry run a cold process would only cost its imports; the contract suite has one.
    cold = lab.run_on(ColdLauncher()) if lab.on_gpu else lab.runner
    reference = cold.probe(spec, name="cold", deadline_s=60.0)
    found.keep("cold", numbers(reference))
    found.expect(fits(reference), f"cold it ended as {reference.ending}")
    if not lab.on_gpu:  # a server takes seconds to import what it needs
        del ways["without"]
    for way, variables in ways.items():
        logs = lab.folder / f"logs-{way}"
        logs.mkdir()
        launcher, why = open_launcher(logs, variables)
        found.keep(f"unsafe {way} bitsandbytes", why)
        found.expect(isinstance(launcher, WarmServer), f"{way} bitsandbytes: {why}")
        report = lab.run_on(launcher).probe(spec, name=f"warm-{way}", deadline_s=60.0)
        found.keep(f"warm {way} bitsandbytes", numbers(report))
        found.expect(fits(report), f"warm {way} bitsandbytes it ended as {report.ending}")
        if lab.on_gpu and fits(report) and fits(reference):
            apart = abs(peak(report) / peak(reference) - 1.0)
            found.expect(apart <= 1e-3, f"{way}: warm and cold peaks are {apart:.2%} apart")


def demo_search(lab: Lab, found: Found) -> None:
    """Tune the embedded demo from the command line; in a dry run a tinier job."""
    out = lab.folder / "demo"
    job = ["--trials", "6"]
    if not lab.on_gpu:
        rows = lab.folder / "rows.jsonl"
        rows.write_text("\n".join(f'{{"text": "{"word " * n}"}}' for n in range(1, 20)), "utf-8")
        job = ["--trials", "1", "--space", "quick", "--set", "bf16=false"]
        job += ["--model", lab.model_dir("0.5B"), "--dataset", str(rows)]
    done = subprocess.run(
        [
            *[sys.executable, "-m", "autotune", "run", "--device", lab.device, *job],
            *["--memory", "2GiB", "--timeout", "45s", "--out", str(out)],
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    found.keep("code", done.returncode)
    found.keep("said", done.stdout[-4000:])
    found.expect(done.returncode == 0, f"autotune run ended with {done.returncode}")
    if done.returncode:
        found.keep("errors", done.stderr[-4000:])
        return
    result = read_result(out)
    found.keep("chosen because", result.chosen_because)
    found.keep("equivalence", result.equivalence)
    found.keep("verification", result.verification)
    found.keep("speedup", result.speedup.model_dump() if result.speedup else None)
    found.keep("notices", list(result.environment.notices))
    trials = [
        {"role": t.role, "knobs": t.candidate.knobs, **numbers(t.report)} for t in result.trials
    ]
    found.keep("trials", trials)
    found.expect(result.best is not None, "nothing was chosen")
    found.expect(result.verification.startswith("verified"), f"not so: {result.verification!r}")


def second_gpu(lab: Lab, found: Found) -> None:
    """Measure on ``cuda:1`` and take its rates, without a byte on ``cuda:0``."""
    reply = lab.runner.inspect(InspectSpec(), deadline_s=60.0)
    assert reply.environment is not None
    gpus = [device for device in reply.environment.devices if device.kind == "cuda"]
    found.keep("devices", [device.model_dump() for device in gpus])
    wanted = gpus[1] if len(gpus) > 1 else None
    if wanted is None:
        found.keep("not tried", f"{len(gpus)} GPUs are here, and two are needed")
        wanted = reply.environment.devices[0]
    spec = lab.spec("0.5B").model_copy(
        update={"device": wanted.label, "device_uuid": wanted.visible_uuid}
    )
    report = lab.probe(spec, "second")
    found.keep("probe", numbers(report))
    found.expect(fits(report), f"on {wanted.label} it ended as {report.ending}")
    try:
        rated = lab.runner.inspect(InspectSpec(rates=(wanted.label,)), deadline_s=60.0)
        found.keep("rates", [rates.model_dump(mode="json") for rates in rated.rates])
    except ToolFailure as error:
        found.expect(False, f"no rates of {wanted.label}: {error.message}")


def _python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    here = str(Path(__file__).resolve().parents[2])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment, cwd=here, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

"""Examines this machine: which ways of measuring work here, and what knobs lack.

Proves by doing: a warm fork and a cold start both run a parallel matrix product, a cap on memory
is set and must bite. Measures how fast the devices are and keeps that for predictions.
"""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

from autotune.core.environment import Device, Environment
from autotune.core.errors import ToolFailure
from autotune.core.job import Frozen
from autotune.core.rates import Rates
from autotune.intake.cache import cache_dir
from autotune.knobs.needs import PACKAGES
from autotune.predict.devices.measured import write_rates
from autotune.probe.cold import ColdLauncher
from autotune.probe.finished import Finished
from autotune.probe.launcher import Launcher
from autotune.probe.meters.driver import Driver, DriverRefused, Identity
from autotune.probe.meters.faults import with_remedy
from autotune.probe.meters.nvml import NvmlDriver
from autotune.probe.protocol import InspectSpec, Request
from autotune.probe.runner import Runner
from autotune.probe.warm import WarmServer

_DEADLINE_S = 900.0
_NO_GPU = "torch sees no GPU"

#: What needs an optional package, by its name in `PACKAGES`.
_NEEDED_FOR = {
    "bitsandbytes": "4-bit and 8-bit weights, 8-bit optimizers",
    "flash-attn": "attn_implementation flash_attention_2",
    "kernels": "attention and layer kernels from the hub",
    "liger-kernel": "use_liger_kernel",
    "deepspeed": "deepspeed",
    "vllm": "generation of the online trainers",
}


class Check(Frozen):
    """One thing that was tried.

    Args:
        name: what was tried.
        works: whether it does.
        detail: what was seen.
    """

    name: str
    works: bool
    detail: str


class Diagnosis(Frozen):
    """What `diagnose` found.

    Args:
        environment: versions and devices.
        checks: what was tried.
        missing: optional packages that are absent, with the knobs that need them.
        cache_dir: folder of caches shared between runs.
        rates: how fast the devices are; empty when that could not be measured.
    """

    environment: Environment
    checks: tuple[Check, ...]
    missing: tuple[str, ...]
    cache_dir: str
    rates: tuple[Rates, ...] = ()


def diagnose() -> Diagnosis:
    """Examine this machine.

    Raises:
        ToolFailure: no way of starting a measuring process works.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-doctor-") as folder:
        warm_dir, cold_dir = Path(folder) / "warm", Path(folder) / "cold"
        for made in (warm_dir, cold_dir):
            made.mkdir()
        cold = _try(ColdLauncher(), cold_dir, ())
        warm = _try(WarmServer(warm_dir), warm_dir, ("auto", "cpu"))
    replies = [done.reply for done in (warm, cold) if done.reply]
    environment = next((r.environment for r in replies if r.environment is not None), None)
    if environment is None:
        raise ToolFailure("no measuring process can be started here.", "Is torch installed?")
    rates = next((r.rates for r in replies if r.rates), ())
    _keep(rates, environment)
    checks = [
        _start_check("warm probes (forked from a process that imported the libraries)", warm),
        _start_check("cold probes (a fresh process each)", cold),
        Check(
            name="memory of CPU probes",
            works=Path("/proc/self/clear_refs").exists(),
            detail="capped by RLIMIT_DATA, read from the kernel's high-water mark",
        ),
    ]
    gpus = [d for d in environment.devices if d.kind == "cuda"]
    checks += gpu_checks(gpus, environment.gpu_fault, NvmlDriver())
    missing = [
        f"{package} is not installed: needed for {knobs} (pip install 'autotune[{package}]')"
        for package, knobs in _NEEDED_FOR.items()
        if find_spec(PACKAGES[package].module) is None
    ]
    if not gpus:
        missing.append("no accelerator: activation_offloading is not searched")
    return Diagnosis(
        environment=environment,
        checks=tuple(checks),
        missing=tuple(missing),
        cache_dir=str(cache_dir()),
        rates=rates,
    )


def _keep(rates: tuple[Rates, ...], environment: Environment) -> None:
    """Store measured rates where predictions look for them."""
    by_name = {device.name: device for device in environment.devices}
    for one in rates:
        write_rates(cache_dir(), by_name[one.device], environment.versions["torch"], one)


def gpu_checks(gpus: list[Device], fault: str, driver: Driver) -> list[Check]:
    """Ask what can be read of every GPU's memory; torch's allocator always can.

    Args:
        gpus: the GPUs torch sees.
        fault: why GPUs of this machine cannot be used, in the driver's words.
        driver: the driver library.
    """
    checks = [Check(name="NVIDIA driver", works=False, detail=with_remedy(fault))] if fault else []
    if not gpus:
        return [*checks, Check(name="memory of GPU probes", works=False, detail=_NO_GPU)]
    for gpu in gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        identity = Identity.of(gpu.uuid, gpu.pci_bus_id, visible, gpu.index or 0)
        detail = "torch's allocator, and the driver's figures of device and clocks (NVML)"
        try:
            handle = driver.open(identity)
            driver.memory(handle)
        except DriverRefused as refused:
            detail = f"torch's allocator only; driver-level memory is unavailable ({refused})"
        else:
            detail += _unlisted(driver, handle)
        if gpu.unified:
            detail += "; shared with the system"
        checks.append(Check(name=f"memory of probes on {gpu.label}", works=True, detail=detail))
    return checks


def _unlisted(driver: Driver, handle: object) -> str:
    """Say that processes are not told apart on a device; empty where they are listed."""
    try:
        driver.process_bytes(handle)
    except DriverRefused as refused:
        return f"; processes are not listed ({refused})"
    return ""


def _try(launcher: Launcher, folder: Path, rates: tuple[str, ...]) -> Finished:
    with Runner(launcher, folder) as runner:
        try:
            if isinstance(launcher, WarmServer) and (unsafe := launcher.wait_ready()):
                raise ToolFailure(unsafe)
            spec = InspectSpec(matmul=True, rates=rates)
            return runner.run(Request(spec=spec), name="inspect", deadline_s=_DEADLINE_S)
        except ToolFailure as error:
            return Finished(1, False, 0.0, None, None, Path(str(error)))


def _start_check(name: str, done: Finished) -> Check:
    works = done.reply is not None and done.reply.failure is None
    if done.reply is not None and works:
        measured = ", rates measured" if done.reply.rates else ""
        detail = f"a process answered in {done.wall_seconds:.2f} s{measured}"
    elif done.timed_out:
        detail = f"hung for {done.wall_seconds:.0f} s"
    else:
        detail = f"ended with code {done.code}"
    return Check(name=name, works=works, detail=detail)

"""Describes the machine and the libraries from inside a measuring process.

The parent asks a child for this, so that the parent itself never imports torch or opens CUDA.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from autotune.core.environment import Device, Environment
from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.units import show_bytes
from autotune.knobs.isolation import RECORDED_ENV
from autotune.probe.cgroup import cgroup_limit
from autotune.probe.meters.driver import Driver, DriverRefused
from autotune.probe.meters.faults import driver_fault, remedy_of, with_remedy
from autotune.probe.meters.limit import limit_of
from autotune.probe.meters.nvml import NvmlDriver
from autotune.probe.meters.runtime import CudaRuntime, TorchRuntime

WSL_NOTICE = (
    "This is WSL: its driver may page GPU memory to the host instead of failing, and pinned memory "
    "is short; a peak above the device's memory, or steps ten times slower than others of their "
    "shape, count as spilled."
)
#: What begins a list of devices that shows one; anything else hides all of them.
_VISIBLE = re.compile(r"\s*(\d|GPU-|MIG-)")
#: Share of a device that others must hold before it is worth a sentence; a display takes less.
_WORTH_SAYING = 0.02

_LIBRARIES = (
    "autotune",
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "tokenizers",
    "optuna",
    "bitsandbytes",
    "flash-attn",
    "kernels",
    "liger-kernel",
    "vllm",
    "deepspeed",
    "nvidia-ml-py",
)


def inspect_environment(*, matmul: bool = False) -> Environment:
    """Return versions and devices.

    Args:
        matmul: run a parallel matrix product first; where forking is unsafe this hangs, and the
            deadline says so.
    """
    import torch

    if matmul:
        a = torch.ones(512, 512)
        assert float((a @ a)[0, 0]) == 512.0
    notices: list[str] = []
    gpus, fault = _gpus(notices)
    devices = [*gpus, _cpu_device(notices)]
    return Environment(
        versions=_versions(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        devices=tuple(devices),
        notices=tuple(notices),
        gpu_fault=fault,
        variables={name: os.environ[name] for name in RECORDED_ENV if name in os.environ},
    )


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _gpus(notices: list[str]) -> tuple[list[Device], str]:
    """Return the GPUs torch sees, and why the driver lets others not be used."""
    import torch

    driver = NvmlDriver()
    fault = driver_fault(driver)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        unseen, fault = gpus_unseen(driver, fault, os.environ, torch.version.cuda)
        notices.extend([unseen] if unseen else [])
        return [], fault
    memory = psutil.virtual_memory()
    system = (int(memory.total), int(memory.available))
    devices = [cuda_device(i, TorchRuntime(i), driver, system, notices) for i in range(count)]
    if fault and not any(fault in notice for notice in notices):
        notices.append(f"The NVIDIA driver refuses: {with_remedy(fault)}")
    if count > 1:
        notices.append(
            f"{count} GPUs are visible; a probe sees only the one it measures, and numbers are per "
            "process on that one card."
        )
    if is_wsl(platform.release()):
        notices.append(WSL_NOTICE)
    return devices, fault


def gpus_unseen(
    driver: Driver, fault: str, environment: Mapping[str, str], built_for: str | None
) -> tuple[str, str]:
    """Say why torch sees no GPU; empty where there is none to see.

    Args:
        driver: the driver library.
        fault: what keeps GPUs from being used, in its words; empty when nothing does.
        environment: of this process.
        built_for: CUDA version torch was built for; None for a build without.

    Returns:
        The sentence, and the fault as far as GPUs were to be used: not where the user hides them.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if fault and visible is not None and not _VISIBLE.match(visible):
        said = f"CUDA_VISIBLE_DEVICES is {visible!r}: measuring on the CPU"
        return f"{said}. The NVIDIA driver refuses besides: {with_remedy(fault)}", ""
    if fault:
        return f"torch sees no GPU, and the NVIDIA driver refuses: {with_remedy(fault)}", fault
    try:
        count = driver.count()
    except DriverRefused:
        return "", ""
    if not count:
        return "", ""
    if built_for is None:
        why = (
            "this torch was installed without CUDA. The selector at pytorch.org/get-started has "
            "the command for one with CUDA"
        )
    elif visible is not None:
        why = f"CUDA_VISIBLE_DEVICES is {visible!r}"
    else:
        why = f"the driver may be too old for the CUDA {built_for} torch was built for: update it"
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    return f"The driver has {gpus} and torch sees none: {why}. Measuring on the CPU instead.", ""


def cuda_device(
    index: int,
    runtime: CudaRuntime,
    driver: Driver,
    system: tuple[int, int],
    notices: list[str],
) -> Device:
    """Describe one GPU; what cannot be known of it is added to the notices.

    Args:
        index: as this process sees it.
        runtime: its CUDA runtime.
        driver: the driver library.
        system: total and available bytes of system memory.
        notices: gets a sentence for everything a person should know.
    """
    found = runtime.properties()
    identity = found.identity(os.environ.get("CUDA_VISIBLE_DEVICES"), index)
    limit = limit_of(runtime, driver, identity, system)
    if limit.notice:
        notices.append(" ".join(filter(None, (limit.notice, remedy_of(limit.notice)))))
    elif limit.others_bytes > _WORTH_SAYING * limit.total_bytes:
        notices.append(
            f"Others hold {show_bytes(limit.others_bytes)} of the {show_bytes(limit.total_bytes)} "
            f"of cuda:{index} ({found.name}); the default budget leaves it to them."
        )
    return Device(
        kind="cuda",
        index=index,
        name=found.name,
        total_bytes=limit.total_bytes,
        free_bytes=limit.free_bytes,
        capability=f"{found.capability[0]}.{found.capability[1]}",
        bf16=found.capability[0] >= 8,  # Ampere is the first generation with bf16 units
        unified=limit.unified,
        uuid=found.uuid,
        pci_bus_id=found.pci_bus_id,
    )


def is_wsl(release: str) -> bool:
    """Whether a kernel release is that of the Windows subsystem for Linux."""
    return "microsoft" in release.lower()


def _cpu_device(notices: list[str]) -> Device:
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    limit = cgroup_limit()
    if limit is not None and limit < total:
        notices.append(f"A control group limits this process to {limit} bytes of memory.")
        total, free = limit, min(free, limit)
    if platform.system() != "Linux":
        notices.append("Memory of CPU probes can only be capped and measured on Linux.")
    return Device(
        kind="cpu",
        index=None,
        name=_cpu_name(),
        total_bytes=total,
        free_bytes=free,
        bf16=True,
        cores=len(os.sched_getaffinity(0)),
    )


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def choose_device(environment: Environment, wanted: str) -> Device:
    """Return the device probes will use.

    Args:
        environment: what was found.
        wanted: ``auto`` (the first GPU, else the CPU), ``cpu`` or ``cuda[:i]``.

    Raises:
        BadInput: the name is none of these.
        EnvironmentUnable: there is no such device here, or there may be and its driver refuses.
    """
    gpus = [d for d in environment.devices if d.kind == "cuda"]
    kind, _, index = wanted.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not index.isdigit()):
        raise BadInput(f"device is {wanted!r}, expected auto, cpu, cuda or cuda:0.")
    fault = environment.gpu_fault
    if fault and kind != "cpu" and not gpus:
        raise EnvironmentUnable(
            f"torch sees no GPU, and the NVIDIA driver refuses: {fault.rstrip('.')}.",
            f"{remedy_of(fault)} Or measure on the CPU: --device cpu.".lstrip(),
        )
    if kind == "auto":
        return environment.devices[0]
    if kind == "cpu":
        return environment.devices[-1]
    match = [d for d in gpus if d.index == int(index or 0)]
    if not match:
        names = ", ".join(d.label for d in environment.devices)
        raise EnvironmentUnable(
            f"there is no device {wanted!r} here; torch sees {names}.",
            "Use --device cpu, or install a CUDA build of torch.",
        )
    return match[0]


def devices_named(environment: Environment, names: Sequence[str]) -> tuple[Device, ...]:
    """Return devices by name, each once; ``auto`` is left out where a driver refuses its GPU.

    Args:
        environment: what was found.
        names: as for `choose_device`.

    Raises:
        BadInput: a name is none of these.
        EnvironmentUnable: there is no such device here.
    """
    refused = environment.gpu_fault and environment.devices[0].kind == "cpu"
    usable = [name for name in names if not (refused and name == "auto")]
    return tuple(dict.fromkeys(choose_device(environment, name) for name in usable))

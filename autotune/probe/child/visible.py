"""Chooses the devices this process sees, before anything is imported that could open one.

A process that imports bitsandbytes asks every device it sees; one that sees several is refused by
TRL's trainers. So this comes first in every measuring process, forked or fresh, and imports no
library: of torch, only the file that names its build is read.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from autotune.core.environment import Environment
from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.probe.protocol import GuardSpec, PrepareSpec, ProbeSpec, Spec, TraceSpec

#: What names no device to CUDA and HIP; an empty list counts as no list to HIP.
_NONE = "-1"


def choose_visible(spec: Spec) -> tuple[Spec, Environment | None]:
    """Make this process see the devices a request is about.

    A probe sees the one it measures; one on the CPU and a tracer see none. Preparation sees the
    one that was asked for, once the whole machine was looked at. Whoever describes the machine
    sees all.

    Args:
        spec: the request.

    Returns:
        The request, its device named as this process sees it, and the machine where it was
        looked at for this.
    """
    on_cpu = isinstance(spec, ProbeSpec | GuardSpec) and spec.device == "cpu"
    if on_cpu or isinstance(spec, TraceSpec):
        see_no_device()
    elif isinstance(spec, ProbeSpec | GuardSpec):
        local = see_one_device(spec.device, spec.device_uuid)
        return spec.model_copy(update={"device": local}), None
    elif isinstance(spec, PrepareSpec):
        return spec, _machine_seen_apart(spec)
    return spec, None


def _machine_seen_apart(spec: PrepareSpec) -> Environment | None:
    """Look at the machine in a copy of this process, then see the device that was asked for.

    Looking opens every device. None: there is nothing to choose from, or the copy failed.
    """
    from autotune.probe.child.inspect import choose_device, inspect_environment

    build = _torch_build()
    if not sys.platform.startswith("linux") or not (build.get("cuda") or build.get("hip")):
        return None
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w", encoding="utf-8") as answer:
                answer.write(inspect_environment().model_dump_json())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    if not text:
        return None
    machine = Environment.model_validate_json(text)
    try:
        device = choose_device(machine, spec.asked_device)
    except (BadInput, EnvironmentUnable):
        return machine  # said where it is met again
    see_one_device(device.label, device.visible_uuid)
    return machine


def see_one_device(device: str, uuid: str | None = None) -> str:
    """Make one GPU visible to this process.

    Args:
        device: ``cpu`` or ``cuda:i``, counted in the user's own list of visible devices.
        uuid: entry of ``CUDA_VISIBLE_DEVICES`` that names it whatever the order of devices
            (`autotune.core.environment.Device.visible_uuid`); None where none is known.

    Returns:
        The device's name in this process from now on.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return device
    at, rocm = int(index or 0), _built_for_rocm()
    names = _listed(rocm)
    entry = names[at] if at < len(names) else str(at)
    # ROCm's UUIDs, as torch shows them, are not those its own list takes.
    _show(entry if uuid is None or rocm or not entry.isdigit() else uuid, rocm)
    return "cuda:0"


def see_no_device() -> None:
    """Make no GPU visible to this process."""
    _show(_NONE, _built_for_rocm())


def _listed(rocm: bool) -> list[str]:
    """Return the user's own list; ``ROCR_VISIBLE_DEVICES`` is below it and stays as it is."""
    listed = os.environ.get("HIP_VISIBLE_DEVICES") if rocm else None
    listed = listed or os.environ.get("CUDA_VISIBLE_DEVICES")
    return [name.strip() for name in listed.split(",")] if listed else []


def _show(entry: str, rocm: bool) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = entry
    if rocm:  # HIP reads its own name first
        os.environ["HIP_VISIBLE_DEVICES"] = entry


def _built_for_rocm() -> bool:
    return bool(_torch_build().get("hip"))


def _torch_build() -> dict[str, str | None]:
    """Return the CUDA and HIP versions torch was built for; it is not imported for this."""
    if "torch" in sys.modules:
        version = sys.modules["torch"].version
        return {name: getattr(version, name, None) for name in ("cuda", "hip")}
    found = find_spec("torch")
    if found is None or found.origin is None:
        return {}
    file = Path(found.origin).with_name("version.py")
    return runpy.run_path(str(file)) if file.is_file() else {}

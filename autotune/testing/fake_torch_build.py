"""Makes torch of any build look like one for GPUs, in processes somebody else starts.

`environment_of` returns variables for such processes; in them torch counts the made-up devices, and
whatever would open one is written to a file instead. Nothing computes on a made-up device: a
process that tries ends with an error. A stand-in for an optional package may be put in its place.

The second half of this file runs in those processes, before anything else, and imports nothing of
this package.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_VARIABLE = "AUTOTUNE_FAKE_TORCH"
_MIB = 2**20

#: What importing bitsandbytes does (0.50, ``cuda_specs.py``): it asks every device it sees.
ASKS_EVERY_DEVICE = """
import torch

__version__ = "0.50.2"
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        torch.cuda.get_device_capability(index)
"""


def environment_of(
    folder: Path,
    *,
    uuids: tuple[str, ...] = ("aaaaaaaa-0000", "bbbbbbbb-0000"),
    build: str = "cuda",
    counted: bool = True,
    packages: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables of processes on a machine of made-up GPUs.

    Args:
        folder: an empty folder for what these processes import and leave behind.
        uuids: of the devices, without prefix, in order; empty is a build for GPUs without one.
        build: ``cuda`` or ``hip``.
        counted: whether the driver's library (NVML, amdsmi) counts devices without opening them.
        packages: source of stand-ins by module name, such as `ASKS_EVERY_DEVICE`.
    """
    facts = {
        "uuids": uuids,
        "build": build,
        "counted": counted,
        "calls": str(folder / "calls.jsonl"),
    }
    site = f"import runpy\n\nrunpy.run_path({str(Path(__file__))!r}, run_name='__fake_torch__')\n"
    (folder / "sitecustomize.py").write_text(site, encoding="utf-8")
    (folder / "torch_build").mkdir()
    versions = {"cuda": None, "hip": None, build: "12.8"}
    lines = "".join(f"{name} = {version!r}\n" for name, version in versions.items())
    (folder / "torch_build" / "version.py").write_text(lines, encoding="utf-8")
    for name, source in (packages or {}).items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source, encoding="utf-8")
        about = folder / f"{name}-99.0.dist-info"
        about.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.0\n"
        (about / "METADATA").write_text(metadata, encoding="utf-8")
        (about / "top_level.txt").write_text(f"{name}\n", encoding="utf-8")
    return {_VARIABLE: json.dumps(facts), "PYTHONPATH": str(folder)}


def calls_of(folder: Path) -> list[dict[str, Any]]:
    """Return what would have opened a device: ``pid``, ``call`` and ``visible``, in order.

    Args:
        folder: as given to `environment_of`.
    """
    file = folder / "calls.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines]


class _AsTorchIsImported(importlib.abc.MetaPathFinder):
    """Change torch once its own code has run."""

    def __init__(self, machine: _Machine) -> None:
        self._machine = machine

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec("torch")
        sys.meta_path.insert(0, self)
        own, origin = spec.loader.exec_module, spec.origin

        def run(module: Any) -> None:
            module.__file__ = spec.origin = origin
            own(module)
            self._machine.take(module)

        spec.loader.exec_module = run
        spec.origin = self._machine.origin  # beside it lies the file that names the build
        return spec


class _Machine:
    """The made-up devices behind one process's torch."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._torch: Any = None
        self.origin = str(Path(facts["calls"]).with_name("torch_build") / "__init__.py")

    def take(self, torch: Any) -> None:
        """Let torch be a build for this machine."""
        self._torch, cuda = torch, torch.cuda
        setattr(torch.version, self._facts["build"], "12.8")
        counted = len(self._facts["uuids"]) if self._facts["counted"] else -1
        prefix = "GPU-" if self._facts["build"] == "cuda" else ""
        uuids = [prefix + uuid for uuid in self._facts["uuids"]]
        for library in ("nvml", "amdsmi"):
            setattr(cuda, f"_raw_device_count_{library}", lambda: counted)
            known = uuids if self._facts["counted"] else None
            setattr(cuda, f"_raw_device_uuid_{library}", lambda known=known: known)
        total_bytes = 16 * 1024 * _MIB
        cuda._cudart = SimpleNamespace(cudaMemGetInfo=lambda _: (total_bytes, total_bytes))
        cuda._get_device_properties = self._properties
        for name in ("getCurrentRawStream", "getDevice", "setDevice", "synchronize"):
            setattr(torch._C, f"_cuda_{name}", lambda *_, name=name: self._opens(name))
        torch._C._cuda_getArchFlags = lambda: None
        torch._C._cuda_getDeviceCount = self._count
        torch._C._cuda_init = lambda: self._opens("init")

    def _opens(self, call: str) -> int:
        names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
        seen = {name: os.environ[name] for name in names if name in os.environ}
        with open(self._facts["calls"], "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps({"pid": os.getpid(), "call": call, "visible": seen}) + "\n")
        if call == "init" and not self._visible():
            raise RuntimeError("No CUDA GPUs are available")
        return 0

    def _visible(self) -> int:
        """Return how many devices the process sees."""
        listed = self._torch.cuda._parse_visible_devices()
        known = [f"GPU-{uuid}" for uuid in self._facts["uuids"]]
        there = [*range(len(known)), *known]
        return sum(name in there for name in listed)

    def _count(self) -> int:
        self._opens("getDeviceCount")
        return self._visible()

    def _properties(self, index: int) -> Any:
        self._opens(f"properties of {index}")
        return SimpleNamespace(
            name="A Made-Up GPU",
            major=9,
            minor=0,
            total_memory=16 * 1024 * _MIB,
            is_integrated=False,
            uuid=self._facts["uuids"][index],
        )


if __name__ == "__fake_torch__":
    sys.meta_path.insert(0, _AsTorchIsImported(_Machine(json.loads(os.environ[_VARIABLE]))))

"""Keeps the driver closed while the warm server imports libraries, whatever is installed.

A process that opened CUDA or HIP cannot be forked. Some optional packages ask for the device when
they are imported, and libraries import them because they are there. The known ones are hidden from
the start; another one is caught when it asks, and the server starts anew without it. Forked
children have all of them: they import what they need once their device is chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from traceback import walk_stack
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Optional packages that libraries import because they are there and no candidate needs before the
#: fork: bitsandbytes asks every device for its capability (0.50, ``cuda_specs.py``; peft imports it
#: in ``helpers.py``), other quantizers load kernels (peft ``tuners/lora``, ``quantizers``).
ASKING = ("bitsandbytes", "torchao", "hqq", "aqlm", "eetq", "transformer_engine")
#: Libraries that remember whether a package or a device is there.
_REMEMBERING = (
    "transformers.utils.import_utils",
    "accelerate.utils.imports",
    "peft.import_utils",
    "trl.import_utils",
)
#: Files that computing opens and NVML does not: CUDA's and HIP's.
_OPENED = ("/dev/nvidia-uvm", "/dev/kfd")
#: Files that are there when a GPU's driver is: NVIDIA's (also WSL's and Tegra's) and AMD's.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/kfd")


class DriverAsked(BaseException):
    """An optional package asks for the device before the fork; no library may catch this."""


class DriverGuard:
    """Answer for the driver while nothing may open it."""

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        """Hold the driver back; nothing is done where torch is built without one.

        Args:
            hidden: packages beside the known ones that are taken for absent until `show`.
        """
        import torch

        self._torch: Any = torch._C
        self._real: dict[str, Callable[..., Any]] = {}
        built = torch.version.cuda is not None or torch.version.hip is not None
        self.hidden = tuple(dict.fromkeys((*ASKING, *hidden))) if built else ()
        #: The package that asked and was refused; the one that opened the driver all the same.
        self.asked_by = ""
        self.opened_by = ""
        self._forking = False
        for name in self.hidden:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]
        stand_ins = {"_cuda_getDeviceCount": _devices_there, "_cuda_init": self._asked}
        for name, stand_in in stand_ins.items():
            if hasattr(self._torch, name):  # not on builds for the CPU
                self._real[name] = getattr(self._torch, name)
                setattr(self._torch, name, stand_in)

    def _asked(self) -> Any:
        """Refuse to open the driver; `asked_by` outlives what catches the refusal.

        Raises:
            DriverAsked: a package asks that can be left to the children.
        """
        package = optional_caller()
        if self._forking or (package and package not in self.hidden):
            self.asked_by = package or "a library"
            raise DriverAsked(self.asked_by)
        self.opened_by = package or "a library"
        self.lift()
        return self._torch._cuda_init()

    def show(self) -> None:
        """Let hidden packages be found again, and libraries look anew what is there."""
        self._forking = True
        for name in self.hidden:
            if name in sys.modules and sys.modules[name] is None:
                del sys.modules[name]
        look_anew()

    def lift(self) -> None:
        """Give the driver free; a forked child does this first."""
        for name, real in self._real.items():
            setattr(self._torch, name, real)


def _devices_there() -> int:
    """Return whether there is a device, as 0 or 1, where NVML (amdsmi) does not count them.

    The runtime would open the driver to count.
    """
    return int(any(Path(file).exists() for file in _DRIVERS))


def look_anew() -> None:
    """Have libraries forget which packages and devices they found."""
    for library in _REMEMBERING:
        for name, found in vars(sys.modules.get(library, sys)).items():
            if name.startswith("is_") and hasattr(found, "cache_clear"):
                found.cache_clear()


def optional_caller() -> str:
    """Return the optional package in whose code this call is; empty when there is none.

    It is the outermost one: what it imports in turn may be found by others too.
    """
    frames = (frame for frame, _ in walk_stack(None))
    names = [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in frames]
    known = _required() | sys.stdlib_module_names | {"", "__main__", "autotune"}
    return next((name for name in reversed(names) if name not in known), "")


def _required() -> set[str]:
    """Return the modules of everything autotune requires, and of what that requires."""
    asked, found = ["autotune"], set()
    while asked:
        name = canonicalize_name(asked.pop())
        if name in found:
            continue
        found.add(name)
        with suppress(PackageNotFoundError):
            for line in requires(name) or ():
                wanted = Requirement(line)
                if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                    asked.append(wanted.name)
    return {
        module
        for module, owners in packages_distributions().items()
        if any(canonicalize_name(owner) in found for owner in owners)
    }


def opened_file(files: Path = Path("/proc/self/fd")) -> str:
    """Return a file of the driver this process has open, which only computing opens.

    Args:
        files: folder of links to the files that are open.
    """
    if not files.is_dir():
        return ""
    targets = []
    for link in files.iterdir():
        with suppress(OSError):  # the folder's own link is gone by now
            targets.append(str(link.readlink()))
    return next((name for name in _OPENED if name in targets), "")

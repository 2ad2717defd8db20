"""What it means that the NVIDIA driver refuses: a fault is not "no GPU", and has a remedy.

A machine without a driver has no fault. Refusals are known by NVML's own words
(``pynvml.NVMLError``), which is what people search for.
"""

from __future__ import annotations

import re
from pathlib import Path

from autotune.probe.meters.driver import Driver, DriverRefused

#: There is no driver to ask: no library, or nothing to ask it with.
_ABSENT = re.compile(r"shared library not found|cannot be imported", re.IGNORECASE)
#: The library is there and the kernel module is not: a fault where the machine has a card.
_NOT_LOADED = re.compile(r"driver not loaded", re.IGNORECASE)
#: A device that answers like this is there and does not keep a process from computing.
_ANSWERS_LESS = re.compile(r"permission|not supported|function not found|symbol", re.IGNORECASE)

_REMEDIES = (
    (
        re.compile(r"version mismatch", re.IGNORECASE),
        "The driver was updated and the old one is still loaded: reboot, or load the driver anew.",
    ),
    (_NOT_LOADED, "Load the driver (modprobe nvidia), or install it for this kernel and reboot."),
    (
        re.compile(r"is lost|requires restart|interrupt request|power", re.IGNORECASE),
        "Reboot; when it comes again, look at power and cooling and for Xid in dmesg.",
    ),
    (
        re.compile(r"permission", re.IGNORECASE),
        "Give this user or container access to the GPU (/dev/nvidia*).",
    ),
    (
        re.compile(r"function not found|symbol", re.IGNORECASE),
        "Update the driver: this one is older than what it is asked.",
    ),
    (
        re.compile(r"unknown error|blocked the request", re.IGNORECASE),
        "Restart the container, which loses its GPU when the host reloads systemd; else reboot.",
    ),
)

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY = "0x10de", "0x03"


def driver_fault(driver: Driver, *, card: bool | None = None) -> str:
    """Return what keeps this machine's GPUs from being used, in the driver's words; else empty.

    Args:
        driver: the driver library.
        card: whether there is an NVIDIA card; None looks at the PCI bus where that matters.
    """
    try:
        return "; ".join(driver.faults())
    except DriverRefused as refused:
        words = str(refused)
    if _ABSENT.search(words):
        return ""
    if _NOT_LOADED.search(words) and not (_has_card() if card is None else card):
        return ""
    return words


def is_fault(words: str) -> bool:
    """Whether a device that was opened and answers like this cannot be used."""
    return not _ANSWERS_LESS.search(words)


def remedy_of(words: str) -> str:
    """Return what to do about a refusal, one sentence; empty where nothing is known."""
    return next((remedy for known, remedy in _REMEDIES if known.search(words)), "")


def with_remedy(words: str) -> str:
    """Return a refusal as a sentence, and what to do about it where that is known."""
    return " ".join(filter(None, (f"{words.rstrip('.')}.", remedy_of(words))))


def _has_card() -> bool:
    """Whether an NVIDIA display controller is on the PCI bus."""
    try:
        for device in _PCI.iterdir():
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            kind = (device / "class").read_text(encoding="ascii").strip()
            if vendor == _NVIDIA and kind.startswith(_DISPLAY):
                return True
    except OSError:
        return False
    return False

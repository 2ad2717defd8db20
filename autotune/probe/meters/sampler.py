"""Asks the driver again and again in a thread: peaks between torch's own, and the clocks.

Memory is looked at 50 times a second; clocks, which take the driver longer, five times.
"""

from __future__ import annotations

import os
import statistics
import threading

from autotune.core.device_state import DeviceState
from autotune.probe.meters.driver import Driver, DriverRefused, Identity, Reading

_SECONDS = 0.02
_LOOKS_PER_READING = 10
_UNLISTED = "the driver lists processes without a figure for this one (a container's own ids?)"
_NO_CLOCKS = "the driver gives no clocks here"


class Sampler:
    """Follow one device; one that the driver does not know is followed by nobody, with a reason."""

    def __init__(self, driver: Driver, identity: Identity) -> None:
        """Open the device; `start` begins to look.

        Args:
            driver: the driver library.
            identity: the device's names.
        """
        self._driver = driver
        self._handle: object | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._refusals: dict[str, str] = {}
        self._process_peak: int | None = None
        self._device_peak: int | None = None
        self._readings: list[Reading] = []
        try:
            self._handle = driver.open(identity)
        except DriverRefused as refused:
            self._refusals = {"process": str(refused), "device_used": str(refused)}

    def start(self) -> None:
        """Look regularly until the process ends or `stop` is called."""
        if self._handle is not None:
            threading.Thread(target=self._go_on, name="sampler", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def _go_on(self) -> None:
        looks = 0
        while not self._stop.wait(_SECONDS):
            self.look(clocks=looks % _LOOKS_PER_READING == 0)
            looks += 1

    def look(self, *, clocks: bool) -> None:
        """Ask once.

        Args:
            clocks: ask for clocks too.
        """
        if self._handle is None:
            return
        with self._lock:
            self._look_at_memory()
            if clocks:
                self._readings.append(self._driver.reading(self._handle))

    def _look_at_memory(self) -> None:
        if "device_used" not in self._refusals:
            try:
                used = self._driver.memory(self._handle).used_bytes
                self._device_peak = max(self._device_peak or 0, used)
            except DriverRefused as refused:
                self._refusals["device_used"] = str(refused)
        if "process" not in self._refusals:
            try:
                mine = self._driver.process_bytes(self._handle).get(os.getpid())
                if mine is not None:
                    self._process_peak = max(self._process_peak or 0, mine)
            except DriverRefused as refused:
                self._refusals["process"] = str(refused)

    def reset(self) -> None:
        """Forget the memory seen so far."""
        with self._lock:
            self._process_peak = self._device_peak = None

    @property
    def process_peak_bytes(self) -> int | None:
        """Highest memory of this process since the reset."""
        return self._process_peak

    @property
    def device_peak_bytes(self) -> int | None:
        """Highest memory used by everybody since the reset."""
        return self._device_peak

    @property
    def absent(self) -> dict[str, str]:
        """Why a peak is None, by its name in `Peaks`."""
        reasons = dict(self._refusals)
        if self._process_peak is None:
            reasons.setdefault("process", _UNLISTED)
        if self._device_peak is None:
            reasons.setdefault("device_used", "the device was not looked at")
        return reasons

    def state(self) -> DeviceState:
        """Sum up the clocks since this was last asked."""
        with self._lock:
            readings, self._readings = self._readings, []
        sm = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
        memory = [r.memory_clock_mhz for r in readings if r.memory_clock_mhz is not None]
        heat = [r.temperature_celsius for r in readings if r.temperature_celsius is not None]
        why = self._refusals["process"] if self._handle is None else _NO_CLOCKS
        gaps = (("sm_clock", sm), ("memory_clock", memory), ("temperature", heat))
        return DeviceState(
            sm_clock_mhz=int(statistics.median(sm)) if sm else None,
            sm_clock_least_mhz=min(sm, default=None),
            memory_clock_mhz=int(statistics.median(memory)) if memory else None,
            temperature_celsius=max(heat, default=None),
            held_back=tuple(dict.fromkeys(words for r in readings for words in r.held_back)),
            samples=len(readings),
            absent={name: why for name, seen in gaps if not seen},
        )

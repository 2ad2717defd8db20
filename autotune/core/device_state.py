"""What the device was doing while something was measured: clocks, temperature, what held it back.

Two measurements of one candidate differ when the clocks did; this is kept beside both.
"""

from __future__ import annotations

from autotune.core.job import Frozen


class DeviceState(Frozen):
    """Sum up what the driver said of a device during one measurement.

    Args:
        sm_clock_mhz: median clock of the multiprocessors.
        sm_clock_least_mhz: their lowest clock.
        memory_clock_mhz: median clock of the memory.
        temperature_celsius: highest temperature.
        held_back: what kept clocks below their most, as the driver names it, each once.
        samples: how often the driver was asked.
        absent: for every number that is None, why.
    """

    sm_clock_mhz: int | None = None
    sm_clock_least_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    held_back: tuple[str, ...] = ()
    samples: int = 0
    absent: dict[str, str] = {}

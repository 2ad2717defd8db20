"""Machines made of numbers: the fakes that ship, for trying a search out where there is no GPU.

They pass the contract suites the real ones pass, start no process and measure nothing. Only tests
import this package, ours and yours: ``from autotune.testing import FakeMachine, FakeProber``.

- `FakeProber` answers probes from a `FakeMachine`, which says what micro-batches cost; a script
  (`at`, `always`) says which probe meets which happening (`Raises`, `Hangs`, `Spills`, ...).
- `FakeNvml` plays the driver library and `FakeRuntime` torch's CUDA runtime, for the meters of
  GPU memory; ``autotune.testing.fake_nvml`` has a maker for every kind of machine we know of.
"""

from autotune.testing.fake_machine import Factors, FakeMachine, Shape
from autotune.testing.fake_nvml import FakeDevice, FakeNvml
from autotune.testing.fake_prober import FakeProber
from autotune.testing.fake_runtime import FakeRuntime
from autotune.testing.fake_script import (
    Dies,
    Differs,
    Diverges,
    Grows,
    GuardScript,
    Hangs,
    Happening,
    Interrupts,
    Pollutes,
    Raises,
    Script,
    Spills,
    always,
    at,
    out_of_memory,
)

__all__ = [
    "Dies",
    "Differs",
    "Diverges",
    "Factors",
    "FakeDevice",
    "FakeMachine",
    "FakeNvml",
    "FakeProber",
    "FakeRuntime",
    "Grows",
    "GuardScript",
    "Hangs",
    "Happening",
    "Interrupts",
    "Pollutes",
    "Raises",
    "Script",
    "Shape",
    "Spills",
    "always",
    "at",
    "out_of_memory",
]

"""The checks in the order they run, most valuable first; each has a box of time of its own.

On a CPU every check does what can be done there with a tiny model, so that nothing of it rots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.gpu.found import Found
from tests.gpu.lab import Lab
from tests.gpu.machine_checks import demo_search, second_gpu, versions_and_driver, warm_fork
from tests.gpu.memory_checks import caps, out_of_memory, stages
from tests.gpu.model_checks import flash, fp16, seven_billion
from tests.gpu.time_checks import first_uses, step_times


@dataclass(frozen=True)
class Check:
    """One check and the most seconds it may take on a GPU; it is ended when they are over."""

    run: Callable[[Lab, Found], None]
    seconds: int


CHECKS: dict[str, Check] = {
    "versions-and-driver": Check(versions_and_driver, 40),
    "warm-fork": Check(warm_fork, 70),
    "demo": Check(demo_search, 80),
    "first-uses": Check(first_uses, 35),
    "step-times": Check(step_times, 55),
    "flash": Check(flash, 30),
    "fp16": Check(fp16, 35),
    "stages": Check(stages, 45),
    "seven-billion": Check(seven_billion, 85),
    "caps": Check(caps, 45),
    "second-gpu": Check(second_gpu, 30),
    "out-of-memory": Check(out_of_memory, 20),
}

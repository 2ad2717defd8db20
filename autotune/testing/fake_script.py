"""What can befall a made-up probe: crashes, hangs, spills, interruptions, by the probe's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.core.outcome import Phase
from autotune.probe.protocol import Failure, GuardSpec, ProbeSpec

_MIB = 2**20


@dataclass(frozen=True)
class Raises:
    """The measured thing raises; ``step`` micro-steps were finished before it."""

    type_name: str
    message: str
    phase: Phase = Phase.STEADY
    step: int = 0
    traceback: str = ""

    def failure(self) -> Failure:
        """Return the answer of a child in which this is raised."""
        return Failure(
            type_name=self.type_name,
            message=self.message,
            traceback=self.traceback or f"Traceback (made up)\n{self.type_name}: {self.message}",
            phase=self.phase,
            step=self.step,
        )


@dataclass(frozen=True)
class Dies:
    """The process ends without an answer: negative is a signal, else an exit code."""

    code: int
    log_tail: str = ""


@dataclass(frozen=True)
class Hangs:
    """The process never ends by itself."""


@dataclass(frozen=True)
class Diverges:
    """The loss is not finite from this timed step on."""

    step: int = 0


@dataclass(frozen=True)
class Grows:
    """Every memory step needs this much more than the one before."""

    bytes_per_step: int


@dataclass(frozen=True)
class Spills:
    """The driver pages to host memory: no exception, but a peak and times like this.

    Args:
        peak_bytes: reserved peak; None leaves the machine's own.
        slowdown: what step times are multiplied by.
    """

    peak_bytes: int | None = None
    slowdown: float = 40.0


@dataclass(frozen=True)
class Pollutes:
    """Something still holds this much of the device when the probe starts."""

    surplus_bytes: int


@dataclass(frozen=True)
class Differs:
    """The compared update's loss is this much larger than the reference's, relative."""

    loss_ratio: float = 0.01


@dataclass(frozen=True)
class Interrupts:
    """The user presses Ctrl-C while the probe runs."""


Happening = Raises | Dies | Hangs | Diverges | Grows | Spills | Pollutes | Differs | Interrupts
#: What befalls a probe, by its order from 0 and its request; None when nothing does.
Script = Callable[[int, ProbeSpec], Happening | None]
#: The same of comparisons: `Differs`, `Raises`, `Hangs`, `Interrupts`, or nothing.
GuardScript = Callable[[int, GuardSpec], Happening | None]


def at(happenings: Mapping[int, Happening]) -> Script:
    """Return a script in which the named probes (counted from 0) meet what is given for them."""
    return lambda order, _: happenings.get(order)


def always(happening: Happening) -> Script:
    """Return a script in which every probe meets the same."""
    return lambda _, __: happening


def out_of_memory(
    device: str, phase: Phase, step: int = 0, wanted_bytes: int = 64 * _MIB
) -> Raises:
    """Return the exception of an allocator without memory, in the words torch uses.

    Args:
        device: ``cpu`` or ``cuda:i``.
        phase: where it is raised.
        step: micro-steps finished before.
        wanted_bytes: the request that failed.
    """
    if device == "cpu":
        words = (
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate "
            f"memory: you tried to allocate {wanted_bytes} bytes. Error code 12 (Cannot allocate "
            "memory)"
        )
        return Raises("builtins.RuntimeError", words, phase, step)
    words = f"CUDA out of memory. Tried to allocate {wanted_bytes / _MIB:.2f} MiB. GPU 0 is full."
    return Raises("torch.OutOfMemoryError", words, phase, step)

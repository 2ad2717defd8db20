"""Opens a GPU and finds out what the process then holds of it beside torch's allocator.

That is the CUDA context and the kernels in it. The driver's figure for the process says it, where
it says the truth: containers show 0 bytes, process ids of the host, or no list. Then the free
memory of the device before and after says it; where others moved meanwhile, the usual is taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.core.cuda_memory import may_be_context, usual_context_bytes
from autotune.core.units import show_bytes
from autotune.probe.meters.driver import Driver, DriverRefused, Identity
from autotune.probe.meters.runtime import CudaRuntime

BY_PROCESS = "the driver's figure for this process"
BY_DIFFERENCE = "free memory of the device before and after it was opened"
#: Two looks this far apart that differ by less find the device at rest.
_SETTLED_BYTES = 2**20
_SETTLE_SECONDS = 0.05
_MOST_LOOKS = 10


@dataclass(frozen=True)
class Context:
    """What this process holds of the device beside the allocator.

    Args:
        held_bytes: how much.
        source: where that is from, as a phrase.
        unlisted: why the driver's figure for this process is no answer; empty when it is one.
    """

    held_bytes: int
    source: str
    unlisted: str = ""


@dataclass(frozen=True)
class _Look:
    """The driver's view at one moment; None and a reason for what it does not say."""

    free_bytes: int | None
    listed: Mapping[int, int | None] = field(default_factory=dict)
    refusal: str = ""


def open_context(
    runtime: CudaRuntime,
    driver: Driver,
    identity: Identity,
    wait: Callable[[float], None] = time.sleep,
) -> Context:
    """Open the device, load the kernels of a training step, and return what that took.

    Args:
        runtime: the device's CUDA runtime; nothing is allocated on it yet.
        driver: the driver library.
        identity: the device's names.
        wait: lets time pass while others move.
    """
    capability = "{}.{}".format(*runtime.properties().capability)
    opened_before = runtime.is_open()
    before = _look(driver, identity, wait)
    runtime.warm_up()
    reserved = runtime.reserved_bytes()
    after = _look(driver, identity, wait)
    mine = after.listed.get(os.getpid())
    unlisted = _why_unlisted(before, after, reserved, opened_before)
    if not unlisted and mine is not None:
        return Context(mine - reserved, BY_PROCESS)
    unknown = "the device was open before" if opened_before else _why_unknown(before, after)
    if not unknown and before.free_bytes is not None and after.free_bytes is not None:
        difference = before.free_bytes - after.free_bytes - reserved
        if may_be_context(difference, capability):
            return Context(difference, BY_DIFFERENCE, unlisted)
        unknown = f"free memory changed by {show_bytes(abs(difference))}, which is no context"
    source = f"as usual for compute capability {capability}; it cannot be measured here: {unknown}"
    return Context(usual_context_bytes(capability), source, unlisted)


def _look(driver: Driver, identity: Identity, wait: Callable[[float], None]) -> _Look:
    """Look until free memory is at rest, or give up."""
    try:
        handle = driver.open(identity)
    except DriverRefused as refused:
        return _Look(None, refusal=str(refused))
    try:
        listed: Mapping[int, int | None] = driver.process_bytes(handle)
        refusal = ""
    except DriverRefused as refused:
        listed, refusal = {}, str(refused)
    try:
        free = driver.memory(handle).free_bytes
        for _ in range(_MOST_LOOKS):
            wait(_SETTLE_SECONDS)
            last, free = free, driver.memory(handle).free_bytes
            if abs(free - last) < _SETTLED_BYTES:
                return _Look(free, listed, refusal)
    except DriverRefused as refused:
        return _Look(None, listed, str(refused))
    return _Look(None, listed, "others use the device meanwhile")


def _why_unlisted(before: _Look, after: _Look, reserved: int, opened_before: bool) -> str:
    """Return why the driver's figure for this process is no answer; empty when it is one."""
    own = os.getpid()
    if after.refusal and not after.listed:
        return after.refusal
    if own not in after.listed:
        return "the driver does not list this process (a container of its own process ids?)"
    mine = after.listed[own]
    if mine is None:
        return "the driver lists this process without a figure (a container?)"
    if mine <= reserved:
        return (
            f"the driver lists this process with {show_bytes(mine)}, less than its tensors take "
            "(a container?)"
        )
    if before.listed.get(own) and not opened_before:
        # Nothing was opened yet: what is listed under this id is a process of the host's.
        return "the driver lists another process under this one's id (ids of the host?)"
    return ""


def _why_unknown(before: _Look, after: _Look) -> str:
    """Return why the difference of two looks is not this process's alone; empty when it is."""
    for look in (before, after):
        if look.free_bytes is None:
            return look.refusal
    # In a container that is shown ids of the host, one new id is this process itself.
    new = after.listed.keys() - before.listed.keys()
    if len(new) > 1 or any(before.listed[pid] != after.listed.get(pid) for pid in before.listed):
        return "others use the device meanwhile"
    return ""

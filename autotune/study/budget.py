"""How much memory a job may use: what the user says, else what nobody else holds; pure."""

from __future__ import annotations

from autotune.core.environment import Device
from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.job import Budget
from autotune.core.units import show_bytes

#: Kept free unless the user says otherwise; more where the system allocates from the same memory.
_HEADROOM_RATIO = 0.05
_SHARED_HEADROOM_RATIO = 0.15


def budget_of(memory_bytes: int | None, headroom_ratio: float | None, device: Device) -> Budget:
    """Return the budget of a job.

    Args:
        memory_bytes: what the user gives it; None gives what others leave of the device.
        headroom_ratio: share kept free, 0..1; None keeps 5 %, of shared memory 15 %.
        device: where it runs.

    Raises:
        BadInput: the device has less than the user gives.
        EnvironmentUnable: others hold all of the device.
    """
    if headroom_ratio is None:
        headroom_ratio = _SHARED_HEADROOM_RATIO if device.unified else _HEADROOM_RATIO
    if memory_bytes is not None and memory_bytes > device.total_bytes:
        raise BadInput(
            f"--memory is {show_bytes(memory_bytes)}, {device.name} has "
            f"{show_bytes(device.total_bytes)}.",
            "Give what this job may use of the device.",
        )
    if memory_bytes is None and device.free_bytes <= 0:
        raise EnvironmentUnable(
            f"nothing is free of {device.label} ({device.name}): others hold all of its "
            f"{show_bytes(device.total_bytes)}.",
            "End what uses it, or choose another --device.",
        )
    return Budget(
        total_bytes=device.free_bytes if memory_bytes is None else memory_bytes,
        headroom_ratio=headroom_ratio,
        explicit=memory_bytes is not None,
    )


def budget_remark(budget: Budget, device: Device) -> str:
    """Say that a budget is more than others leave of the device; empty when it is not."""
    if not budget.explicit or budget.total_bytes <= device.free_bytes:
        return ""
    return (
        f"--memory {show_bytes(budget.total_bytes)} is more than the "
        f"{show_bytes(device.free_bytes)} that are free of {device.label} now: others hold "
        f"{show_bytes(device.others_bytes)}."
    )

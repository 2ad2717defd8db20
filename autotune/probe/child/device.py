"""Opens the device a probe measures on: its meter, its cap, and how to wait for it."""

from __future__ import annotations

import os
from collections.abc import Callable

from autotune.probe.meters.base import Cap, Meter


def open_device(device: str) -> tuple[Meter, Cap, Callable[[], None]]:
    """Return the meter, the cap and the synchronisation of a device.

    Args:
        device: ``cpu`` or ``cuda:i``.
    """
    import torch

    if device == "cpu":
        from autotune.probe.meters.cpu import CpuCap, CpuMeter
        from autotune.probe.meters.heap import settle_heap

        # Start the worker and autograd threads now: their stacks are torch's, not the candidate's.
        a = torch.ones(64, 64, requires_grad=True)
        torch.autograd.backward((a @ a).sum())
        settle_heap()
        return CpuMeter(), CpuCap(), lambda: None

    from autotune.probe.meters.context import open_context
    from autotune.probe.meters.cuda import CudaCap, CudaMeter
    from autotune.probe.meters.nvml import NvmlDriver
    from autotune.probe.meters.runtime import TorchRuntime
    from autotune.probe.meters.sampler import Sampler

    index = int(device.partition(":")[2] or 0)
    runtime, driver = TorchRuntime(index), NvmlDriver()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    identity = runtime.properties().identity(visible, index)
    context = open_context(runtime, driver, identity)
    torch.cuda.set_device(index)  # not before: it may open the device
    meter = CudaMeter(runtime, Sampler(driver, identity), context)
    return meter, CudaCap(runtime, context), lambda: torch.cuda.synchronize(index)

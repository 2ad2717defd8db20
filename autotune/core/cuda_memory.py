"""What CUDA takes of a device beside tensors, by architecture: one table, with its sources.

The meter falls back to it where nobody measures; the predictor adds it to what it traces.
"""

from __future__ import annotations

_MIB = 2**20

#: A context with the kernels of a small program, by compute capability (major alone: all of it).
#: Kernels are loaded when they are first used; loaded all at once, torch's take twice as much
#: (pytorch/pytorch#86509: 274 MiB against 636).
_CONTEXTS: dict[str, int] = {
    "7": 400 * _MIB,  # V100, 300 to 400: pytorch/pytorch#20532
    "8.0": 500 * _MIB,  # "about 500MB": pytorch/serve#2128
    "8.6": 256 * _MIB,  # RTX 3090, torch 2.7: invoke-ai/InvokeAI#9413
    "8.9": 426 * _MIB,  # RTX 6000 Ada, torch 2.10: unslothai/unsloth-zoo#1053
}
#: What the kernels of a training step add to that: no figure was found, a fifth is taken.
_KERNELS_RATIO = 1.2
#: For devices nothing was found for (Hopper, Blackwell): the largest of the others.
_UNKNOWN_BYTES = max(_CONTEXTS.values())

#: A difference of free memory below this share of the usual, or above this size, is no context:
#: something else moved meanwhile. The largest on record are 1.6 GiB (RTX 3090, all kernels loaded
#: at once: pytorch/pytorch#49877).
_LEAST_RATIO, _MOST_BYTES = 0.5, 2048 * _MIB

#: cuBLAS's workspace, which the caching allocator gives it: ``:4096:2:16:8``, and 32 MiB on Hopper
#: and Blackwell. cuBLASLt shares it. (parseChosenWorkspaceSize in
#: aten/src/ATen/cuda/CublasHandlePool.cpp, torch 2.7 and newer.)
_WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * 1024
_LARGE_WORKSPACE_BYTES = 32 * _MIB
_LARGE_WORKSPACE = ("9", "10", "12")
#: Every thread has a handle of its own, and each handle a workspace; the backward pass runs in a
#: thread of autograd's (DeviceThreadHandlePool, same file).
_THREADS = 2


def usual_context_bytes(capability: str | None) -> int:
    """Return what a context takes with a training step's kernels, where nobody measures it.

    Args:
        capability: CUDA compute capability such as ``8.6``; None where it is not known.
    """
    name = capability or ""
    known = _CONTEXTS.get(name) or _CONTEXTS.get(name.partition(".")[0]) or _UNKNOWN_BYTES
    return int(_KERNELS_RATIO * known)


def may_be_context(size_bytes: int, capability: str | None) -> bool:
    """Whether a context may have this size; arguments as for `usual_context_bytes`."""
    return _LEAST_RATIO * usual_context_bytes(capability) <= size_bytes <= _MOST_BYTES


def workspace_bytes(capability: str | None) -> int:
    """Return what cuBLAS holds of the allocator's memory while a model is trained.

    Args:
        capability: CUDA compute capability such as ``9.0``; None where it is not known.
    """
    large = (capability or "").partition(".")[0] in _LARGE_WORKSPACE
    return _THREADS * (_LARGE_WORKSPACE_BYTES if large else _WORKSPACE_BYTES)

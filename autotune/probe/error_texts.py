"""The texts by which libraries say what went wrong; data only, judged in classify.py."""

from __future__ import annotations

import re

#: Texts of a device allocator that is out of memory, in its many disguises. cuBLAS and cuDNN say
#: that they could not be initialised when there is no room for their handle or workspace;
#: bitsandbytes prints the CUDA error with a line number. Triton's "out of resource: shared memory"
#: is about a kernel's block size and is none of them.
DEVICE_OOM = re.compile(
    r"(CUDA|HIP|XPU|MPS backend|NPU|HPU)( driver)?( error)?:? out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|error out of memory at"
    r"|(cudaMalloc|cuMemCreate|cuMemAlloc).{0,40}out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_(ALLOC_FAILED|INSUFFICIENT_RESOURCES)"
    r"|CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOC"
    r"|(CUBLAS|CUDNN|CUSOLVER)_STATUS_NOT_INITIALIZED|CUSOLVER_STATUS_ALLOC_FAILED"
    r"|NCCL.{0,200}out of memory|Tried to allocate .* GPU|OUT_OF_DEVICE_MEMORY",
    re.IGNORECASE | re.DOTALL,
)
#: Texts of a host allocator that is out of memory, pinned and shared memory included.
HOST_OOM = re.compile(
    r"DefaultCPUAllocator: (can't|not enough)|not enough memory: you tried to allocate"
    r"|Cannot allocate memory|std::bad_alloc|ArrayMemoryError|Unable to allocate|errno 12\b"
    r"|can't start new thread|malloc of size|realloc of size|unable to mmap \d+ bytes"
    r"|DataLoader worker .{0,60}killed by signal: (Killed|Bus error)|out of shared memory"
    r"|cudaHostAlloc.{0,40}out of memory|cudaErrorHostMemory",
    re.IGNORECASE | re.DOTALL,
)
REQUESTED = re.compile(r"you tried to allocate (\d+) bytes", re.IGNORECASE)
NO_GRADIENT = re.compile(r"does not require grad and does not have a grad_fn", re.IGNORECASE)
RECOMPUTE = re.compile(r"Recomputed values for the following tensors|CheckpointError")
DISK_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|errno (28|122)\b", re.IGNORECASE
)
UNSCALE = re.compile(r"unscale FP16 gradients", re.IGNORECASE)
#: Module of TRL's offloading context; an exception inside it is about that option alone.
OFFLOADING = re.compile(r"activation_offloading\.py|OffloadActivations|Backward pass should have")
#: Exceptions by which TRL and its libraries refuse a config.
INVALID_TYPES = ("ValueError", "TypeError", "ImportError", "ModuleNotFoundError", "BadInput")

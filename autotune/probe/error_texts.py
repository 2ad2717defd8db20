"""The texts and types by which libraries say what went wrong; data only, judged elsewhere.

Texts are looked for in a library's own words alone (`bare_words`), and only where the type of an
exception leaves it open what happened; see judge_memory.py and judge_failure.py.
"""

from __future__ import annotations

import errno
import re

#: Texts of a device allocator that is out of memory, in its many disguises. cuBLAS and cuDNN say
#: that they could not be initialised when there is no room for their handle or workspace;
#: bitsandbytes and flash-attn print the CUDA error with a line number and end the process.
DEVICE_OOM = re.compile(
    r"OutOfMemoryError|(CUDA|HIP|XPU|MPS backend|NPU|HPU)( driver)?( error)?:? out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|error out of memory at|CUDA error \(.{1,200}\): out of memory"
    r"|Error \[(CUDA|HIP)\]: out of memory"
    r"|(cudaMalloc|cuMemCreate|cuMemAlloc|hipMalloc).{0,40}out of memory"
    r"|(CU|HIP)(BLAS|SPARSE|SOLVER|FFT|DNN|RAND)_(STATUS_)?ALLOC(ATION)?_FAILED"
    r"|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES|rocblas_status_memory_error|miopenStatusAllocFailed"
    r"|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOC"
    r"|NCCL.{0,200}out of memory|Tried to allocate .* GPU|OUT_OF_DEVICE_MEMORY",
    re.IGNORECASE | re.DOTALL,
)
#: vLLM's engine refuses to start in these words, as a ValueError (v1/worker, v1/core).
ENGINE_OOM = re.compile(
    r"^Free memory on device .{0,80}less than desired GPU memory"
    r"|^No available memory for the cache"
    r"|KV cache is needed, which is larger than the available",
    re.DOTALL,
)
#: Failures that lack of memory often takes the form of and other faults too: torch's allocator
#: trips over its own books (``NVML_SUCCESS == r INTERNAL ASSERT FAILED``), a library finds no room
#: for its handle. They mean memory unless the device is known to have room. Looked for in the whole
#: text, since an assertion quotes the file it stands in.
OFTEN_MEMORY = re.compile(
    r"INTERNAL ASSERT FAILED at .{0,200}Caching(Device)?Allocator"
    r"|NVML_SUCCESS == r\w* INTERNAL ASSERT FAILED"
    r"|(CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS)_STATUS_NOT_INITIALIZED"
    r"|rocblas_status_invalid_handle",
    re.DOTALL,
)
#: Failures that other faults mostly take the form of. They mean memory only where the device is
#: known to be full.
SOMETIMES_MEMORY = re.compile(
    r"(CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS|MIOPEN)_?STATUS_"
    r"(INTERNAL_ERROR|EXECUTION_FAILED|NOT_SUPPORTED|MAPPING_ERROR|ARCH_MISMATCH)"
    r"|miopenStatus(InternalError|UnknownError)|unable to find an engine to execute"
    r"|(CUDA|HIP) error: (device not ready|unspecified launch failure|unknown error)"
    r"|Triton Error \[(CUDA|HIP)\]",
    re.IGNORECASE,
)
#: What torch's allocator of the device alone says, whatever function asked it.
DEVICE_ALLOCATOR = re.compile(r"OutOfMemoryError|Tried to allocate", re.IGNORECASE)
#: Host memory that is locked for copies; CUDA reports its lack in the words of the device.
PINNED = re.compile(r"pin_memory|pin memory|pinned|cudaHost(Alloc|Register)|on host:", re.I)
#: The same in the frames of a traceback.
PINNING = re.compile(r"\bpin_memory\b|cudaHost(Alloc|Register)")
#: Texts of a host allocator that is out of memory, pinned and shared memory included.
HOST_OOM = re.compile(
    r"DefaultCPUAllocator: (can't|not enough)|not enough memory: you tried to allocate"
    r"|\bMemoryError|Cannot allocate memory(?! in static TLS)|std::bad_alloc|Unable to allocate"
    r"|can't start new thread|(m|re|c)alloc of size|unable to mmap \d+ bytes"
    r"|DataLoader worker .{0,60}killed by signal: (Killed|Bus error)|out of shared memory"
    r"|unable to open shared memory object"
    r"|cudaHostAlloc.{0,40}out of memory|cudaErrorHostMemory|could not create a primitive: out"
    r"|OUT_OF_HOST_MEMORY",
    re.IGNORECASE | re.DOTALL,
)
#: What remains: somebody ran out of memory, in words not known before.
OUT_OF_MEMORY = re.compile(
    r"\b(out of|insufficient|not enough)( \w+)? memory\b(?! …)|\w*OUT_OF_MEMORY\b"
    r"|\bfailed to allocate\b.{0,60}\b(memory|bytes|[KMGT]i?B)\b",
    re.IGNORECASE,
)
#: A kernel's block is too large for the chip's on-chip memory; torch's compiler reports it as an
#: ``OutOfMemoryError`` too (Triton's ``OutOfResources``). No other batch size would help.
ON_CHIP = re.compile(r"^.*out of resource.*$", re.IGNORECASE | re.MULTILINE)
#: What a Rust library says of a system call that found no memory: an OSError without a number.
OS_OUT_OF_MEMORY = re.compile(r"^Cannot allocate memory\b(?! in static TLS)|\(os error 12\)")
#: Exceptions that are about something else whatever words they quote: a value, a name, a file.
#: RuntimeError and what libraries derive from Exception itself say anything.
NEVER_MEMORY = frozenset(
    (
        *("ValueError", "TypeError", "LookupError", "AttributeError", "NameError", "ImportError"),
        *("ArithmeticError", "AssertionError", "SyntaxError", "EOFError", "StopIteration"),
        "NotImplementedError",
    )
)
#: Faults outside the candidate that are often gone in the next process: the device busy or being
#: opened by somebody, a port taken by a neighbour, a connection between processes lost, a memory
#: cell that failed (ECC; the page is retired).
TRANSIENT = re.compile(
    r"CUDA(-capable device\(s\) is/are busy| error: initialization error)|CUDA driver init"
    r"|CUDA_ERROR_NOT_INITIALIZED|cudaErrorInitializationError|cudaErrorDevicesUnavailable"
    r"|uncorrectable ECC|cudaErrorECCUncorrectable"
    r"|Address already in use|EADDRINUSE"
    r"|Connection (reset|refused|closed|timed out)|Broken pipe|Stale (NFS )?file handle"
    r"|Text file busy|Resource temporarily unavailable|Interrupted system call"
    r"|NCCL.{0,200}(unhandled system error|remote (process exited|error)|timed? ?out)"
    r"|DataLoader worker .{0,60}exited unexpectedly|failed to connect to .{0,60}store",
    re.IGNORECASE | re.DOTALL,
)
#: The same as the system numbers them; a network file system among them.
TRANSIENT_ERRNOS = frozenset(
    (
        *(errno.EINTR, errno.EAGAIN, errno.ETXTBSY, errno.EADDRINUSE, errno.ECONNRESET),
        *(errno.EPIPE, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.ESTALE, errno.EREMOTEIO),
    )
)
#: A compiler's cache, whose files a neighbour may have cleaned away.
COMPILER_CACHE = re.compile(r"triton|inductor|\.cubin", re.IGNORECASE)
DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT))
#: Folders that are memory: what is full there is the host's.
SHARED_MEMORY = re.compile(r"/dev/shm|/torch_\d")
REQUESTED = re.compile(r"you tried to allocate (\d+) bytes", re.IGNORECASE)
NO_GRADIENT = re.compile(r"does not require grad and does not have a grad_fn", re.IGNORECASE)
RECOMPUTE = re.compile(
    r"Recomputed values for the following tensors|CheckpointError"
    r"|tensors (was saved )?during (the original forward and )?recomputation"
)
#: Placeholders of images, sound or video in the text that its cut has taken away, while what they
#: stand for is still there whole (transformers' models and processors, and TRL's trainers).
MEDIA_CUT = re.compile(
    r"(image|video|audio|multimodal) features and .{0,30}tokens do not match"
    r"|mismatch in `\w+` token count"
    r"|placeholder tokens \(\d+\) and features \(\d+\) do not match"
    r"|is too short and causes image placeholder tokens",
    re.IGNORECASE,
)
#: Attention code that a model does not have, or that does not work here (transformers).
ATTENTION = re.compile(
    r"flash[ _]?attention.{0,3} has been toggled on|does not support (an )?attention"
    r"|does not support flash|scaled_dot_product_attention.{0,40} yet"
    r"|attn_implementation|flash_attn|flex_attention",
    re.IGNORECASE,
)
#: Frames and words of Liger's kernels.
LIGER = re.compile(r"liger", re.IGNORECASE)
DISK_FULL = re.compile(
    r"No space left on device|Disk quota exceeded"
    r"|PytorchStreamWriter failed writing",  # torch.save where the disk takes no more
    re.IGNORECASE,
)
UNSCALE = re.compile(
    r"unscale FP16 gradients|check_and_unscale\w*. not implemented for", re.IGNORECASE
)
#: Module of TRL's offloading context; an exception inside it is about that option alone.
OFFLOADING = re.compile(r"activation_offloading\.py|OffloadActivations|Backward pass should have")
#: Exceptions by which TRL and its libraries refuse a config.
INVALID_TYPES = (
    "ValueError",
    "TypeError",
    "NotImplementedError",
    "ImportError",
    "ModuleNotFoundError",
    "NoMatchingPeftModuleError",
    "BadInput",
)

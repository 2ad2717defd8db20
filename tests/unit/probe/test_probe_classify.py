"""How probes end: the many disguises of memory, and what must not be taken for it."""

# ruff: noqa: E501  (error texts stand as the libraries write them)

from __future__ import annotations

import signal
from typing import Any

import pytest

from autotune.core.measurement import ProbeReport
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.probe.classify import classify, is_transient, starved
from autotune.probe.judge_run import spilled_by_time
from autotune.probe.observed import Observed
from autotune.probe.protocol import Failure, Raised
from tests.support.facts import GIB, MIB, ending_of, measurement_of, step_of

CPU_OOM = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)"
)


def seen(failure: Failure | None = None, **changes: Any) -> Observed:
    plain: dict[str, Any] = {
        "failure": failure,
        "measurement": None,
        "code": 0 if failure is None else 1,
        "timed_out": False,
        "deadline_s": 120.0,
        "peak_rss_bytes": 3 * GIB,
        "host_total_bytes": 16 * GIB,
        "cap_bytes": 4 * GIB,
        "device": "cuda:0",
    }
    return Observed(**{**plain, **changes})


def raised(type_name: str, message: str, **changes: Any) -> Failure:
    plain: dict[str, Any] = {
        "traceback": f"Traceback\n{type_name}: {message}",
        "phase": Phase.STEADY,
    }
    return Failure(type_name=type_name, message=message, **{**plain, **changes})


def ended(failure: Failure | None = None, **changes: Any) -> Ending:
    return classify(seen(failure, **changes))[0]


DEVICE_OOM = {
    "torch's own": ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."),
    "the older class": ("torch.cuda.OutOfMemoryError", "CUDA out of memory."),
    "any class of that name (BC13)": ("torch.OutOfMemoryError", "from a fake optimizer"),
    "the plain runtime error": ("builtins.RuntimeError", "CUDA error: out of memory\nCUDA kernel errors might be"),
    "an accelerator error": ("torch.AcceleratorError", "CUDA error: out of memory"),
    "the driver": ("builtins.RuntimeError", "CUDA driver error: out of memory"),
    "the driver's code": ("builtins.RuntimeError", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    "cuBLAS": ("builtins.RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuBLAS without room for its handle": ("builtins.RuntimeError", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    "cuDNN": ("builtins.RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cuDNN without room for its handle": ("builtins.RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    "bitsandbytes": ("builtins.RuntimeError", "Error out of memory at line 380 in file /src/csrc/pythonInterface.c"),
    "NCCL": ("torch.distributed.DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"),
    "ROCm": ("builtins.RuntimeError", "HIP out of memory. Tried to allocate 20.00 MiB"),
    "Apple": ("builtins.RuntimeError", "MPS backend out of memory (MPS allocated: 18.00 GB)"),
    "cuFFT": ("builtins.RuntimeError", "cuFFT error: CUFFT_ALLOC_FAILED"),
    "hipBLAS": ("builtins.RuntimeError", "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"),
    "HIP's own": ("builtins.RuntimeError", "HIP error: out of memory"),
    "Triton": ("builtins.RuntimeError", "Triton Error [CUDA]: out of memory"),
    "a raw allocation": ("builtins.RuntimeError", "cudaMallocAsync failed with out of memory"),
    "an engine that asks first": ("builtins.ValueError", "Free memory on device (3.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)."),
    "an engine without a cache": ("builtins.ValueError", "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    "words nobody heard before": ("some.lib.KernelFailure", "the fused kernel is out of memory"),
    "more such words": ("builtins.RuntimeError", "insufficient device memory for the workspace"),
    "a code alone": ("builtins.RuntimeError", "cuMemMap: CUDA_OUT_OF_MEMORY"),
    "a failed allocation": ("builtins.RuntimeError", "Failed to allocate 2097152 bytes for the workspace"),
    "Intel": ("builtins.RuntimeError", "XPU out of memory. Tried to allocate 2 GiB"),
}  # fmt: skip


@pytest.mark.parametrize("disguise", DEVICE_OOM)
def test_a_device_out_of_memory_is_known_in_its_disguise(disguise: str) -> None:
    ending, needed = classify(seen(raised(*DEVICE_OOM[disguise], phase=Phase.OPTIMIZER_STEP)))
    assert ending.outcome is Outcome.OOM_DEVICE
    assert ending.phase is Phase.OPTIMIZER_STEP
    assert ending.detail
    assert needed is not None
    assert needed >= 4 * GIB


HOST_OOM = {
    "torch's CPU allocator (BC14)": ("builtins.RuntimeError", CPU_OOM),
    "its Windows text": ("builtins.RuntimeError", "DefaultCPUAllocator: not enough memory: you tried to allocate 1024 bytes."),
    "Python": ("builtins.MemoryError", ""),
    "numpy": ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 8.00 GiB for an array"),
    "the system": ("builtins.OSError", "[Errno 12] Cannot allocate memory"),
    "C++": ("builtins.RuntimeError", "std::bad_alloc"),
    "threads": ("builtins.RuntimeError", "can't start new thread"),
    "Arrow": ("pyarrow.lib.ArrowMemoryError", "malloc of size 1073741824 failed"),
    "mapped files": ("builtins.RuntimeError", "unable to mmap 4294967296 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
    "numpy's shorter text": ("numpy.exceptions.MemoryError", "cannot allocate array"),
    "pinned memory in the device's words (BC49)": ("builtins.RuntimeError", "Caught RuntimeError in pin memory thread for device 0.\nRuntimeError: CUDA error: out of memory"),
    "Intel's driver": ("builtins.RuntimeError", "level_zero backend failed with error: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)"),
    "a full /dev/shm": ("builtins.RuntimeError", "unable to write to file </torch_4242_1>: No space left on device (28)"),
    "a data loader's worker": ("builtins.RuntimeError", "DataLoader worker (pid(s) 4242) is killed by signal: Killed. "),
    "shared memory": ("builtins.RuntimeError", "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."),
}  # fmt: skip


@pytest.mark.parametrize("disguise", HOST_OOM)
def test_a_host_out_of_memory_is_known_in_its_disguise(disguise: str) -> None:
    assert ended(raised(*HOST_OOM[disguise])).outcome is Outcome.OOM_HOST


def test_what_the_allocator_was_asked_for_is_a_bound_of_what_is_needed() -> None:
    assert classify(seen(raised("builtins.RuntimeError", CPU_OOM)))[1] == 8 * GIB
    assert classify(seen(raised("builtins.RuntimeError", CPU_OOM), cap_bytes=None))[1] == 8 * GIB
    assert classify(seen(raised("builtins.MemoryError", ""), cap_bytes=None))[1] is None


def test_a_memory_ending_says_the_cap_and_how_far_it_came() -> None:
    # BC13: the second full step, whatever the accumulation.
    failure = raised("torch.OutOfMemoryError", "CUDA out of memory.", step=6)
    assert "4.00 GiB after 6 micro-steps" in ended(failure).reason


NOT_MEMORY = {
    "a wrong config (BC40)": (Outcome.INVALID, "builtins.ValueError", "When `padding_free=True` without packing, `max_length` is not enforced."),
    "a missing library (BC38)": (Outcome.INVALID, "builtins.ImportError", "bitsandbytes is not installed"),
    "layers PEFT does not find": (Outcome.INVALID, "peft.utils.error.NoMatchingPeftModuleError", "Target modules {'w'} not found in the base model."),
    "no gradient (BC09)": (Outcome.INVALID, "builtins.RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"),
    "fp16 weights (BC19)": (Outcome.INVALID, "builtins.ValueError", "Attempting to unscale FP16 gradients."),
    "bf16 weights under fp16 (BC19)": (Outcome.INVALID, "builtins.NotImplementedError", "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"),
    "recomputation of fewer tensors (BC44)": (Outcome.INVALID, "builtins.RuntimeError", "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation."),
    "recomputation of more tensors (BC44)": (Outcome.INVALID, "builtins.RuntimeError", "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward pass."),
    "recomputation (BC44)": (Outcome.INVALID, "torch.utils.checkpoint.CheckpointError", "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass."),
    "a failed assertion": (Outcome.CRASHED, "builtins.RuntimeError", "CUDA error: device-side assert triggered"),
    "an illegal access": (Outcome.CRASHED, "torch.AcceleratorError", "CUDA error: an illegal memory access was encountered"),
    "Triton's shared memory": (Outcome.CRASHED, "triton.runtime.errors.OutOfResources", "out of resource: shared memory, Required: 131072, Hardware limit: 101376."),
    "Triton's shared memory in the words of torch's compiler": (Outcome.CRASHED, "torch._inductor.exc.InductorError", "RuntimeError: No valid triton configs. OutOfMemoryError: out of resource: triton_tem_fused_0 Required: 107008 Hardware limit:101376"),
    "its class alone": (Outcome.CRASHED, "torch.OutOfMemoryError", "out of resource: shared memory, Required: 131072, Hardware limit: 101376"),
    "several visible devices (BC11)": (Outcome.INVALID, "builtins.ValueError", "SFTTrainer does not support training with nn.DataParallel. Use torchrun or accelerate."),
    "a full disk (BC26)": (Outcome.CRASHED, "builtins.OSError", "[Errno 28] No space left on device"),
    "torch.save on a full disk": (Outcome.CRASHED, "builtins.RuntimeError", "[enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file data/13: file write failed"),
    "a full quota": (Outcome.CRASHED, "builtins.OSError", "[Errno 122] Disk quota exceeded"),
    "a failed connection": (Outcome.CRASHED, "builtins.OSError", "[Errno 121] Remote I/O error"),
    "a shape": (Outcome.CRASHED, "builtins.RuntimeError", "The size of tensor a (3) must match the size of tensor b (4)"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_MEMORY)
def test_what_is_not_about_memory_is_not_called_memory(case: str) -> None:
    outcome, type_name, message = NOT_MEMORY[case]
    ending, needed = classify(seen(raised(type_name, message)))
    assert outcome is ending.outcome
    assert needed is None
    assert message.splitlines()[0].split("`")[0][:20] in ending.reason + ending.detail


def test_no_gradient_names_use_reentrant() -> None:
    words = "element 0 of tensors does not require grad and does not have a grad_fn"
    reason = ended(raised("builtins.RuntimeError", words)).reason
    assert "no gradient reached" in reason
    assert "use_reentrant" in reason


MISMATCH = (
    "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata"
)
#: What a failure of each kind is known to be of.
CAUSES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "no gradient (BC09)": (
        "builtins.RuntimeError",
        "element 0 of tensors does not require grad and does not have a grad_fn",
        ("gradient_checkpointing", "peft"),
    ),
    "fp16 (BC19)": (
        "builtins.ValueError",
        "Attempting to unscale FP16 gradients.",
        ("dtype", "peft", "quantization"),
    ),
    "images that are cut (BC35)": (
        "builtins.ValueError",
        "Image features and image tokens do not match, tokens: 28, features: 256",
        ("max_length",),
    ),
    "images that are cut, as a processor says it (BC35)": (
        "builtins.ValueError",
        "Mismatch in `image` token count between text and `input_ids`. Got ids=[8] and text=[9].",
        ("max_length",),
    ),
    "images that are cut, as TRL says it (BC35)": (
        "builtins.ValueError",
        "The current `max_length` (36) is too short and causes image placeholder tokens in "
        "`input_ids` to be truncated, while the corresponding image features remain intact.",
        ("max_length",),
    ),
    "Liger and a loss (BC39)": (
        "builtins.ValueError",
        "Unsupported loss type for LigerFusedLinearGRPOLoss: dapo",
        ("use_liger_kernel",),
    ),
    "attention that is not installed": (
        "builtins.ImportError",
        "FlashAttention3 has been toggled on, but it cannot be used due to the following error",
        ("attn_implementation",),
    ),
    "attention the model has not": (
        "builtins.ValueError",
        "Own does not support an attention implementation through sdpa yet.",
        ("attn_implementation",),
    ),
    "recomputation (BC44)": ("builtins.RuntimeError", MISMATCH, ("gradient_checkpointing",)),
    "anything else": ("builtins.ValueError", "no such thing", ()),
}


@pytest.mark.parametrize("case", CAUSES)
def test_a_failure_names_the_knobs_it_is_known_to_be_of(case: str) -> None:
    type_name, message, causes = CAUSES[case]
    ending = ended(raised(type_name, message))
    assert (Outcome.INVALID, causes) == (ending.outcome, ending.causes)


def test_cut_images_are_said_to_be_a_length_that_is_too_short() -> None:
    # BC35
    words = "Image features and image tokens do not match, tokens: 28, features: 256"
    assert "max_length too short for images" in ended(raised("builtins.ValueError", words)).reason


@pytest.mark.parametrize(
    ("variant", "words"),
    [("full", "full (use_reentrant false)"), ("selective", "selective")],
)
def test_recomputation_that_differs_names_the_variant(variant: str, words: str) -> None:
    # BC44
    failure = raised("torch.utils.checkpoint.CheckpointError", MISMATCH)
    reason = ended(failure, checkpointing=variant).reason
    assert f"gradient checkpointing variant {words} cannot be used with this model" in reason


def test_adapters_a_reentrant_checkpoint_leaves_without_gradient_are_no_success() -> None:
    # BC09, the quiet variant: the loss falls, and some layers stay exactly zero.
    quiet = measurement_of(trained_modules=4, unreached_modules=("layers.0.q_proj.lora",))
    ending = ended(measurement=quiet, checkpointing="reentrant")
    assert Outcome.INVALID is ending.outcome
    assert "1 of 4 trained modules, such as the adapter of layers.0.q_proj" in ending.reason
    assert "use_reentrant" in ending.reason
    # Layers the model does not use are no fault of a variant that loses no gradient.
    assert Outcome.FITS is ended(measurement=quiet, checkpointing="full").outcome
    routed = measurement_of(trained_modules=4, unreached_modules=("layers.0.experts.3.up.lora",))
    assert Outcome.FITS is ended(measurement=routed, checkpointing="reentrant").outcome


def test_fp16_unscaling_says_what_fp16_needs() -> None:
    words = "Attempting to unscale FP16 gradients."
    assert "fp32" in ended(raised("builtins.ValueError", words)).reason


def test_a_full_disk_is_said_as_such() -> None:
    words = "[Errno 28] No space left on device: 'x.safetensors'"
    assert "the disk is full" in ended(raised("builtins.OSError", words)).reason


def test_a_failure_inside_the_offloading_context_is_about_that_option() -> None:
    # BC42: on a CPU, and when a backward pass left its bookkeeping behind.
    trace = 'File "trl/models/activation_offloading.py", line 152, in __init__\nAttributeError: x'
    on_cpu = raised(
        "builtins.AttributeError", "'NoneType' object has no attribute 'type'", traceback=trace
    )
    left = raised("builtins.ValueError", "Backward pass should have cleared tracker of all tensors")
    for failure in (on_cpu, left):
        assert ended(failure).outcome is Outcome.INVALID
        assert ended(failure).reason.startswith("activation_offloading failed")
    full = raised("torch.OutOfMemoryError", "CUDA out of memory.", traceback=trace)
    assert ended(full).outcome is Outcome.OOM_DEVICE


def test_signal_9_is_likely_host_memory_and_shows_the_peak() -> None:
    # BC14
    ending = ended(code=-signal.SIGKILL)
    assert ending.outcome is Outcome.OOM_HOST
    assert ending.reason.startswith("killed (likely host memory) at 3.00 GiB of 16.00 GiB")
    assert "activation_offloading and dataloader_num_workers" in ending.reason


@pytest.mark.parametrize("code", [-signal.SIGKILL, 128 + signal.SIGKILL])
def test_a_shell_reports_a_signal_as_128_and_its_number(code: int) -> None:
    assert ended(code=code).outcome is Outcome.OOM_HOST


def test_an_abort_after_bad_alloc_is_host_memory_and_another_abort_is_a_crash() -> None:
    tail = (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what(): std::bad_alloc"
    )
    assert ended(code=-signal.SIGABRT, log_tail=tail).outcome is Outcome.OOM_HOST
    assert ended(code=-signal.SIGABRT, log_tail="assertion failed").outcome is Outcome.CRASHED
    assert "SIGSEGV" in ended(code=-signal.SIGSEGV).reason
    # A code above 128 that no signal with a name has, as programs end with too.
    assert "signal 40" in ended(code=168).reason


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_probe_that_was_asked_to_end_is_interrupted(number: signal.Signals) -> None:
    assert ended(code=-number).outcome is Outcome.INTERRUPTED


def test_the_deadline_is_a_timeout_whatever_else_was_seen() -> None:
    ending = ended(code=-signal.SIGKILL, timed_out=True, log_tail="std::bad_alloc")
    assert ending.outcome is Outcome.TIMEOUT
    assert "2 min" in ending.reason


def test_an_end_without_an_answer_is_a_crash_with_the_last_words() -> None:
    ending = ended(code=3, log_tail="goodbye")
    assert ending.outcome is Outcome.CRASHED
    assert "code 3" in ending.reason
    assert ending.detail == "goodbye"


def test_a_probe_that_trained_fits() -> None:
    assert ended(measurement=measurement_of()).outcome is Outcome.FITS


NEVER_A_SUCCESS: dict[str, tuple[Outcome, dict[str, Any]]] = {
    "no step": (Outcome.INVALID, {"memory_steps": ()}),
    "no label": (
        Outcome.INVALID,
        {"memory_steps": (step_of(label_tokens=0),), "timed_steps": (step_of(label_tokens=0),)},
    ),
    "a zero gradient": (Outcome.INVALID, {"grad_norms": (0.0, 0.0)}),
    "a loss that is not finite": (Outcome.NON_FINITE, {"timed_steps": (step_of(loss=None),)}),
    "a gradient that is not finite": (Outcome.NON_FINITE, {"grad_norms": (1.0, None)}),
}


@pytest.mark.parametrize("case", NEVER_A_SUCCESS)
def test_what_did_not_train_never_fits(case: str) -> None:
    outcome, changes = NEVER_A_SUCCESS[case]
    assert outcome is ended(measurement=measurement_of(**changes)).outcome


def test_a_peak_above_the_device_has_spilled_without_an_exception() -> None:
    # BC49: 30 GB reserved on a card of 16 GB.
    measured = measurement_of(peaks=Peaks(reserved_bytes=30 * GIB, allocated_bytes=29 * GIB))
    ending, needed = classify(seen(measurement=measured, device_total_bytes=16 * GIB))
    assert ending.outcome is Outcome.SPILLED
    assert needed == 30 * GIB
    unknown = ended(measurement=measured, device_total_bytes=None, cap_bytes=None)
    assert unknown.outcome is Outcome.FITS


def test_a_gpu_peak_above_the_cap_does_not_fit_although_the_allocator_kept_to_it() -> None:
    # Kernels and libraries take memory beside the allocator, which the cap cannot hold.
    measured = measurement_of(peaks=Peaks(reserved_bytes=4 * GIB, process_bytes=5 * GIB))
    ending, needed = classify(seen(measurement=measured, cap_bytes=4 * GIB))
    assert ending.outcome is Outcome.OOM_DEVICE
    assert needed == 5 * GIB


def test_steps_ten_times_slower_than_others_of_their_shape_have_spilled() -> None:
    normal = [measurement_of(timed_steps=tuple(step_of(width=w, seconds=w / 640) for w in (64, 128, 256))) for _ in range(2)]  # fmt: skip
    slow = measurement_of(
        timed_steps=(step_of(width=128, seconds=8.0), step_of(width=64, seconds=4.0))
    )
    wide = measurement_of(timed_steps=(step_of(width=4096, seconds=6.4),))
    ending = spilled_by_time(slow, normal)
    assert ending is not None
    assert ending.outcome is Outcome.SPILLED
    assert "40 times" in ending.reason
    assert spilled_by_time(wide, normal) is None, "it is wide, not slow"
    assert spilled_by_time(slow, normal[:1]) is None, "one other says nothing"


def test_memory_missing_on_a_polluted_device_is_not_the_candidates_fault() -> None:
    # BC21
    failure = raised("torch.OutOfMemoryError", "CUDA out of memory.")
    ending, needed = classify(seen(failure, surplus_bytes=2 * GIB))
    assert ending.outcome is Outcome.POLLUTED
    assert "2.00 GiB" in ending.reason
    assert needed is None
    fits = ended(measurement=measurement_of(), surplus_bytes=2 * GIB)
    assert fits.outcome is Outcome.FITS


def test_a_crash_is_put_down_to_the_cap_when_the_candidate_needs_more() -> None:
    crash = ProbeReport(
        ending=ending_of(Outcome.CRASHED, "RuntimeError: could not create a primitive")
    )
    runs = ProbeReport(
        ending=ending_of(Outcome.FITS),
        measurement=measurement_of(peaks=Peaks(process_bytes=200 * MIB)),
    )
    found = starved(crash, runs, 150 * MIB)
    assert found.ending.outcome is Outcome.OOM_HOST
    assert found.needed_bytes == 200 * MIB
    assert "could not create a primitive" in found.ending.reason
    assert starved(crash, runs, 300 * MIB) == crash, "it needs far less than it had"
    assert starved(crash, crash, 150 * MIB) == crash, "it crashes without a cap too"
    device = measurement_of(peaks=Peaks(reserved_bytes=200 * MIB))
    on_gpu = starved(crash, runs.model_copy(update={"measurement": device}), 150 * MIB)
    assert on_gpu.ending.outcome is Outcome.OOM_DEVICE


def test_memory_that_ran_out_behind_another_exception_is_found_in_the_chain() -> None:
    chain = (
        Raised(types=("builtins.KeyError", "builtins.LookupError"), message="'step'"),
        Raised(types=("torch.OutOfMemoryError", "builtins.RuntimeError"), message="CUDA is full"),
    )
    failure = raised("builtins.KeyError", "'step'", chain=chain)
    assert ended(failure).outcome is Outcome.OOM_DEVICE
    printed = raised(
        "builtins.KeyError", "'step'", traceback="torch.OutOfMemoryError: CUDA is full"
    )
    assert ended(printed).outcome is Outcome.CRASHED, "a traceback's text decides nothing"


#: Words of memory in what is quoted: names of files and keys, and exceptions about other things.
QUOTED = {
    "a value that quotes a file": ("builtins.ValueError", "cannot read 'my out of memory notes.json'"),
    "a file that is missing": ("builtins.FileNotFoundError", "[Errno 2] No such file or directory: 'rows/out of memory.json'"),
    "a file that is forbidden": ("builtins.PermissionError", "[Errno 13] Permission denied: '/data/CUDA out of memory/x.json'"),
    "a folder in a runtime error": ("builtins.RuntimeError", "cannot open /data/out_of_memory/rows.jsonl for reading"),
    "a file in a runtime error": ("builtins.RuntimeError", "unexpected end of oom_out_of_memory.safetensors"),
    "a key": ("builtins.KeyError", "'out of memory'"),
    "a column": ("some.lib.ColumnMissing", "no column 'CUDA out of memory' in the rows"),
    "a column in a runtime error": ("builtins.RuntimeError", 'unknown feature "MemoryError"; known: "text"'),
    "a type": ("builtins.TypeError", "out of memory is not a number"),
    "a missing library": ("builtins.ImportError", "libgomp.so.1: cannot allocate memory in static TLS block"),
    "the same from the loader": ("builtins.OSError", "libgomp.so.1: cannot allocate memory in static TLS block"),
    "two devices": ("builtins.RuntimeError", "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
    "a library's own number": ("builtins.RuntimeError", "job errno 12 of 40 failed"),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTED)
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_words_of_memory_in_a_name_or_a_key_are_not_lack_of_memory(case: str, device: str) -> None:
    ending, needed = classify(seen(raised(*QUOTED[case]), device=device))
    assert ending.outcome in (Outcome.CRASHED, Outcome.INVALID)
    assert needed is None


@pytest.mark.parametrize(
    "log_tail",
    [
        "reading 'my out of memory notes.json'\nError: no such file",
        "training on rows about running out of memory\nSegmentation fault",
        "FileNotFoundError: [Errno 2] No such file or directory: '/x/CUDA out of memory.json'",
    ],
)
def test_a_log_that_quotes_words_of_memory_is_no_lack_of_it(log_tail: str) -> None:
    assert ended(code=1, log_tail=log_tail).outcome is Outcome.CRASHED


ALLOCATOR_ASSERT = (
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED at "
    '"/pytorch/c10/cuda/CUDACachingAllocator.cpp":1131, please report a bug to PyTorch.'
)
STATUSES = (
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if the input is not contiguous",
    "cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED, when calling `cusolverDnSgesvdj`",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`",
    "CUDA error: device not ready",
)


def test_an_allocator_that_trips_over_its_books_is_memory_unless_there_is_room() -> None:
    def outcome(device_full: bool | None) -> Outcome:
        failure = raised("builtins.RuntimeError", ALLOCATOR_ASSERT, device_full=device_full)
        return ended(failure).outcome

    assert outcome(None) is Outcome.OOM_DEVICE
    assert outcome(True) is Outcome.OOM_DEVICE
    assert outcome(False) is Outcome.CRASHED


@pytest.mark.parametrize("status", STATUSES)
def test_a_librarys_status_is_memory_only_on_a_device_that_is_full(status: str) -> None:
    full = raised("builtins.RuntimeError", status, device_full=True)
    assert ended(full).outcome is Outcome.OOM_DEVICE
    assert status in ended(full).detail, "the original text is kept"
    for known in (None, False):
        failure = raised("builtins.RuntimeError", status, device_full=known)
        assert ended(failure).outcome is Outcome.CRASHED, "worth a second look without the cap"


def test_a_crash_whose_second_look_runs_out_of_memory_is_lack_of_memory() -> None:
    crash = ProbeReport(ending=ending_of(Outcome.CRASHED, "RuntimeError: CUDNN_STATUS"))
    full = ProbeReport(ending=ending_of(Outcome.OOM_DEVICE, "the device ran out of memory"))
    found = starved(crash, full, 150 * MIB)
    assert found.ending.outcome is Outcome.OOM_DEVICE
    assert "CUDNN_STATUS" in found.ending.reason
    assert found.needed_bytes == 150 * MIB


def test_pinned_memory_is_the_hosts_whatever_the_words() -> None:
    # BC49: under WSL it is short; the device is not full.
    trace = (
        'Traceback\n  File "torch/utils/data/_utils/pin_memory.py", line 74\n    x.pin_memory()\n'
    )
    failure = raised("torch.AcceleratorError", "CUDA error: out of memory", traceback=trace)
    assert ended(failure).outcome is Outcome.OOM_HOST
    words = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB."
    device = raised("torch.OutOfMemoryError", words, traceback=trace)
    assert ended(device).outcome is Outcome.OOM_DEVICE, "its allocator speaks for the device"


def test_on_a_cpu_unknown_words_for_missing_memory_mean_the_hosts() -> None:
    failure = raised("some.lib.KernelFailure", "out of memory")
    assert ended(failure, device="cpu").outcome is Outcome.OOM_HOST


PRINTED = {
    "flash-attn": "CUDA error (/src/hopper/flash_fwd_launch_template.h:188): out of memory",
    "bitsandbytes": "Error out of memory at line 380 in file /src/csrc/ops.cu",
}


@pytest.mark.parametrize("library", PRINTED)
def test_a_library_that_prints_the_error_and_ends_the_process_is_heard(library: str) -> None:
    ending, needed = classify(seen(code=1, log_tail=PRINTED[library], phase=Phase.STEADY, step=3))
    assert (Outcome.OOM_DEVICE, Phase.STEADY) == (ending.outcome, ending.phase)
    assert ending.reason == "the device ran out of memory after 3 micro-steps (exit code 1)"
    assert needed == 4 * GIB


@pytest.mark.parametrize(
    "end", [{"code": -signal.SIGKILL}, {"code": -signal.SIGSEGV}, {"timed_out": True}]
)
def test_whoever_is_killed_is_placed_in_the_phase_it_told_of_last(end: dict[str, Any]) -> None:
    ending = ended(**end, phase=Phase.OPTIMIZER_STEP, step=2)
    assert ending.phase is Phase.OPTIMIZER_STEP
    assert ended(**end).phase is Phase.LOAD, "it told of nothing"


def test_a_killed_process_says_how_far_it_came_and_a_hanging_one_too() -> None:
    for end in ({"code": -signal.SIGKILL}, {"timed_out": True}):
        assert "after 2 micro-steps" in ended(**end, phase=Phase.STEADY, step=2).reason


def test_a_peak_above_what_was_free_has_spilled_although_the_device_is_larger() -> None:
    # BC49
    measured = measurement_of(peaks=Peaks(reserved_bytes=12 * GIB))
    found = seen(
        measurement=measured,
        cap_bytes=None,
        device_total_bytes=16 * GIB,
        device_free_bytes=10 * GIB,
    )
    assert classify(found)[0].outcome is Outcome.SPILLED
    assert "10.00 GiB that were free" in classify(found)[0].reason


def test_feasibility_is_judged_by_what_the_driver_charges() -> None:
    # BC12: allocated 6.0, reserved 7.5, process 8.1, used 11 of 12 with 2.9 of others.
    peaks = Peaks(
        allocated_bytes=6 * GIB,
        reserved_bytes=int(7.5 * GIB),
        process_bytes=int(8.1 * GIB),
        device_used_bytes=11 * GIB,
    )
    device: dict[str, Any] = {
        "device_total_bytes": 12 * GIB,
        "device_free_bytes": int(9.1 * GIB),
        "measurement": measurement_of(peaks=peaks),
    }
    assert ended(**device, cap_bytes=int(9.1 * 0.95 * GIB)).outcome is Outcome.FITS
    assert ended(**device, cap_bytes=8 * GIB).outcome is Outcome.OOM_DEVICE


GROWING = tuple(int((5.0 + 0.3 * i) * GIB) for i in range(20))


def test_memory_that_grows_from_update_to_update_is_not_safe() -> None:
    # BC43: 5.0, 5.3, 5.6, 5.9 ... is not declared safe from its first steps.
    grown = ended(measurement=measurement_of(update_peaks_bytes=GROWING), cap_bytes=None)
    assert grown.outcome is Outcome.INVALID
    assert "memory is still growing after 20 updates" in grown.reason
    steady = measurement_of(update_peaks_bytes=(6 * GIB,) * 20)
    assert ended(measurement=steady, cap_bytes=None).outcome is Outcome.FITS


FAULTS = {
    "a busy device": ("torch.AcceleratorError", "CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    "a device being opened": ("builtins.RuntimeError", "CUDA error: initialization error"),
    "a driver not ready": ("builtins.RuntimeError", "CUDA driver initialization failed, you might not have a CUDA gpu."),
    "a failed memory cell": ("torch.AcceleratorError", "CUDA error: uncorrectable ECC error encountered"),
    "a port in use": ("builtins.OSError", "[Errno 98] Address already in use"),
    "a port in torch's words": ("torch.distributed.DistNetworkError", "The server socket has failed to listen on any local network address. port: 29500, EADDRINUSE"),
    "a lost neighbour": ("torch.distributed.DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error"),
    "a lost connection": ("builtins.ConnectionResetError", "[Errno 104] Connection reset by peer"),
    "a network file system": ("builtins.OSError", "[Errno 116] Stale file handle"),
    "a cache a neighbour cleans": ("builtins.FileNotFoundError", "[Errno 2] No such file or directory: '/home/u/.triton/cache/x'\n.triton/cache: No such file or directory"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_may_be_gone_is_known_as_such_and_is_never_memory(fault: str) -> None:
    ending = ended(raised(*FAULTS[fault]))
    assert ending.outcome is Outcome.CRASHED
    assert is_transient(ProbeReport(ending=ending))


@pytest.mark.parametrize("case", [case for case in NOT_MEMORY if case != "a failed connection"])
def test_what_is_wrong_with_a_candidate_is_no_transient_fault(case: str) -> None:
    _, type_name, message = NOT_MEMORY[case]
    assert not is_transient(ProbeReport(ending=ended(raised(type_name, message))))

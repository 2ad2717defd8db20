"""What a CUDA step does otherwise than the CPU step that is traced: one named rule each.

A trace runs TRL's code with the CPU as its device. Where that code, or the kernels below it, do
otherwise on CUDA, a rule makes the trace do what CUDA would. None applies to a CPU target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core import cuda_memory
from autotune.predict import composites
from autotune.predict.attention import flash_kernels, workspace_bytes
from autotune.predict.autocast import cuda_autocast, fp16_autocast
from autotune.predict.follow import Follow
from autotune.predict.offload import offloading
from autotune.predict.patching import replaced
from autotune.predict.quantised_products import products_in_4bit, products_in_8bit

Options = Mapping[str, Any]
Applied = Callable[[Follow], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class TargetRule:
    """One difference between a CUDA step and a CPU step.

    Args:
        name: what it is called.
        says: the difference, one sentence for the notes.
        concerns: whether it matters under these options.
        applied: makes a trace follow CUDA while it is entered.
    """

    name: str
    says: str
    concerns: Callable[[Options], bool]
    applied: Applied


def rules_for(target: str, options: Options) -> tuple[TargetRule, ...]:
    """Return the rules a trace needs.

    Args:
        target: ``cpu`` or ``cuda``.
        options: final TRL options.
    """
    return () if target == "cpu" else tuple(r for r in RULES if r.concerns(options))


@contextlib.contextmanager
def applied(rules: Sequence[TargetRule], follow: Follow) -> Iterator[None]:
    """Make a trace follow CUDA.

    Args:
        rules: from `rules_for`.
        follow: the mode of the trace.
    """
    with contextlib.ExitStack() as stack:
        for rule in rules:
            stack.enter_context(rule.applied(follow))
        yield


def is_flash(options: Options) -> bool:
    """Whether the attention is FlashAttention's own library or a hub kernel of it."""
    return "flash" in str(options.get("attn_implementation") or "")


# -- TRL's fused head on Triton devices -----------------------------------------------------------


class _Kernel:
    """Stand for a Triton kernel that folds a tile of logits without a copy of it."""

    def __init__(self, follow: Follow, writes: bool) -> None:
        self._follow, self._writes = follow, writes

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._run

    def _run(self, tile: Any, *_: Any, **__: Any) -> None:
        size = tile.numel() * tile.element_size()
        kind: Any = "elementwise" if self._writes else "reduction"
        self._follow.count(kind, tile.dtype, tile.numel(), size * (1 + self._writes))


class _Triton:
    """Stand for the module ``triton``, of which the caller only divides."""

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)


@contextlib.contextmanager
def _triton_head(follow: Follow) -> Iterator[None]:
    from trl.kernels import chunked_logprob
    from trl.trainer import utils

    def accumulate(acc: Any, a: Any, b: Any) -> None:
        # ``addmm`` with an fp32 result: no operand is copied to fp32, as it is on the CPU
        moved = sum(t.numel() * t.element_size() for t in (a, b, acc, acc))
        follow.count("matmul", a.dtype, 2 * a.shape[0] * a.shape[1] * b.shape[1], moved)

    def yes(_: Any) -> bool:
        return True

    with contextlib.ExitStack() as stack:
        for name, value in {
            "_use_triton": yes,
            "_forward_kernel": _Kernel(follow, writes=False),
            "_backward_kernel": _Kernel(follow, writes=True),
            "_addmm_fp32": accumulate,
            "triton": _Triton,
        }.items():
            stack.enter_context(replaced(chunked_logprob, name, value))
        stack.enter_context(replaced(utils, "_use_triton", yes))
        yield


# -- optimizers -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _foreach_optimizer(_: Follow) -> Iterator[None]:
    from torch.optim import optimizer

    default = optimizer._default_to_fused_or_foreach

    def chosen(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
        fused, foreach = default(params, differentiable, use_fused)
        return fused, foreach or not (fused or differentiable)

    with contextlib.ExitStack() as stack:
        for module in _modules_with("_default_to_fused_or_foreach"):
            stack.enter_context(replaced(module, "_default_to_fused_or_foreach", chosen))
        yield


def _modules_with(name: str) -> list[Any]:
    """Return torch's optimizer modules that have imported a function by name."""
    import sys

    return [
        module
        for key, module in sys.modules.items()
        if key.startswith("torch.optim.") and name in vars(module)
    ]


# -- kernels --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _cublas(follow: Follow) -> Iterator[None]:
    follow.ledger.come(cuda_memory.workspace_bytes(follow.capability), "temporaries")
    yield


@contextlib.contextmanager
def _attention(follow: Follow) -> Iterator[None]:
    composites.backward_workspaces(follow, workspace_bytes)
    with composites.attention(follow.capability):
        yield


def _has(name: str) -> Callable[[Options], bool]:
    return lambda options: bool(options.get(name))


def _always(_: Options) -> bool:
    return True


def _paged(options: Options) -> bool:
    return str(options.get("optim", "")).startswith("paged")


def _plain_torch(options: Options) -> bool:
    return str(options.get("optim", "")) not in ("", "adamw_torch_fused")


def _mixes(options: Options) -> bool:
    return bool(options.get("bf16", not options.get("fp16")) or options.get("fp16"))


def _half(options: Options) -> bool:
    return bool(options.get("fp16")) or str(options.get("dtype")) == "float16"


RULES: tuple[TargetRule, ...] = (
    TargetRule(
        "autocast_in_fp32",
        "CUDA's autocast runs softmax, norms, powers and sums in fp32.",
        _mixes,
        lambda _: cuda_autocast(),
    ),
    TargetRule(
        "fp16_autocast",
        "accelerate runs fp16 under autocast on accelerators alone.",
        _has("fp16"),
        lambda _: fp16_autocast(),
    ),
    TargetRule(
        "native_dropout",
        "Dropout keeps a mask of one byte per element on CUDA.",
        _always,
        lambda _: composites.dropout(),
    ),
    TargetRule(
        "half_to_float",
        "Softmax of fp16 gives fp32 without a copy of its operand on CUDA.",
        _half,
        lambda _: composites.half_softmax(),
    ),
    TargetRule(
        "triton_head",
        "On Triton devices TRL scores only positions with labels, in kernels that copy no logits.",
        _always,
        _triton_head,
    ),
    TargetRule(
        "foreach_optimizer",
        "torch's optimizers update all weights at once on CUDA, through copies of them.",
        _plain_torch,
        _foreach_optimizer,
    ),
    TargetRule(
        "paged_states",
        "Paged optimizer states count as device memory: they leave it only when it is full, and "
        "then every update waits for them.",
        _paged,
        lambda _: contextlib.nullcontext(),
    ),
    TargetRule(
        "emptied_cache",
        "What giving cached memory back costs (torch_empty_cache_steps) is in no predicted time.",
        _has("torch_empty_cache_steps"),
        lambda _: contextlib.nullcontext(),
    ),
    TargetRule(
        "attention_kernels",
        "sdpa runs FlashAttention on CUDA, the efficient kernels where there is a mask; their "
        "backward pass holds an fp32 accumulator.",
        _always,
        _attention,
    ),
    TargetRule(
        "flash_output_set",
        "FlashAttention keeps its output and one fp32 number per row of scores.",
        is_flash,
        flash_kernels,
    ),
    TargetRule(
        "products_in_8bit",
        "8-bit layers quantise their inputs row by row and multiply into int32 on CUDA; columns of "
        "outliers are not counted.",
        _has("load_in_8bit"),
        products_in_8bit,
    ),
    TargetRule(
        "products_in_4bit",
        "4-bit layers hold a dequantised copy of their weight in the forward pass, too.",
        _has("load_in_4bit"),
        products_in_4bit,
    ),
    TargetRule(
        "cublas_workspace",
        "cuBLAS keeps a workspace for the forward and one for the backward pass.",
        _always,
        _cublas,
    ),
    TargetRule(
        "activations_on_host",
        "Offloaded activations leave the device, but for the last few of each pass.",
        _has("activation_offloading"),
        offloading,
    ),
)

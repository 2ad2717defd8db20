"""What training reaches of a data sheet's peak: published ratios, each with its source.

Turns a row of the catalogue into rates. Nothing here is fitted to anything; what was measured on a
device replaces all of it (measured.py, calibrate.py).
"""

from __future__ import annotations

from autotune.core.rates import ANY, Curve, Rates
from autotune.core.traced_step import WorkKind
from autotune.predict.devices.catalogue import Spec

#: Share of peak of the matrix products of a training step. Ampere and Hopper: best shapes reach
#: 0.86 and 0.80 ("Machine Learning Engineering", S. Bekman, maximum achievable matmul FLOPS), whole
#: training steps 0.44 to 0.72 of which products are the fastest part (Megatron-LM 2021, table 1;
#: FlashAttention-2 paper 2023, table 1). Blackwell and CDNA3: 0.78 and 0.58 at best (the same
#: book). Volta: 0.66 (Markidis et al. 2018). Turing: 0.63 at sustained clocks (Jia et al. 2019).
#: Ada: not in those tables, taken as Ampere's.
#: This is what large products reach; `_REACHED` says what is left of it for smaller ones.
_MATMUL = {
    "turing": 0.55,
    "volta": 0.62,
    "ampere": 0.80,
    "ada": 0.80,
    "hopper": 0.68,
    "blackwell": 0.65,
    "cdna3": 0.50,
}
#: A small product fills few of a device's cores and few of their waves: cuBLAS on square fp16
#: matrices of 512, 1024, 1536, 2048 and 2944 on an A100 ran at 21.8, 104.9, 176.9, 233.0 and 247.9
#: TFLOP/s of 312 (Triton issue 3551, 2024). Here per floating-point operation of one product.
_SIZES = tuple(2.0 * n**3 for n in (512, 1024, 1536, 2048, 2944))
_REACHED = tuple(found / 247.9 for found in (21.8, 104.9, 176.9, 233.0, 247.9))
_SIZES_PEAK = 312e12
#: Share of peak of fused attention, forward and backward together: FlashAttention-2 0.5 to 0.73 on
#: the A100 and 0.35 on the H100; its predecessor, and the memory-efficient kernels of devices that
#: cannot run it, 0.25 to 0.40 (FlashAttention-2 paper 2023, section 1; FlashAttention-3 paper
#: 2024).
_ATTENTION = {
    "turing": 0.25,
    "volta": 0.25,
    "ampere": 0.55,
    "ada": 0.55,
    "hopper": 0.35,
    "blackwell": 0.35,
    "cdna3": 0.30,
}
#: Share of memory bandwidth streaming kernels reach: 0.85 to 0.92 (BabelStream results, V100 to
#: H100), 0.81 on the MI300X (AMD, "MI300X bandwidth with BabelStream").
_BANDWIDTH = 0.85
_BANDWIDTH_CDNA3 = 0.80
#: Gathers and reductions over a last dimension read unevenly: Triton's softmax and layer-norm
#: tutorials show 0.5 to 0.8 for the eager kernels.
_UNEVEN = 0.75
#: Pinned copies over PCIe: 12.3 of 15.75 and 25 of 31.5 GB/s (NVIDIA ``bandwidthTest``).
_LINK = 0.79
#: Gap between kernels queued back to back: 3.8 us for one of 2.9 us (NVIDIA developer blog,
#: "Getting Started with CUDA Graphs", 2019).
_LAUNCH_SECONDS = 0.9e-6
#: Host time of one operation in eager PyTorch with autograd: 5 to 25 us are reported; the
#: geometric middle.
_DISPATCH_SECONDS = 11e-6
#: What selective checkpointing adds: a call into Python per operation, as in one of eager's own.
_SELECTIVE_SECONDS = 11e-6


def expected_rates(spec: Spec) -> Rates:
    """Return what training should reach on a device of the catalogue.

    Args:
        spec: its row.
    """
    matmul, attention = _MATMUL[spec.family], _ATTENTION[spec.family]
    peaks = {"float32": spec.fp32, "float16": spec.fp16}
    # Without bfloat16 units it is computed in fp32 (torch on Volta and Turing).
    peaks["bfloat16"] = spec.fp32 if spec.bf16 is None else spec.bf16
    stream = spec.bandwidth * (_BANDWIDTH_CDNA3 if spec.family == "cdna3" else _BANDWIDTH)
    moved: dict[WorkKind, float] = {
        "matmul": stream,
        "attention": stream,
        "elementwise": stream,
        "copy": stream,
        "reduction": stream * _UNEVEN,
        "gather": stream * _UNEVEN,
        "host_copy": spec.link * _LINK,
    }
    return Rates(
        device=spec.name,
        source=f"{spec.source}, times published efficiencies",
        measured=False,
        flops={
            "matmul": {dtype: _products(peak, peak * matmul) for dtype, peak in peaks.items()},
            "attention": {dtype: _flat(peak * attention) for dtype, peak in peaks.items()},
        },
        moved={kind: {ANY: _flat(rate)} for kind, rate in moved.items()},
        launch_seconds=_LAUNCH_SECONDS,
        dispatch_seconds=_DISPATCH_SECONDS,
        selective_seconds=_SELECTIVE_SECONDS,
    )


def _flat(rate: float) -> Curve:
    return Curve(sizes=(1.0,), per_s=(rate,))


def _products(peak: float, reached: float) -> Curve:
    """Return the rate of matrix products: a product that lasts as long loses as much of it."""
    sizes = tuple(size * peak / _SIZES_PEAK for size in _SIZES)
    return Curve(sizes=sizes, per_s=tuple(reached * share for share in _REACHED))

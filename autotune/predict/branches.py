"""Where CUDA takes another branch than the CPU that is traced: each with its rule, or the reason.

A test records what traces of every trainer call, repeats each call with fake CUDA tensors, and
fails where what happens below differs and is not listed here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Branch:
    """One difference.

    Args:
        of: the torch function, or what the code that asks for the device is called.
        rule: name of the rule in `autotune.predict.target_rules` that follows it; None where none
            is needed or possible.
        reason: why the rule is right, or why there is none.
    """

    of: str
    rule: str | None
    reason: str


_LISTS = "CUDA's autocast has a kernel of its own for it"

#: Branches seen by repeating calls with fake CUDA tensors.
SEEN: tuple[Branch, ...] = (
    Branch("torch.nn.functional.dropout", "native_dropout", "one operator keeps a mask of bytes"),
    Branch(
        "torch.nn.functional.scaled_dot_product_attention",
        "attention_kernels",
        "a build without CUDA has no choice of kernels for it: the rule follows sdp_utils.cpp",
    ),
    Branch("torch.nn.functional.softmax", "half_to_float", "fp16 becomes fp32 inside the kernel"),
    Branch("torch.cat", "autocast_in_fp32", "the CPU's autocast promotes what it is given"),
    Branch("torch.stack", "autocast_in_fp32", "the CPU's autocast promotes what it is given"),
    *(
        Branch(name, "autocast_in_fp32", _LISTS)
        for name in (
            "torch.Tensor.pow",
            "torch.Tensor.sum",
            "torch.cumsum",
            "torch.linalg.norm",
            "torch.log",
            "torch.rsqrt",
            "torch.sum",
        )
    ),
)

#: Branches known from reading: in Python, in packages, or inside kernels.
READ: tuple[Branch, ...] = (
    Branch("trl.kernels.chunked_logprob", "triton_head", "Triton scores labels alone"),
    Branch("torch.optim", "foreach_optimizer", "all weights are updated at once"),
    Branch("accelerate fp16", "fp16_autocast", "autocast runs on accelerators alone"),
    Branch("accelerate GradScaler", None, "in place on gradients; two numbers are kept"),
    Branch("backward of attention", "attention_kernels", "accumulates in fp32"),
    Branch("cuDNN attention", None, "keeps what FlashAttention keeps; its plans are not known"),
    Branch("transformers grouped experts", None, "the histogram is of integers, a few bytes each"),
    Branch("torch._grouped_mm before 8.0", None, "falls back to one product per expert"),
    Branch(
        "bitsandbytes MatMul8bitLt",
        None,
        "on CUDA inputs are quantised row by row: one byte per element and a number per row, "
        "beside the input that is kept on both",
    ),
    Branch("bitsandbytes gemm_4bit", None, "both dequantise the weight of a layer when it is used"),
    Branch("layer norms, embeddings, losses", None, "one operator on both, with the same results"),
)

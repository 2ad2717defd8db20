"""The page on CUDA's branches is made from the table the tracer is held to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from autotune.predict.branches import READ, SEEN, Branch

PAGE = Path(__file__).parents[3] / "reports" / "predict-cuda-branches.md"
HEAD = """\
# Where CUDA does otherwise than the CPU that is traced

A prediction follows TRL's own step on fake tensors of the CPU. Each operation for which CUDA takes
another branch has a rule that makes the trace take CUDA's (`autotune/predict/target_rules.py`), or
the reason why none is needed or possible. No GPU has been at hand: what kernels keep is read from
the sources of PyTorch 2.13, bitsandbytes 0.50 and accelerate 1.15.

Made from `autotune/predict/branches.py` by
`AUTOTUNE_GOLDEN=write python -m pytest tests/unit/predict/test_branches_page.py`.

`python -m pytest tests/integration/test_cuda_branches.py` records every torch call of fifteen
traces (SFT, DPO, Reward, KTO; LoRA, DoRA, 4-bit, 8-bit; eager, sdpa, flash; bf16, fp16, fp32;
experts, packed, padding-free), repeats each with fake CUDA tensors without an autograd graph, and
fails on a difference that is not listed. What autograd saves beside the listed operators, and
workspaces inside kernels, are not compared.
"""


def section(title: str, branches: Iterable[Branch]) -> str:
    rows = [
        f"| `{branch.of}` | {f'`{branch.rule}`' if branch.rule else 'none'} | {branch.reason} |"
        for branch in branches
    ]
    return "\n".join([f"## {title}", "", "| of | rule | why |", "| --- | --- | --- |", *rows])


def page() -> str:
    seen = section("Seen by repeating calls", SEEN)
    read = section("Known from reading", READ)
    return f"{HEAD}\n{seen}\n\n{read}\n"


def test_the_page_on_branches_is_current() -> None:
    if os.environ.get("AUTOTUNE_GOLDEN") == "write":
        PAGE.write_text(page(), encoding="utf-8")
    assert page() == PAGE.read_text(encoding="utf-8")

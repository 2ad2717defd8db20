"""No trace meets an operation that CUDA does otherwise and that nobody has looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.predict.branches import READ, SEEN
from autotune.predict.request import Documents, Judged, Pair, Row, TraceRequest
from tests.support.models import tiny_model
from tests.support.traced import SFT_ROWS, SMALL

pytestmark = pytest.mark.integration

LORA = {"use_peft": True, "dtype": "bfloat16", "lora_dropout": 0.1}
PACKED = (Documents(tokens=(50, 40)),) * 2
PAIRS = (Pair(prompt=20, chosen=60, rejected=30),) * 2
SIDES = (Pair(prompt=0, chosen=90, rejected=40),) * 2
JUDGED = (Judged(prompt=20, completion=60), Judged(prompt=10, completion=30, desirable=False))
FP16 = {"fp16": True, "bf16": False, "attn_implementation": "eager"}
EXPERTS: dict[str, Any] = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
}  # fmt: skip
#: Followed by reading: a build without CUDA cannot choose its kernels.
BY_READING = {"torch.nn.functional.scaled_dot_product_attention"}


def test_every_branch_is_named_once_and_its_rule_exists() -> None:
    from autotune.predict.target_rules import RULES

    names = [branch.of for branch in (*SEEN, *READ)]
    assert len(names) == len(set(names))
    used = {branch.rule for branch in (*SEEN, *READ)} - {None}
    assert used <= {rule.name for rule in RULES}
    assert all(branch.reason for branch in (*SEEN, *READ))


@pytest.mark.parametrize(
    ("trainer", "kind", "options", "rows"),
    [
        (Trainer.SFT, {}, {}, SFT_ROWS),
        (Trainer.SFT, {}, {"attn_implementation": "eager"}, SFT_ROWS),
        (Trainer.SFT, {}, FP16, SFT_ROWS),
        (Trainer.SFT, {}, {"bf16": False}, SFT_ROWS),
        (Trainer.SFT, {}, {**LORA, "padding_free": True, "max_length": None}, SFT_ROWS),
        (Trainer.SFT, {}, {**LORA, "use_dora": True}, SFT_ROWS),
        (Trainer.SFT, {}, {**LORA, "load_in_4bit": True}, SFT_ROWS),
        (Trainer.SFT, {}, {**LORA, "load_in_8bit": True}, SFT_ROWS),
        (Trainer.SFT, {}, {"packing": True, "attn_implementation": "flash_attention_2"}, PACKED),
        (Trainer.SFT, {}, {"packing": True, "optim": "adamw_torch"}, PACKED),
        (Trainer.SFT, EXPERTS, {}, SFT_ROWS),
        (Trainer.DPO, {}, {}, PAIRS),
        (Trainer.DPO, {}, {**LORA, "precompute_ref_log_probs": True}, PAIRS),
        (Trainer.REWARD, {}, {}, SIDES),
        (Trainer.KTO, {}, {}, JUDGED),
    ],
)
def test_a_trace_meets_no_branch_of_cuda_that_is_not_listed(
    tmp_path: Path,
    trainer: Trainer,
    kind: dict[str, Any],
    options: dict[str, Any],
    rows: tuple[Row, ...],
) -> None:
    from autotune.predict.follow import Follow
    from autotune.predict.ledger import Ledger
    from autotune.predict.target_rules import applied, rules_for
    from autotune.predict.traced import trace
    from tests.support.cuda_branches import Calls, operators

    model = tiny_model(tmp_path / "model", **SMALL, **kind)
    request = TraceRequest(trainer=trainer, model_dir=str(model), options=options, rows=rows)
    with Calls() as calls:
        trace(request)
    known = {branch.of for branch in SEEN}
    compared = 0
    for call in calls.seen.values():
        cuda = operators(call, "cuda")
        if cuda is None:
            continue
        compared += 1
        assert operators(call, "cpu") == cuda or call.name in known, (call, cuda)
        with applied(rules_for("cuda", options), Follow(Ledger())):
            followed = operators(call, "cpu")
        assert followed == cuda or call.name in BY_READING, (call, followed, cuda)
    assert compared > 100

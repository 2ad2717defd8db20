"""What a CUDA step does otherwise than a CPU step: every rule, seen in a traced step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.core.cuda_memory import workspace_bytes
from autotune.core.job import Trainer
from autotune.predict.request import Documents, Target
from tests.support.models import tiny_model
from tests.support.traced import SMALL, traced

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("rules") / "model", **SMALL)


def test_no_rule_of_cuda_applies_to_the_cpu() -> None:
    from autotune.predict.target_rules import RULES, rules_for

    assert () == rules_for("cpu", {"optim": "adamw_torch"})
    names = {rule.name for rule in rules_for("cuda", {"optim": "adamw_torch"})}
    assert {"triton_head", "foreach_optimizer"} <= names
    assert len(RULES) == len({rule.name for rule in RULES})


def test_on_triton_only_labels_are_scored_and_no_logits_copied(model: Path) -> None:
    rows = (Documents(tokens=(400,), label_tokens=400),) * 4
    few = (Documents(tokens=(400,), label_tokens=40),) * 4
    cpu = traced(model, {}, rows, target="cpu").split["logits"]
    cuda = traced(model, {}, rows).split["logits"]
    # one tile of bf16 logits, as wide as TRL's tiles are, in place of several fp32 ones
    assert pytest.approx(4 * 399 * 32768 * 2, rel=0.1) == cuda < cpu
    assert traced(model, {}, few).peak_bytes < traced(model, {}, rows).peak_bytes
    assert traced(model, {}, few, target="cpu").split["logits"] == cpu


def test_foreach_optimizers_hold_copies_of_all_weights_and_the_fused_one_none(
    tmp_path: Path,
) -> None:
    deep = tiny_model(tmp_path / "deep", **{**SMALL, "num_hidden_layers": 12})

    def update(optim: str, target: Target) -> int:
        return traced(deep, {"optim": optim}, target=target).phase_bytes["optimizer_step"]

    weights = traced(deep, {}).split["weights"]
    assert update("adamw_torch", "cuda") > update("adamw_torch_fused", "cuda") + 0.9 * weights
    assert update("adamw_torch", "cpu") < update("adamw_torch_fused", "cpu") + 0.5 * weights


def test_paged_states_count_as_device_memory_and_that_is_said(model: Path) -> None:
    paged = traced(model, {"optim": "paged_adamw_8bit"})
    plain = traced(model, {"optim": "adamw_8bit"})
    assert plain.split["optimizer"] == paged.split["optimizer"] > 0
    assert 0 == paged.offloaded_bytes
    assert any("Paged optimizer states count as device memory" in note for note in paged.notes)
    assert not any("Paged" in note for note in plain.notes)


def test_offloaded_activations_leave_the_device(tmp_path: Path) -> None:
    deep = tiny_model(tmp_path / "deep", **{**SMALL, "num_hidden_layers": 12})
    options = {"gradient_checkpointing": False}
    kept = traced(deep, options)
    gone = traced(deep, {**options, "activation_offloading": True})
    assert gone.split["activations"] < kept.split["activations"] / 2
    assert gone.offloaded_bytes > kept.split["activations"] / 2
    assert any(work.kind == "host_copy" for work in gone.micro_step)


def test_flash_attention_needs_no_mask_between_documents(model: Path) -> None:
    rows = (Documents(tokens=(200, 200, 200)),) * 2
    options = {"packing": True, "dtype": "bfloat16"}
    flash = traced(model, {**options, "attn_implementation": "flash_attention_2"}, rows)
    sdpa = traced(model, options, rows)
    assert flash.peak_bytes < sdpa.peak_bytes
    attention = [work for work in flash.micro_step if work.kind == "attention"]
    assert sum(w.flops for w in attention) < sum(
        w.flops for w in sdpa.micro_step if w.kind == "attention"
    )


def test_attentions_backward_pass_holds_an_fp32_accumulator() -> None:
    import torch

    from autotune.predict.attention import workspace_bytes
    from autotune.predict.follow import Follow
    from autotune.predict.ledger import Ledger
    from autotune.predict.target_rules import RULES, applied

    query, key = torch.empty(2, 4, 100, 48), torch.empty(2, 4, 100, 48)
    # 128 rows of queries, 64 wide, and one number per row, for 2 x 4 heads
    assert 2 * 4 * 128 * 65 * 4 == workspace_bytes([query, query, key])
    shared = torch.empty(2, 1, 100, 48)
    more = 2 * 2 * 4 * 100 * 48 * 4
    assert 2 * 4 * 128 * 65 * 4 + more == workspace_bytes([query, query, shared])
    follow = Follow(Ledger())
    with applied([rule for rule in RULES if rule.name == "attention_kernels"], follow):
        assert {workspace_bytes} == set(follow.workspaces.values())


def test_cudas_autocast_runs_its_own_lists() -> None:
    import torch
    from torch.nn import functional

    from autotune.predict.autocast import cuda_autocast

    half, full = torch.ones(4, dtype=torch.bfloat16), torch.ones(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.bfloat16 == torch.softmax(half, 0).dtype
        with cuda_autocast():
            assert torch.float32 == torch.softmax(half, 0).dtype == half.pow(2).dtype
            # inside a function of torch's own, too
            assert torch.float32 == functional.normalize(half[None]).dtype
            assert torch.float32 == torch.norm(half).dtype == half.norm(2, 0).dtype
            assert torch.bfloat16 == torch.matmul(half[None], half[:, None]).dtype
            assert torch.bfloat16 == torch.mv(half[None], full).dtype
            assert torch.float32 == torch.addcmul(half, half, full).dtype
            assert torch.bfloat16 == torch.stack([half, half]).dtype
    with cuda_autocast():
        assert torch.bfloat16 == torch.softmax(half, 0).dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.bfloat16 == torch.softmax(half, 0).dtype


def test_the_lists_of_cudas_autocast_are_those_of_the_torch_that_is_installed() -> None:
    import re
    from importlib.util import find_spec

    from autotune.predict import autocast

    spec = find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    header = Path(spec.submodule_search_locations[0]) / "include" / "ATen" / "autocast_mode.h"
    found: dict[str, set[str]] = {}
    for block in header.read_text("utf-8").split("#define AT_FORALL_")[1:]:
        entries = re.findall(r"^  _\((\w+)(?:, (\w+))?\)", block.split("\n\n")[0], re.M)
        names = {".".join(filter(None, entry)) for entry in entries}
        found[block.split("(")[0]] = names
    policies = autocast.policies()

    def of(policy: str) -> set[str]:
        return {name for name, what in policies.items() if what == policy}

    assert found["FP32_SET_OPT_DTYPE"] == autocast.FP32_RESULT
    assert found["PROMOTE"] == autocast.PROMOTED
    assert found["FP32"] == of("fp32")
    lowered = found["LOWER_PRECISION_FP"]
    cudnn = {"cudnn_convolution", "cudnn_convolution_transpose"}
    assert lowered == (autocast.LOWERED - cudnn) | (autocast.ALIKE - {"binary_cross_entropy"})


def test_fp16_is_traced_under_autocast_as_accelerators_run_it(model: Path) -> None:
    step = traced(model, {"fp16": True, "bf16": False})
    assert {"float16"} == {work.dtype for work in step.micro_step if work.kind == "matmul"}
    cpu = traced(model, {"fp16": True, "bf16": False}, target="cpu")
    assert {"float32"} == {work.dtype for work in cpu.micro_step if work.kind == "matmul"}


def test_dropout_keeps_one_byte_per_element() -> None:
    import torch

    from autotune.predict.follow import Follow
    from autotune.predict.ledger import Ledger
    from autotune.predict.target_rules import applied, rules_for

    def kept(target: Target) -> int:
        follow = Follow(Ledger())
        with applied(rules_for(target, {"optim": "adamw_torch_fused"}), follow), follow:
            x = torch.empty(64, 64, dtype=torch.bfloat16, requires_grad=True)
            before = follow.ledger.held_bytes(int)
            y = torch.nn.functional.dropout(x, 0.1, training=True)
            size = follow.ledger.held_bytes(int) - before
            y.sum().backward()
            assert x.grad is not None and x.grad.dtype is torch.bfloat16
            return size

    assert 64 * 64 * (2 + 1) == kept("cuda")
    assert 64 * 64 * (2 + 2) == kept("cpu")


def test_scales_of_quantised_weights_are_weights_and_unquantised_experts_are_said(
    tmp_path: Path,
) -> None:
    options = {"use_peft": True, "dtype": "bfloat16", "load_in_4bit": True}
    dense = tiny_model(
        tmp_path / "dense", **{**SMALL, "hidden_size": 512, "intermediate_size": 2048}
    )
    plain, nested = (
        traced(dense, {**options, "use_bnb_nested_quant": n}).split["weights"]
        for n in (False, True)
    )
    assert nested < plain
    experts = tiny_model(
        tmp_path / "experts", **SMALL, model_type="qwen3_moe",
        architectures=["Qwen3MoeForCausalLM"], num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32,
    )  # fmt: skip
    said = "Experts are no linear layers: their weights stay bfloat16."
    targets = {"lora_target_modules": ["q_proj", "v_proj"]}
    assert said in traced(experts, {**options, **targets}).notes
    assert said not in traced(experts, {"use_peft": True, **targets}).notes


def test_attention_with_dropout_keeps_no_scores(tmp_path: Path) -> None:
    dropping = tiny_model(tmp_path / "dropping", **SMALL, attention_dropout=0.1)
    rows = (Documents(tokens=(512,)),) * 2
    options = {"gradient_checkpointing": False}
    cuda, cpu = (traced(dropping, options, rows, target=t) for t in ("cuda", "cpu"))
    heads = json.loads((dropping / "config.json").read_text("utf-8"))["num_attention_heads"]
    scores = 2 * 2 * heads * 512 * 512 * 2
    assert cpu.split["activations"] - cuda.split["activations"] > scores


def test_a_gpu_older_than_flash_attention_keeps_scores_where_heads_are_shared(
    model: Path,
) -> None:
    from autotune.predict.request import TraceRequest
    from autotune.predict.traced import trace

    def kept(capability: str) -> int:
        request = TraceRequest(
            trainer=Trainer.SFT,
            model_dir=str(model),
            options={"fp16": True, "bf16": False, "gradient_checkpointing": False},
            rows=(Documents(tokens=(512,)),) * 2,
            capability=capability,
        )
        return trace(request).split["activations"]

    assert kept("8.0") == kept("9.0") < kept("7.5")


def test_cublas_keeps_a_workspace_for_each_pass_larger_on_newer_devices(model: Path) -> None:
    held = workspace_bytes("8.6")
    assert 2 * (8 * 2**20 + 128 * 2**10) == held
    on_cpu = traced(model, {}, target="cpu").split["temporaries"]
    ampere = traced(model, {}, capability="8.6").split["temporaries"]
    hopper = traced(model, {}, capability="9.0").split["temporaries"]
    assert on_cpu < held <= ampere
    assert 2 * 32 * 2**20 - held == hopper - ampere

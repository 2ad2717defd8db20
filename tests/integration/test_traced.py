"""The traced step: against real probes, from a config alone, for the CPU and for CUDA."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.traced_step import TracedStep
from autotune.predict.request import Documents, Judged, Pair, Row, Target, TraceRequest
from autotune.probe.runner import Runner
from tests.support.models import tiny_model
from tests.support.peaks import measured_bytes, request_of, step_bytes
from tests.support.warm import Shared, shared_server

pytestmark = pytest.mark.integration

#: bitsandbytes' CPU kernels want whole blocks of 64 weights.
SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "head_dim": 64}
LORA = {"use_peft": True, "dtype": "bfloat16"}
NF4 = {**LORA, "load_in_4bit": True}
SFT_ROWS = (Documents(tokens=(120,), label_tokens=60), Documents(tokens=(40,)))
PAIRS = (Pair(prompt=20, chosen=60, rejected=30), Pair(prompt=10, chosen=20, rejected=80))
SIDES = (Pair(prompt=0, chosen=90, rejected=40), Pair(prompt=0, chosen=50, rejected=70))
JUDGED = (Judged(prompt=20, completion=60), Judged(prompt=10, completion=30, desirable=False))
TWO = {"gradient_accumulation_steps": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("traced") / "model", **SMALL)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("server")
    with shared_server(folder) as server:
        shared: Shared = server
        yield Runner(shared, folder)


def traced(
    model: Path,
    options: dict[str, Any],
    rows: tuple[Row, ...] = SFT_ROWS,
    *,
    trainer: Trainer = Trainer.SFT,
    target: Target = "cuda",
    whole: bool = False,
) -> TracedStep:
    from autotune.predict.traced import trace

    request = TraceRequest(
        trainer=trainer, model_dir=str(model), options=options, rows=rows, target=target
    )
    return trace(request, whole=whole)


@pytest.mark.parametrize(
    ("trainer", "options", "rows"),
    [
        (Trainer.SFT, TWO, SFT_ROWS),
        (Trainer.SFT, {"gradient_checkpointing": False, "attn_implementation": "eager"}, SFT_ROWS),
        (Trainer.SFT, {"packing": True, "max_length": 96}, (Documents(tokens=(48, 48)),) * 2),
        (Trainer.SFT, {**NF4, **TWO}, SFT_ROWS),
        (Trainer.SFT, {"optim": "adamw_8bit", "bf16": False}, (Documents(tokens=(16,)),)),
        (Trainer.DPO, TWO, PAIRS),
        (Trainer.REWARD, {"gradient_checkpointing": False}, SIDES),
        (Trainer.KTO, {"bf16": False}, JUDGED),
    ],
)
def test_a_traced_peak_is_the_measured_one(
    runner: Runner,
    model: Path,
    tmp_path: Path,
    trainer: Trainer,
    options: dict[str, Any],
    rows: tuple[Row, ...],
) -> None:
    from autotune.predict.traced import trace

    request = request_of(trainer, model, options, rows)
    measured = measured_bytes(runner, request, tmp_path / "rows")
    peak, _ = step_bytes(dict(trace(request).phase_bytes))
    assert pytest.approx(measured, rel=0.01) == peak


def test_a_config_alone_is_enough(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((model / "config.json").read_text("utf-8"), "utf-8")
    assert traced(model, {}) == traced(tmp_path, {})


def test_repeating_layers_are_extended_exactly_and_others_traced_whole(tmp_path: Path) -> None:
    deep = tiny_model(tmp_path / "deep", num_hidden_layers=9)
    extended, whole = traced(deep, {}), traced(deep, {}, whole=True)
    assert pytest.approx(whole.peak_bytes, rel=0.005) == extended.peak_bytes
    assert whole.split == extended.split
    assert sum(w.flops for w in whole.micro_step) == sum(w.flops for w in extended.micro_step)
    assert any("extended" in note for note in extended.notes)
    kinds = ["sliding_attention"] * 8 + ["full_attention"]
    mixed = tiny_model(
        tmp_path / "mixed", num_hidden_layers=9, layer_types=kinds, use_sliding_window=True,
        sliding_window=32,
    )  # fmt: skip
    assert not any("extended" in note for note in traced(mixed, {}).notes)


def test_weights_are_split_into_policy_and_reference_and_their_dtype_is_named(
    model: Path,
) -> None:
    def weights(**options: Any) -> tuple[int, int, str]:
        step = traced(model, options, PAIRS, trainer=Trainer.DPO)
        return step.split["weights"], step.split["reference"], " ".join(step.notes)

    policy, reference, said = weights()
    assert policy == pytest.approx(reference, rel=0.01)
    assert "Weights are held as float32." in said and "The reference is held as float32." in said
    half, half_reference, said = weights(dtype="bfloat16")
    assert (policy // 2, reference // 2) == pytest.approx((half, half_reference), rel=0.02)
    assert "Weights are held as bfloat16." in said
    assert 0 == weights(precompute_ref_log_probs=True)[1]
    assert 0 == weights(use_peft=True)[1]


def test_each_storage_counts_once_and_in_the_dtype_it_is_loaded_in(tmp_path: Path) -> None:
    config = {**SMALL, "torch_dtype": "bfloat16", "dtype": "bfloat16"}
    tied = tiny_model(tmp_path / "tied", **config, tie_word_embeddings=True)
    apart = tiny_model(tmp_path / "apart", **config, tie_word_embeddings=False)
    stored = json.loads((tied / "config.json").read_text("utf-8"))
    embedding = stored["vocab_size"] * stored["hidden_size"]
    full = traced(apart, {}).split["weights"] - traced(tied, {}).split["weights"]
    assert 4 * embedding == full
    asked = {"dtype": "auto"}
    half = traced(apart, asked).split["weights"] - traced(tied, asked).split["weights"]
    assert 2 * embedding == half


def test_only_what_is_trained_has_gradients_and_states(model: Path) -> None:
    full, lora = (traced(model, o, target="cpu") for o in ({}, {"use_peft": True}))
    assert pytest.approx(2 * full.split["gradients"], rel=0.01) == full.split["optimizer"]
    assert lora.split["gradients"] < full.split["gradients"] / 10
    assert lora.held_bytes < full.held_bytes / 2


def test_quantised_weights_are_not_taken_to_need_less(
    runner: Runner, model: Path, tmp_path: Path
) -> None:
    from autotune.predict.traced import trace

    peaks = {}
    for name, options in {"lora": LORA, "4-bit": NF4}.items():
        request = request_of(Trainer.SFT, model, options, (Documents(tokens=(8,)),))
        step = trace(request)
        measured = measured_bytes(runner, request, tmp_path / name)
        peaks[name] = (measured, step_bytes(dict(step.phase_bytes))[0], step)
    order = sorted(peaks, key=lambda name: peaks[name][0])
    assert order == sorted(peaks, key=lambda name: peaks[name][1])
    quantised = peaks["4-bit"][2]
    assert "nf4" in " ".join(quantised.notes)
    # while weights are quantised, those not yet quantised are there too
    assert quantised.phase_bytes["load"] > quantised.split["weights"]


def test_experts_and_sliding_windows_trace(tmp_path: Path) -> None:
    experts = tiny_model(
        tmp_path / "experts", model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"],
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
    )  # fmt: skip
    assert traced(experts, {}).peak_bytes > 0
    assert traced(experts, {"bf16": False}, target="cpu").peak_bytes > 0
    sliding = tiny_model(
        tmp_path / "sliding", model_type="gemma3_text", architectures=["Gemma3ForCausalLM"],
        sliding_window=32,
    )  # fmt: skip
    assert traced(sliding, {}).peak_bytes > 0


# -- what CUDA does otherwise ---------------------------------------------------------------------


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


def test_paged_states_are_not_the_allocators(model: Path) -> None:
    paged = traced(model, {"optim": "paged_adamw_8bit"})
    plain = traced(model, {"optim": "adamw_8bit"})
    assert paged.split["optimizer"] < plain.split["optimizer"]
    assert paged.offloaded_bytes > plain.offloaded_bytes == 0


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

    query, key = torch.empty(2, 4, 100, 48), torch.empty(2, 4, 100, 48)
    # 128 rows of queries, 64 wide, and one number per row, for 2 x 4 heads
    assert 2 * 4 * 128 * 65 * 4 == workspace_bytes([query, query, key])
    shared = torch.empty(2, 1, 100, 48)
    more = 2 * 2 * 4 * 100 * 48 * 4
    assert 2 * 4 * 128 * 65 * 4 + more == workspace_bytes([query, query, shared])


def test_cudas_autocast_runs_its_own_list_in_fp32() -> None:
    import torch

    from autotune.predict.autocast import cuda_autocast

    half = torch.ones(4, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.bfloat16 == torch.softmax(half, 0).dtype
        with cuda_autocast():
            assert torch.float32 == torch.softmax(half, 0).dtype
            assert torch.float32 == half.pow(2).dtype
            assert torch.bfloat16 == torch.matmul(half[None], half[:, None]).dtype
    with cuda_autocast():
        assert torch.bfloat16 == torch.softmax(half, 0).dtype


def test_cublas_keeps_its_workspace(model: Path) -> None:
    from autotune.predict.target_rules import CUBLAS_WORKSPACE_BYTES

    assert traced(model, {}).split["temporaries"] >= CUBLAS_WORKSPACE_BYTES
    assert traced(model, {}, target="cpu").split["temporaries"] < CUBLAS_WORKSPACE_BYTES

"""The traced step: against real probes, and from a config alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.predict.request import Documents, Judged, Pair, Row, TraceRequest
from autotune.probe.protocol import TraceSpec
from autotune.probe.runner import Runner
from tests.support.models import tiny_model
from tests.support.peaks import measured_bytes, request_of, step_bytes
from tests.support.traced import SFT_ROWS, SMALL, traced
from tests.support.warm import Shared

pytestmark = pytest.mark.integration

LORA = {"use_peft": True, "dtype": "bfloat16"}
NF4 = {**LORA, "load_in_4bit": True}
PAIRS = (Pair(prompt=20, chosen=60, rejected=30), Pair(prompt=10, chosen=20, rejected=80))
SIDES = (Pair(prompt=0, chosen=90, rejected=40), Pair(prompt=0, chosen=50, rejected=70))
JUDGED = (Judged(prompt=20, completion=60), Judged(prompt=10, completion=30, desirable=False))
TWO = {"gradient_accumulation_steps": 2}
SELECTIVE = {"gradient_checkpointing_kwargs": {"selective": True}}
ROW = (Documents(tokens=(16,)),)
PAIR = (Documents(tokens=(120,)), Documents(tokens=(40,)))
FULL = (Documents(tokens=(96,)),) * 2
EXPERTS: dict[str, Any] = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
}  # fmt: skip
SLIDING: dict[str, Any] = {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("traced") / "model", **SMALL)


@pytest.fixture(scope="module")
def runner(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(shared, tmp_path_factory.mktemp("runner"))


@pytest.mark.parametrize(
    ("trainer", "options", "rows"),
    [
        (Trainer.SFT, TWO, SFT_ROWS),
        (Trainer.SFT, {"gradient_checkpointing": False, "attn_implementation": "eager"}, SFT_ROWS),
        (Trainer.SFT, {"packing": True, "max_length": 96}, (Documents(tokens=(48, 48)),) * 2),
        (Trainer.SFT, {"packing": True, "packing_strategy": "wrapped", "max_length": 96}, FULL),
        (Trainer.SFT, {**LORA, "use_dora": True, "padding_free": True, "max_length": None}, PAIR),
        (Trainer.SFT, {"dtype": "float16", "bf16": False, **SELECTIVE}, SFT_ROWS),
        (Trainer.SFT, {**NF4, **TWO}, SFT_ROWS),
        (Trainer.SFT, {**NF4, "use_bnb_nested_quant": True}, ROW),
        (Trainer.SFT, {**LORA, "load_in_8bit": True}, SFT_ROWS),
        (Trainer.SFT, {"optim": "adamw_8bit", "bf16": False}, ROW),
        (Trainer.SFT, {"optim": "adafactor", "dtype": "bfloat16"}, ROW),
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


@pytest.mark.parametrize(("trainer", "rows"), [(Trainer.DPO, PAIRS), (Trainer.KTO, JUDGED)])
def test_the_pass_over_the_reference_is_forward_alone_and_comes_before_the_optimizer(
    model: Path, trainer: Trainer, rows: tuple[Row, ...]
) -> None:
    from autotune.predict.traced import trace

    options = {"precompute_ref_log_probs": True, "gradient_checkpointing": False}
    request = TraceRequest(
        trainer=trainer, model_dir=str(model), options=options, rows=rows, accumulates=False
    )
    step = trace(request)
    once = trace(request.model_copy(update={"precompute": True}))
    assert "precompute" == once.phase and once.peak_bytes < step.peak_bytes
    assert 0 == once.split["gradients"] == once.split["optimizer"]
    assert () == once.optimizer_step
    forward, both = (
        sum(w.flops for w in work if w.kind == "matmul")
        for work in (once.micro_step, step.micro_step)
    )
    # backward takes twice the products of the forward pass, and TRL's head makes its logits again
    assert 0.2 < forward / both < 0.5


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


@pytest.mark.parametrize("kind", [EXPERTS, SLIDING])
def test_experts_and_sliding_windows_need_what_is_measured(
    runner: Runner, tmp_path: Path, kind: dict[str, Any]
) -> None:
    from autotune.predict.traced import trace

    request = request_of(Trainer.SFT, tiny_model(tmp_path / "model", **kind), {}, SFT_ROWS)
    measured = measured_bytes(runner, request, tmp_path / "rows")
    assert pytest.approx(measured, rel=0.01) == step_bytes(dict(trace(request).phase_bytes))[0]
    assert traced(tmp_path / "model", {}).peak_bytes > 0


def test_the_peak_is_split_into_seven_parts_and_its_phase_is_told(model: Path) -> None:
    options = {"gradient_checkpointing": False, "activation_offloading": True}
    step = traced(model, options, (Documents(tokens=(200,)),) * 4)
    parts = ("weights", "gradients", "optimizer", "activations", "logits", "temporaries")
    assert all(step.split[part] > 0 for part in parts) and step.offloaded_bytes > 0  # type: ignore[index]
    assert step.peak_bytes == sum(step.split.values()) == step.phase_bytes[step.phase]
    assert step.peak_bytes == max(step.phase_bytes.values())
    assert {"load", "forward", "backward", "optimizer_step"} == set(step.phase_bytes)


def test_operations_and_bytes_moved_are_those_of_the_layers_and_of_a_head_run_twice(
    model: Path,
) -> None:
    config = json.loads((model / "config.json").read_text("utf-8"))
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = (2 * config["num_attention_heads"] + 2 * config["num_key_value_heads"]) * 64
    weights = layers * hidden * (heads + 3 * config["intermediate_size"])
    head = hidden * config["vocab_size"]
    options = {"gradient_checkpointing": False, "bf16": False, "dtype": "bfloat16"}
    step = traced(model, options, (Documents(tokens=(256,)),) * 2)
    (products,) = [work for work in step.micro_step if work.kind == "matmul"]
    # forward once, backward twice; TRL's head makes its logits again, and the last predict nothing
    assert 6 * weights * 512 + 8 * head * 510 == products.flops
    moved = sum(work.moved_bytes for work in step.micro_step)
    assert moved > 3 * 2 * (weights + head)


def test_every_token_visits_as_many_experts_as_the_router_sends_it_to(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "experts", **EXPERTS)
    step = traced(folder, {"gradient_checkpointing": False}, (Documents(tokens=(64,)),) * 2)
    products = {work.dtype: work.flops for work in step.micro_step if work.kind == "matmul"}
    # the grouped products stay in the dtype of the weights: 128 tokens, 2 experts each
    assert 6 * 128 * 2 * (3 * 32 * 32) == products["float32"]


def test_what_rows_already_say_tells_no_two_steps_apart(model: Path) -> None:
    from autotune.predict.traced import run_key, trace_all

    def asked(**options: Any) -> TraceRequest:
        return request_of(Trainer.SFT, model, options, ROW)

    packed = asked(packing=True, max_length=16)
    flat = asked(padding_free=True, max_length=None)
    split = asked(packing=True, packing_strategy="bfd_split", per_device_train_batch_size=4)
    wrapped = asked(packing=True, packing_strategy="wrapped")
    assert run_key(packed) == run_key(flat) == run_key(split)
    assert 3 == len({run_key(packed), run_key(wrapped), run_key(asked(packing=True, bf16=False))})
    same = trace_all([packed, flat, split])
    assert same[0] is same[1] is same[2]


def test_answers_do_not_depend_on_the_processes_they_come_from(runner: Runner, model: Path) -> None:
    from autotune.predict.traced import trace_all

    requests = [
        request_of(Trainer.SFT, model, options, rows)
        for options in ({}, {"gradient_checkpointing": False}, {"torch_compile": True})
        for rows in (SFT_ROWS, FULL)
    ]
    told: list[tuple[int, int]] = []
    spec = TraceSpec(requests=tuple(r.model_dump(mode="json") for r in requests), seconds=60.0)
    answers = runner.trace(
        spec, deadline_s=600.0, tick=lambda _: None, tell=lambda _, *n: told.append((n[0], n[1]))
    )
    assert trace_all(requests[:4]) == [answer.step for answer in answers[:4]]
    assert all("torch_compile" in answer.refusal for answer in answers[4:])
    assert told[0] == (0, 6)


def test_no_trace_is_begun_when_the_time_is_over(runner: Runner, model: Path) -> None:
    request = request_of(Trainer.SFT, model, {}, ROW).model_dump(mode="json")
    (answer,) = runner.trace(
        TraceSpec(requests=(request,), seconds=0.0), deadline_s=60.0,
        tick=lambda _: None, tell=lambda *_: None,
    )  # fmt: skip
    assert answer.step is None and "time for tracing was over" in answer.refusal

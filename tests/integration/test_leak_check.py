"""Documents flattened into one row must not see each other; a model that lets them is caught."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk

from autotune.core.job import Trainer
from autotune.core.outcome import Outcome
from autotune.core.result import read_result
from autotune.probe.protocol import ProbeSpec, RowPlan
from autotune.probe.runner import Runner
from tests.support.models import tiny_model
from tests.support.rows import write_job
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration

#: Every batch flattened by the collator, and packed.
SPACE = """
schema_version: 1
name: flattened
trainer: sft
describe: Flattened in every way.
knobs:
  per_device_train_batch_size: [2, 4]
  padding_free: [false, true]
  packing: [none, bfd]
  max_length: [32]
"""


def leaking_model(folder: Path) -> Path:
    """Write a state-space model: its scan runs on from one document into the next."""
    from transformers import MambaConfig

    tiny_model(folder)
    vocabulary = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    config = MambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, state_size=4)
    config.architectures = ["MambaForCausalLM"]
    config.save_pretrained(folder)
    return folder


@pytest.fixture
def command(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., Said]:
    return command_of(shared, monkeypatch, capsys, tmp_path)


def test_flattening_a_model_that_leaks_is_refused_once_and_said(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    rows = [{"text": "word " * n} for n in range(1, 30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "space.yaml").write_text(SPACE, "utf-8")
    leaking_model(tmp_path / "leaks")
    said = command(
        *("run", "--model", "leaks", "--dataset", "rows.jsonl", "--memory", "2GiB"),
        *("--space", "space.yaml", "--trials", "9", "--set", "bf16=false", "--out", "run"),
        *("--set", "max_length=32", "--allow", "effective-batch"),
    )
    assert 0 == said.code, said.err[-2000:]
    result = read_result(tmp_path / "run")
    flattened = [
        t.candidate.knobs
        for t in result.trials
        if t.candidate.get("padding_free") or t.candidate.get("packing") != "none"
    ]
    assert [] == flattened, "what leaks is no trial"
    refused = [s for s in result.skipped if "see each other" in s.reason]
    assert 1 == len(refused)
    probed = [json.loads(f.read_text("utf-8")) for f in (tmp_path / "run/trials").iterdir()]
    ends = [p["report"]["ending"]["outcome"] for p in probed]
    assert refused[0].count > ends.count(Outcome.INVALID) == 2, "one for each way of flattening"
    assert result.best_trial is not None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_an_attention_model_keeps_documents_apart(
    attention: str, shared: Shared, tmp_path: Path
) -> None:
    # BC17
    model, rows = write_job(tmp_path, [9 + n for n in range(16)])
    plan = RowPlan(worst=((14, 15),), paired=tuple(range(16)), block=tuple(range(16)))
    for flattens in ({"padding_free": True, "max_length": None}, {"packing": True}):
        options = {
            "per_device_train_batch_size": 2,
            "max_length": 64,
            "bf16": False,
            "attn_implementation": attention,
            **flattens,
        }
        spec = ProbeSpec(
            trainer=Trainer.SFT,
            model_dir=model,
            weights="random",
            options=options,
            device="cpu",
            rows_dir=rows,
            plan=plan,
            memory_only=True,
        )
        report = Runner(shared, tmp_path / "run").probe(spec, name="probe", deadline_s=600.0)
        assert report.measurement is not None, report.ending
        assert report.measurement.documents_mix is False
        assert attention == report.measurement.effective["attn_implementation"]


#: Weights that are kept in full precision and computed with in half, and weights in half precision.
HALF = [("float32", True), ("bfloat16", True), ("bfloat16", False)]
FLATTENED = [{"padding_free": True, "max_length": None}, {"packing": True, "max_length": 64}]


@pytest.mark.parametrize(("dtype", "bf16"), HALF)
@pytest.mark.parametrize("flattens", FLATTENED, ids=["padding-free", "packed"])
def test_kernels_that_take_half_precision_only_are_checked_as_they_train(
    dtype: str, bf16: bool, flattens: dict[str, Any], half_only: list[str], tmp_path: Path
) -> None:
    assert (False, True) == _checked(tmp_path, half_only[0], dtype, bf16, flattens)


def test_such_kernels_that_mix_documents_are_caught(half_only: list[str], tmp_path: Path) -> None:
    mixing = half_only[1]
    for dtype, bf16 in HALF:
        checked = _checked(tmp_path / f"{dtype}-{bf16}", mixing, dtype, bf16, FLATTENED[0])
        assert (True, True) == checked


def test_experts_that_round_by_the_tokens_they_get_do_not_count_as_mixing(tmp_path: Path) -> None:
    experts = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    experts |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    for dtype, bf16 in HALF:
        mixes, _ = _checked(
            tmp_path / f"{dtype}-{bf16}", "eager", dtype, bf16, FLATTENED[1], **experts
        )
        assert mixes is False


def _checked(
    folder: Path, attention: str, dtype: str, bf16: bool, options: dict[str, Any], **model: Any
) -> tuple[bool, bool]:
    """Return what the leak check says of a trainer, and whether it then trains."""
    from autotune.probe.child.leak import documents_mix
    from autotune.training.arguments import isolated
    from autotune.training.trainer import build_trainer

    _, rows = write_job(folder, [9 + n for n in range(8)])
    wanted = {
        "per_device_train_batch_size": 2,
        "attn_implementation": attention,
        "dtype": dtype,
        "bf16": bf16,
        "use_cpu": True,
        **options,
    }
    trainer = build_trainer(
        Trainer.SFT,
        options=isolated(Trainer.SFT, wanted, folder),
        model_dir=tiny_model(folder / "other", **model),
        weights="random",
        rows=load_from_disk(rows),
        device="cpu",
    )
    gradients = [p.grad for p in trainer.model.parameters()]
    mixes = documents_mix(trainer, packed=bool(options.get("packing")))
    assert gradients == [p.grad for p in trainer.model.parameters()], "it leaves nothing behind"
    return mixes, trainer.train().global_step == 1


@pytest.fixture
def half_only() -> Iterator[list[str]]:
    """Register two attention functions as flash kernels are: one right, one that sees everything.

    Both take their inputs in the precision the step computes in and refuse fp32.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.flash_attention import get_target_dtype
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attend(sees_all: bool) -> Callable[..., Any]:
        def forward(
            module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any
        ) -> tuple[Any, None]:
            target = get_target_dtype(query, module)
            if target is not None:
                query, key, value = (x.to(target) for x in (query, key, value))
            if query.dtype is torch.float32:
                raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
            if sees_all:
                mask = torch.ones_like(mask).tril()
            return sdpa_attention_forward(module, query, key, value, mask, **given)

        return forward

    names = ["half_only", "half_only_mixing"]
    for name, sees_all in zip(names, (False, True), strict=True):
        AttentionInterface.register(name, attend(sees_all))
        AttentionMaskInterface.register(name, sdpa_mask)
    yield names
    for name in names:
        del AttentionInterface._global_mapping[name], AttentionMaskInterface._global_mapping[name]

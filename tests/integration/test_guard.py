"""The equivalence guard on real TRL trainers: what is neutral passes, planted bugs are caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from autotune.core.equivalence import Compared, Update
from autotune.core.job import Trainer
from autotune.core.outcome import Outcome
from autotune.knobs.changes import change_class
from autotune.knobs.versions import unavailable
from autotune.probe.child.progress import Progress
from autotune.probe.equivalence import judge
from autotune.probe.protocol import GuardSide, GuardSpec
from tests.support.facts import candidate_of, facts_of
from tests.support.models import tiny_model
from tests.support.rows import write_job
from tests.support.scaled import scale_gradients

pytestmark = pytest.mark.integration

#: Sixteen rows of different lengths: two reference micro-batches.
TOKENS = tuple(12 + 9 * (row % 7) + row for row in range(16))
OWN: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "bf16": False,
    "max_length": 1024,
    "learning_rate": 1e-4,
}
#: Why the installed TRL is not asked for selective checkpointing; None when it is.
NO_SELECTIVE = unavailable(
    "gradient_checkpointing", "selective", Trainer.SFT, {"trl": version("trl")}
)
FLAT = {**OWN, "per_device_train_batch_size": 4, "padding_free": True, "max_length": None}
PACKED = {**OWN, "per_device_train_batch_size": 1, "packing": True, "max_length": 160}


class Guard:
    """One job in this process; the reference's update is run once."""

    def __init__(self, folder: Path) -> None:
        self.model_dir, self.rows_dir = write_job(folder, TOKENS)
        self.folder = folder
        self.reference = self.update(self.spec(OWN), OWN)

    def update(self, spec: GuardSpec, options: dict[str, Any], base: Any = None) -> Update:
        from autotune.probe.child.guard import run_update

        return run_update(spec, GuardSide(options=options), self.folder, Progress(), base=base)

    def spec(self, candidate: dict[str, Any]) -> GuardSpec:
        return GuardSpec(
            trainer=Trainer.SFT,
            model_dir=self.model_dir,
            weights="random",
            device="cpu",
            rows_dir=self.rows_dir,
            rows=tuple(range(len(TOKENS))),
            reference=GuardSide(options=OWN),
            candidate=GuardSide(options=candidate),
        )

    def judged(self, options: dict[str, Any], base: Any = None) -> tuple[Outcome, str]:
        candidate = self.update(self.spec(options), options, base)
        both = Compared(reference=self.reference, candidate=candidate, weights="random")
        ending = judge(both)
        return ending.outcome, ending.reason


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard(tmp_path_factory.mktemp("guard"))


@pytest.mark.parametrize(
    "options",
    [
        {**OWN, "per_device_train_batch_size": 3},
        {**OWN, "gradient_checkpointing": False, "pad_to_multiple_of": 64},
        pytest.param(
            {**OWN, "gradient_checkpointing_kwargs": {"selective": True}},
            marks=pytest.mark.skipif(bool(NO_SELECTIVE), reason=str(NO_SELECTIVE)),
        ),
        FLAT,
        PACKED,
        {**PACKED, "packing_strategy": "bfd_split", "per_device_train_batch_size": 2},
    ],
    ids=["split", "padded wider", "selective", "padding-free", "packed", "packed by two"],
)
def test_what_changes_nothing_passes(guard: Guard, options: dict[str, Any]) -> None:
    assert (Outcome.FITS, "") == guard.judged(options)


def test_dropout_is_off_whatever_the_job_says(guard: Guard) -> None:
    lora = {
        "use_peft": True,
        "lora_dropout": 0.3,
        "lora_r": 4,
        "lora_target_modules": ["q_proj", "v_proj"],
    }
    options = {**OWN, **lora}
    spec = guard.spec(options)
    one = guard.update(spec, options)
    split = {**options, "per_device_train_batch_size": 2}
    other = guard.update(spec, split)
    both = Compared(reference=one, candidate=other, weights="random")
    assert Outcome.FITS is judge(both).outcome


def preference_rows(trainer: Trainer, folder: Path) -> Path:
    """Write eight rows as the preparation of a preference trainer leaves them."""
    import datasets

    def ids(first: int, count: int) -> list[int]:
        return [5 + (first + at) % 40 for at in range(count)]

    rows: dict[str, list[Any]] = {"prompt_ids": [ids(r, 4 + r) for r in range(8)]}
    answers = [ids(3 * r, 5 + 2 * r) for r in range(8)]
    if trainer is Trainer.KTO:
        rows |= {"completion_ids": answers, "label": [r % 2 == 0 for r in range(8)]}
    else:
        rows |= {"chosen_ids": answers, "rejected_ids": [ids(7 * r + 1, 12) for r in range(8)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(folder))
    return folder


@pytest.mark.parametrize(
    ("trainer", "change"),
    [
        (Trainer.DPO, {"per_device_train_batch_size": 2}),
        (Trainer.DPO, {"precompute_ref_log_probs": True}),
        (Trainer.REWARD, {"per_device_train_batch_size": 2}),
        (Trainer.KTO, {}),
        (Trainer.KTO, {"precompute_ref_log_probs": True}),
    ],
)
def test_preference_trainers_are_compared_through_their_own_step(
    guard: Guard, trainer: Trainer, change: dict[str, Any], tmp_path: Path
) -> None:
    own = {**OWN, "per_device_train_batch_size": 4, "gradient_checkpointing": False}
    other = {**own, **change, "gradient_checkpointing": True}
    spec = guard.spec(other).model_copy(
        update={
            "trainer": trainer,
            "rows_dir": str(preference_rows(trainer, tmp_path / "rows")),
            "rows": tuple(range(8)),
        }
    )
    reference, candidate = guard.update(spec, own), guard.update(spec, other)
    assert reference.label_tokens == candidate.label_tokens > 0
    both = Compared(reference=reference, candidate=candidate, weights="random")
    assert Outcome.FITS is judge(both).outcome, judge(both).reason


PAIRWISE = (
    *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
    *("apo_zero", "apo_down", "discopop", "sigmoid_norm"),
)
#: Losses and what they are told; of each, whether an update depends on its split is claimed.
SPLITS: dict[str, tuple[Trainer, dict[str, Any]]] = {
    "dpo of pairs": (
        Trainer.DPO,
        {"loss_type": list(PAIRWISE), "label_smoothing": 0.1},
    ),
    "dpo of sorted sides": (Trainer.DPO, {"loss_type": ["aot_unpaired"]}),
    "dpo of several": (Trainer.DPO, {"loss_type": ["sigmoid", "sft"]}),
    "kto": (Trainer.KTO, {"loss_type": "kto"}),
    "kto without its KL term": (Trainer.KTO, {"loss_type": "apo_zero_unpaired"}),
    "reward kept around zero": (Trainer.REWARD, {"center_rewards_coefficient": 0.1}),
}


@pytest.mark.parametrize("case", SPLITS)
def test_what_is_claimed_of_a_split_is_what_trl_computes(
    guard: Guard, case: str, tmp_path: Path
) -> None:
    trainer, options = SPLITS[case]
    own = {**OWN, **options, "per_device_train_batch_size": 8, "gradient_checkpointing": False}
    split = {**own, "per_device_train_batch_size": 2}
    spec = guard.spec(split).model_copy(
        update={
            "trainer": trainer,
            "rows_dir": str(preference_rows(trainer, tmp_path / "rows")),
            "rows": tuple(range(8)),
        }
    )
    whole, parts = (guard.update(spec, side, apart(trainer)) for side in (own, split))
    agrees = judge(Compared(reference=whole, candidate=parts, weights="random")).outcome
    claimed = change_class(
        candidate_of(per_device_train_batch_size=2), facts_of(trainer=trainer, options=own)
    )
    assert (Outcome.FITS if claimed == "neutral" else Outcome.INVALID) is agrees


@pytest.mark.parametrize(
    "options",
    [{}, {"router_aux_loss_coef": 0.0}, {"label_smoothing_factor": 0.1}],
    ids=["balanced", "not balanced", "smoothed"],
)
def test_the_split_counts_where_experts_are_balanced(
    guard: Guard, options: dict[str, Any], tmp_path: Path
) -> None:
    strong = {"router_aux_loss_coef": 5.0, "num_local_experts": 4, "num_experts_per_tok": 2}
    experts = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", **strong}
    own = {**OWN, **options}
    split = {**own, "per_device_train_batch_size": 2}
    model_dir = str(tiny_model(tmp_path / "experts", **experts))
    spec = guard.spec(split).model_copy(update={"model_dir": model_dir})
    whole, parts = guard.update(spec, own), guard.update(spec, split)
    agrees = judge(Compared(reference=whole, candidate=parts, weights="random")).outcome
    facts = facts_of(moe=True, options=own)
    claimed = change_class(candidate_of(per_device_train_batch_size=2), facts)
    assert (Outcome.FITS if claimed == "neutral" else Outcome.INVALID) is agrees


def apart(trainer: Trainer, spread: float = 0.02) -> Any:
    """Return TRL's trainer with weights moved by noise, as after some updates."""
    import torch

    from autotune.training.prepared import trainer_class

    class Apart(trainer_class(trainer)):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            drawn = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for weight in self.model.parameters():
                    weight.add_(spread * torch.randn(weight.shape, generator=drawn))

    return Apart


def planted(change: Callable[[dict[str, Any]], None]) -> Any:
    """Return TRL's trainer with a bug between its collator and its step."""
    from trl import SFTTrainer

    class Planted(SFTTrainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            change(inputs)
            return super().training_step(model, inputs, *args, **kwargs)

    return Planted


def positions_run_on(inputs: dict[str, Any]) -> None:
    import torch

    width = inputs["input_ids"].shape[1]
    inputs["position_ids"] = torch.arange(width)[None, :]
    for name in ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"):
        inputs.pop(name, None)


def labels_shifted(inputs: dict[str, Any]) -> None:
    """Have every token predict the one after the next; the number of labels stays."""
    labels = inputs["labels"]
    for row in labels:
        trained = (row != -100).nonzero()[:, 0]
        row[trained] = row[trained].roll(-1)


@pytest.fixture
def tensor_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Return a switch: products of fp32 matrices keep tf32's ten bits, as ``tf32: true`` asks."""
    import torch

    def short(x: Any) -> Any:
        return (x.detach().contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return short(x) @ short(weight).T

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            x, weight = ctx.saved_tensors
            gradient = short(gradients[0])
            rows = gradient.reshape(-1, gradient.shape[-1])
            return gradient @ short(weight), rows.T @ short(x).reshape(-1, x.shape[-1])

    def linear(x: Any, weight: Any, bias: Any = None) -> Any:
        out = Product.apply(x, weight)
        return out if bias is None else out + bias

    own = torch.nn.functional.linear

    def switch(on: bool) -> None:
        monkeypatch.setattr(torch.nn.functional, "linear", linear if on else own)
        torch.backends.mkldnn.matmul.fp32_precision = "tf32" if on else "ieee"

    yield switch
    switch(False)


def test_products_in_tensor_cores_are_held_to_what_they_can_keep(
    guard: Guard, tensor_cores: Callable[[bool], None]
) -> None:
    trained = apart(Trainer.SFT, 0.2)
    tensor_cores(False)
    reference = guard.update(guard.spec(OWN), OWN, trained)
    tensor_cores(True)
    candidate = guard.update(guard.spec(OWN), OWN, trained)
    assert ("fp32", "tf32") == (reference.precision, candidate.precision)
    both = Compared(reference=reference, candidate=candidate, weights="random")
    assert Outcome.FITS is judge(both).outcome, judge(both).reason
    in_full = both.model_copy(
        update={"candidate": candidate.model_copy(update={"precision": "fp32"})}
    )
    assert Outcome.INVALID is judge(in_full).outcome, "full precision is held to more than that"


def test_planted_bugs_are_caught_in_tensor_cores_too(
    guard: Guard, tensor_cores: Callable[[bool], None]
) -> None:
    tensor_cores(True)
    whole, split = guard.update(guard.spec(OWN), OWN), {**OWN, "per_device_train_batch_size": 4}
    for options, bug in (
        (FLAT, planted(positions_run_on)),
        (PACKED, planted(positions_run_on)),
        (split, planted(labels_shifted)),
        (split, not_normalised()),
        (split, a_row_less()),
    ):
        candidate = guard.update(guard.spec(options), options, bug)
        both = Compared(reference=whole, candidate=candidate, weights="random")
        assert Outcome.INVALID is judge(both).outcome, both


@pytest.mark.parametrize("options", [FLAT, PACKED], ids=["padding-free", "packed"])
def test_positions_that_run_on_from_one_document_into_the_next_are_caught(
    guard: Guard, options: dict[str, Any]
) -> None:
    outcome, reason = guard.judged(options, planted(positions_run_on))
    assert Outcome.INVALID is outcome
    assert "loss" in reason or "gradient norm" in reason


def test_shifted_labels_are_caught(guard: Guard) -> None:
    outcome, reason = guard.judged(
        {**OWN, "per_device_train_batch_size": 4}, planted(labels_shifted)
    )
    assert Outcome.INVALID is outcome
    assert "loss" in reason


def not_normalised() -> Any:
    """Return TRL's trainer, averaging each micro-batch over its own tokens and adding them up."""
    from trl import SFTTrainer

    class Planted(SFTTrainer):  # type: ignore[misc]
        def compute_loss(self, *args: Any, num_items_in_batch: Any = None, **kwargs: Any) -> Any:
            return super().compute_loss(*args, **kwargs)

    return Planted


def test_accumulation_that_is_not_normalised_is_caught(guard: Guard) -> None:
    outcome, reason = guard.judged({**OWN, "per_device_train_batch_size": 4}, not_normalised())
    assert Outcome.INVALID is outcome
    assert "loss" in reason


def test_a_gradient_that_is_not_normalised_is_caught_though_the_loss_is_right(
    guard: Guard,
) -> None:
    from trl import SFTTrainer

    class Planted(SFTTrainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(1.01)
            return loss

    outcome, reason = guard.judged({**OWN, "per_device_train_batch_size": 4}, Planted)
    assert Outcome.INVALID is outcome
    assert "gradient norm" in reason


def a_row_less() -> Any:
    """Return TRL's trainer, leaving out the last row."""
    from trl import SFTTrainer

    class Planted(SFTTrainer):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.train_dataset = self.train_dataset.select(range(len(self.train_dataset) - 1))

    return Planted


def test_a_dropped_row_is_caught(guard: Guard) -> None:
    outcome, reason = guard.judged({**OWN, "per_device_train_batch_size": 4}, a_row_less())
    assert Outcome.INVALID is outcome
    assert "label tokens" in reason


HALF = {**OWN, "fp16": True, "use_cpu": True}


def test_an_update_in_fp16_is_compared_once_its_scale_has_settled(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale_gradients(monkeypatch)
    split = {**HALF, "per_device_train_batch_size": 4}
    monkeypatch.setattr("autotune.probe.child.guard._SCALE", 2.0**22)
    whole, parts = guard.update(guard.spec(HALF), HALF), guard.update(guard.spec(split), split)
    assert ("fp16", 2, 4) == (whole.precision, whole.micro_steps, parts.micro_steps)
    assert guard.reference.label_tokens == whole.label_tokens == parts.label_tokens
    both = Compared(reference=whole, candidate=parts, weights="random")
    assert Outcome.FITS is judge(both).outcome, judge(both).reason
    wrong = guard.update(guard.spec(split), split, not_normalised())
    both = Compared(reference=whole, candidate=wrong, weights="random")
    assert Outcome.INVALID is judge(both).outcome


def test_an_fp16_update_that_overflows_at_every_scale_is_not_compared(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import SFTTrainer

    class Overflows(SFTTrainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            next(iter(self.model.parameters())).grad.fill_(float("inf"))
            return loss

    scale_gradients(monkeypatch)
    whole = guard.update(guard.spec(HALF), HALF, Overflows)
    assert whole.grad_norm is None
    both = Compared(reference=whole, candidate=whole, weights="random")
    assert Outcome.NON_FINITE is judge(both).outcome

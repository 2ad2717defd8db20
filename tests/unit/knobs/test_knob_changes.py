from __future__ import annotations

from typing import Any

import pytest

from autotune.core.job import ALLOWABLE, Trainer
from autotune.knobs.catalog import KNOBS
from autotune.knobs.changes import change_class, word_for, words_for
from autotune.knobs.isolation import CHILD_ENV, LAUNCHER_ENV, OVERRIDES, SECRET_ENV, overridden
from tests.support.facts import candidate_of, facts_of

CHANGES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "checkpointing": ("neutral", {"gradient_checkpointing": "none"}, {}),
    "the batch split of a dense model": ("neutral", {"per_device_train_batch_size": 2}, {}),
    "the batch split of a mixture of experts": (
        "model",
        {"per_device_train_batch_size": 2},
        {"moe": True},
    ),
    "checkpointing of a mixture of experts": (
        "neutral",
        {"gradient_checkpointing": "none"},
        {"moe": True},
    ),
    "a pad multiple": ("neutral", {"pad_to_multiple_of": 8}, {}),
    "padding-free on rows cut as the user cuts them": ("neutral", {"padding_free": True}, {}),
    "another cut": ("data", {"max_length": 128}, {}),
    "a cut beyond every row": ("neutral", {"max_length": 4096}, {}),
    "best-fit packing": ("data", {"packing": "bfd"}, {}),
    "split packing": ("data", {"packing": "bfd_split"}, {}),
    "the batch split of KTO": (
        "model",
        {"per_device_train_batch_size": 2},
        {"trainer": Trainer.KTO},
    ),
    "the batch split of KTO without its KL term": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"trainer": Trainer.KTO, "options": {"loss_type": "apo_zero_unpaired"}},
    ),
    "the batch split of DPO": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"trainer": Trainer.DPO, "options": {"loss_type": ["sigmoid"]}},
    ),
    "the batch split of a DPO loss over the batch": (
        "model",
        {"per_device_train_batch_size": 2},
        {"trainer": Trainer.DPO, "options": {"loss_type": ["sigmoid", "aot"]}},
    ),
    "the batch split of DPO losses over pairs": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"trainer": Trainer.DPO, "options": {"loss_type": ["bco_pair", "ipo"]}},
    ),
    "the batch split of a mixture without auxiliary loss": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"moe": True, "options": {"router_aux_loss_coef": 0.0}},
    ),
    "the batch split of a mixture whose config has no auxiliary loss": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"moe": True, "traits": ["no-aux-loss"]},
    ),
    "the batch split of a mixture given an auxiliary loss": (
        "model",
        {"per_device_train_batch_size": 2},
        {"moe": True, "traits": ["no-aux-loss"], "options": {"router_aux_loss_coef": 0.1}},
    ),
    "the batch split of a mixture with smoothed labels": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"moe": True, "options": {"label_smoothing_factor": 0.1}},
    ),
    "the batch split of a mixture with smoothed labels dft ignores": (
        "model",
        {"per_device_train_batch_size": 2},
        {"moe": True, "options": {"label_smoothing_factor": 0.1, "loss_type": "dft"}},
    ),
    "the batch split of a reward model with experts": (
        "neutral",
        {"per_device_train_batch_size": 2},
        {"moe": True, "trainer": Trainer.REWARD},
    ),
    "the batch split under noise scaled by its width": (
        "model",
        {"per_device_train_batch_size": 2},
        {"options": {"neftune_noise_alpha": 5.0}},
    ),
    "padding under noise scaled by its width": (
        "model",
        {"pad_to_multiple_of": 64},
        {"options": {"neftune_noise_alpha": 5.0}},
    ),
    "the batch split of an optimizer that steps at once": (
        "model",
        {"per_device_train_batch_size": 2},
        {"options": {"optim": "adalomo"}},
    ),
    "adapters": ("model", {"peft": "lora"}, {}),
    "the rank of the user's own adapters": (
        "model",
        {"peft": "lora", "lora_r": 64},
        {"options": {"use_peft": True}},
    ),
    "the user's own adapters": ("neutral", {"peft": "lora"}, {"options": {"use_peft": True}}),
    "quantized weights": ("model", {"quantization": "4bit"}, {}),
    "the dtype of weights": ("model", {"dtype": "bfloat16"}, {}),
    "an 8-bit optimizer": ("model", {"optim": "adamw_8bit"}, {}),
    "the user's own 8-bit optimizer, paged": (
        "neutral",
        {"optim": "paged_adamw_8bit"},
        {"options": {"optim": "adamw_8bit"}},
    ),
    "the user's own wrapped rows": (
        "neutral",
        {"packing": "wrapped", "max_length": 512},
        {"options": {"packing": True, "packing_strategy": "wrapped", "max_length": 512}},
    ),
    "another AdamW of torch": ("neutral", {"optim": "adamw_torch"}, {}),
    "another loss": ("model", {"loss_type": "dft"}, {}),
    "another attention": ("neutral", {"attn_implementation": "eager"}, {}),
    "another attention of a model with softcapping": (
        "model",
        {"attn_implementation": "eager"},
        {"traits": ["softcap"]},
    ),
    "another order": ("data", {"train_sampling_strategy": "group_by_length"}, {}),
    "log-probabilities beforehand": (
        "neutral",
        {"precompute_ref_log_probs": True},
        {"trainer": Trainer.DPO},
    ),
    "log-probabilities beforehand of a reference that drops out": (
        "model",
        {"precompute_ref_log_probs": True, "peft": "lora"},
        {"trainer": Trainer.DPO, "options": {"use_peft": True}, "traits": ["dropout"]},
    ),
    "the user's own split packing where no row is split": (
        "neutral",
        {"packing": "bfd", "max_length": 1024},
        {"options": {"packing": True, "packing_strategy": "bfd_split"}},
    ),
    "wrapping": ("mixing", {"packing": "wrapped"}, {}),
    "wrapping a mixture of experts": ("mixing", {"packing": "wrapped"}, {"moe": True}),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_has_the_class_of_what_it_does(case: str) -> None:
    expected, knobs, made = CHANGES[case]
    assert expected == change_class(candidate_of(**knobs), facts_of(**made))


def test_every_change_has_a_word_of_allow_that_accepts_it() -> None:
    facts = facts_of(moe=True, traits=["softcap"])
    for row in KNOBS:
        for choice in row.choices or ():
            assert word_for(row.name, choice, facts) in ("", *ALLOWABLE)
    asked = words_for(
        candidate_of(peft="lora", lora_r=8, quantization="4bit", per_device_train_batch_size=2),
        facts,
    )
    assert ("peft", "quantization", "batch-split") == asked


def test_nothing_outside_a_probe_is_touched() -> None:
    replaced = {o.option: o.value for o in OVERRIDES}
    assert replaced["push_to_hub"] is False
    assert replaced["report_to"] == "none"
    assert replaced["save_strategy"] == "no"
    assert replaced["resume_from_checkpoint"] is None
    assert all(o.why for o in OVERRIDES)


def test_the_users_own_values_of_replaced_options_are_kept_for_what_is_emitted() -> None:
    mine = {
        "push_to_hub": True,
        "report_to": "wandb",
        "output_dir": "runs/x",
        "learning_rate": 1e-4,
        "save_strategy": "no",
    }
    kept = overridden(mine)
    assert kept == {"push_to_hub": True, "report_to": "wandb", "output_dir": "runs/x"}


def test_a_schedule_that_follows_evaluations_is_replaced_and_every_other_stays() -> None:
    (one,) = (o for o in OVERRIDES if o.option == "lr_scheduler_type")
    assert one.concerns({"lr_scheduler_type": "reduce_lr_on_plateau"})
    assert not one.concerns({"lr_scheduler_type": "cosine"})
    assert not one.concerns({})
    asked = {"lr_scheduler_type": "reduce_lr_on_plateau"}
    assert asked == overridden(asked)
    assert {} == overridden({"lr_scheduler_type": "cosine"})


def test_credentials_and_launcher_variables_are_named_and_never_given() -> None:
    assert {"HF_TOKEN", "WANDB_API_KEY"} <= set(SECRET_ENV)
    assert {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= set(LAUNCHER_ENV)
    assert not {*SECRET_ENV, *LAUNCHER_ENV} & set(CHILD_ENV)

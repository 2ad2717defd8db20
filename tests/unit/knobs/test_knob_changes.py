from __future__ import annotations

from typing import Any

import pytest

from autotune.knobs.changes import change_class
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
    "wrapping": ("mixing", {"packing": "wrapped"}, {}),
    "wrapping a mixture of experts": ("mixing", {"packing": "wrapped"}, {"moe": True}),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_has_the_class_of_what_it_does(case: str) -> None:
    expected, knobs, made = CHANGES[case]
    assert expected == change_class(candidate_of(**knobs), facts_of(**made))


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


def test_credentials_and_launcher_variables_are_named_and_never_given() -> None:
    assert {"HF_TOKEN", "WANDB_API_KEY"} <= set(SECRET_ENV)
    assert {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= set(LAUNCHER_ENV)
    assert not {*SECRET_ENV, *LAUNCHER_ENV} & set(CHILD_ENV)

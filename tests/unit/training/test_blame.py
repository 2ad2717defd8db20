"""The option a library's refusal is about, found by leaving out one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.training.blame import blamed


def refuse(options: dict[str, Any]) -> None:
    """Refuse like libraries do: the first thing they stumble over, in their own words."""
    if options.get("use_peft") and options.get("lora_r", 16) < 1:
        raise ValueError(f"`r` should be a positive integer but is {options.get('lora_r')}")
    if options.get("learning_rate", 1.0) < 0:
        raise ValueError("Invalid learning rate")
    if "foo" in options.get("lr_scheduler_kwargs", {}):
        raise ValueError("get_cosine() got an unexpected argument 'foo'")


def name_of(options: dict[str, Any]) -> str | None:
    with pytest.raises(ValueError) as caught:
        refuse(options)
    return blamed(options, refuse, caught.value, (ValueError,))


def test_the_option_whose_value_is_shown_is_to_blame_and_not_the_switch_beside_it() -> None:
    assert "lora_r" == name_of({"use_peft": True, "lora_r": 0})


def test_an_option_is_named_by_what_helps_even_when_no_value_is_shown() -> None:
    assert "learning_rate" == name_of({"seed": 3, "learning_rate": -1.0})


def test_of_two_that_are_refused_the_first_to_be_refused_is_named() -> None:
    options = {"learning_rate": -1.0, "use_peft": True, "lora_r": 0}
    assert "lora_r" == name_of(options)


def test_a_key_of_a_nested_option_names_the_nested_option() -> None:
    options = {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"foo": 1}}
    assert "lr_scheduler_kwargs" == name_of(options)


def test_what_is_refused_without_any_option_too_is_nobodys_fault() -> None:
    def always(_: dict[str, Any]) -> None:
        raise ValueError("no")

    assert blamed({"seed": 1}, always, ValueError("no"), (ValueError,)) is None


def test_an_attempt_that_dies_of_something_else_clears_nobody() -> None:
    def attempt(options: dict[str, Any]) -> None:
        if len(options) < 2:
            raise RuntimeError("meta tensors have no data")
        raise ValueError("no")

    known = (ValueError, RuntimeError)
    assert blamed({"a": 1, "b": 2}, attempt, ValueError("no"), known) is None

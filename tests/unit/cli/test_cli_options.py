"""What is typed reaches the request under its name, and only what was typed counts as asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from autotune.cli.app import app
from autotune.cli.options import request_of
from autotune.intake.request import Request


def typed(command: str, *arguments: str) -> typer.Context:
    group: Any = typer.main.get_command(app)
    context: typer.Context = group.commands[command].make_context(command, list(arguments))
    return context


def test_what_is_typed_is_asked_for_even_where_it_is_the_default() -> None:
    found = request_of(
        typed("run", "--trainer", "sft", "--set", "a=1", "--allow", "peft, mixing", "--out", "x")
    )
    assert {"trainer", "allow", "out"} == set(found.given)
    expected = Request(set_options={"a": 1}, allow=("peft", "mixing"), out="x")
    assert expected == dataclasses.replace(found, given=())


def test_an_option_that_only_has_a_fields_name_is_left_out() -> None:
    found = request_of(typed("predict", "--out", "folder", "--memory", "2GiB"), but=("out",))
    assert (None, "2GiB", ("memory",)) == (found.out, found.memory, found.given)


def test_every_command_with_a_job_asks_for_a_request() -> None:
    for command in ("run", "probe", "predict", "profile"):
        found = request_of(typed(command, "--trainer", "kto", "--seed", "3"))
        assert ("kto", 3) == (found.trainer, found.seed)

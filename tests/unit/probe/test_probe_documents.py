"""Requests and replies as files: whole or absent, of this version or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.core.errors import ToolFailure
from autotune.knobs.isolation import CHILD_ENV
from autotune.probe.documents import read_reply, read_request, write_document
from autotune.probe.launcher import child_environment
from autotune.probe.protocol import InspectSpec, Reply, Request
from tests.support.facts import lengths_of, measurement_of, spec_of


def test_a_request_comes_back_as_it_was_written(tmp_path: Path) -> None:
    request = Request(spec=spec_of(lengths_of([3, 4]), max_length=None, packing=False))
    write_document(tmp_path / "request.json", request)
    assert read_request(tmp_path / "request.json") == request


def test_a_kind_of_request_is_told_by_its_name(tmp_path: Path) -> None:
    write_document(tmp_path / "request.json", Request(spec=InspectSpec(matmul=True)))
    assert read_request(tmp_path / "request.json").spec == InspectSpec(matmul=True)


def test_writing_leaves_no_other_file(tmp_path: Path) -> None:
    for _ in range(2):
        write_document(tmp_path / "reply.json", Reply(measurement=measurement_of()))
    assert [p.name for p in tmp_path.iterdir()] == ["reply.json"]


def test_no_reply_is_none_and_a_damaged_one_is_a_failure_of_the_tool(tmp_path: Path) -> None:
    assert read_reply(tmp_path / "reply.json") is None
    (tmp_path / "reply.json").write_text("{", encoding="utf-8")
    with pytest.raises(ToolFailure, match="same autotune"):
        read_reply(tmp_path / "reply.json")


def test_a_document_of_another_version_is_refused(tmp_path: Path) -> None:
    document = json.loads(Request(spec=InspectSpec()).model_dump_json())
    (tmp_path / "request.json").write_text(
        json.dumps({**document, "schema_version": 2}), encoding="utf-8"
    )
    with pytest.raises(ToolFailure, match="schema version 1"):
        read_request(tmp_path / "request.json")


def test_a_process_keeps_the_users_environment_less_a_launchers_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("MY_OWN", "kept")
    monkeypatch.setenv("WANDB_MODE", "online")
    made = child_environment({"EXTRA": "1", "TQDM_DISABLE": "0"})
    assert "LOCAL_RANK" not in made
    assert made["MY_OWN"] == "kept"
    assert made["WANDB_MODE"] == CHILD_ENV["WANDB_MODE"] == "disabled"
    assert made["EXTRA"] == "1"
    assert made["TQDM_DISABLE"] == "1", "isolation wins over the job's own variables"

"""The JSON Schema with which editors complete, explain and check search-space files.

It knows every knob with its choices and, by trainer, which knobs there are; what else a file may
not say is found by `autotune.spaces.check`. A file names its schema in a comment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from autotune.knobs.catalog import KNOBS
from autotune.knobs.knob import OFFLINE, Knob
from autotune.spaces.schema import Space

#: The comment that editors with the YAML language server read.
_NAMED = re.compile(r"^# yaml-language-server: \$schema=\./schema\.json$", re.MULTILINE)

_EXPLAINED = {
    "schema_version": "version of this format",
    "name": "what the space is called in reports",
    "trainer": "the trainer it is for; any: each leaves out the knobs it does not have",
    "describe": "one line on what it is good for",
    "knobs": "what to try: knobs with their choices",
}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 7) of a search-space file."""
    listed = {row.name: _listed(row) for row in KNOBS}
    when = {
        "description": "try it only where other knobs have one of these choices; one that is not "
        "searched has the choice of your own config",
        "type": "object",
        "additionalProperties": False,
        "properties": {row.name: _choices(row) for row in KNOBS},
    }
    typed: dict[str, dict[str, Any]] = {
        "schema_version": {"const": 1},
        "name": {"type": "string", "minLength": 1},
        "trainer": {"enum": [*(t.value for t in OFFLINE), "any"]},
        "describe": {"type": "string", "minLength": 1},
        "knobs": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {row.name: _knob(row) for row in KNOBS},
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "autotune search space",
        "type": "object",
        "additionalProperties": False,
        "required": list(Space.model_fields),
        "properties": {n: {"description": _EXPLAINED[n], **typed[n]} for n in Space.model_fields},
        "allOf": [_only_its_knobs(trainer.value) for trainer in OFFLINE],
        "definitions": {"choices": listed, "when": when},
    }


def with_schema(text: str, folder: Path) -> str:
    """Return the text of a shipped space with its schema named by where it lies.

    Args:
        text: the file as it is shipped, beside the schema.
        folder: the folder of both.
    """
    named = f"# yaml-language-server: $schema={(folder / 'schema.json').as_uri()}"
    return _NAMED.sub(lambda _: named, text)


def _listed(row: Knob) -> dict[str, Any]:
    if row.choices is not None:
        item: dict[str, Any] = {"enum": list(row.choices)}
    else:
        types = ["integer", "null"] if row.nullable else "integer"
        item = {"type": types, "minimum": 1, "maximum": row.largest}
    listed = {"type": "array", "minItems": 1, "uniqueItems": True, "items": item}
    return {"description": row.help, **listed}


def _choices(row: Knob) -> dict[str, Any]:
    return {"$ref": f"#/definitions/choices/{row.name}"}


def _knob(row: Knob) -> dict[str, Any]:
    either = [{"const": "auto"}, _choices(row)]
    conditional = {
        "type": "object",
        "required": ["choices"],
        "additionalProperties": False,
        "properties": {"choices": {"anyOf": either}, "when": {"$ref": "#/definitions/when"}},
    }
    return {"description": row.help, "anyOf": [*either, conditional]}


def _only_its_knobs(trainer: str) -> dict[str, Any]:
    has = [row.name for row in KNOBS if trainer in [t.value for t in row.trainers]]
    return {
        "if": {"properties": {"trainer": {"const": trainer}}, "required": ["trainer"]},
        "then": {"properties": {"knobs": {"propertyNames": {"enum": has}}}},
    }

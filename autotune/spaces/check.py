"""Checks a search-space file against the knob table, and says where a mistake in it is.

One sentence a mistake: file and line, what was found, what was expected. What is valid together is
for the rules; a file that lists an impossible combination is fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from autotune.core.errors import BadInput, nearest
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME, KNOBS
from autotune.knobs.knob import Knob
from autotune.spaces.document import Document
from autotune.spaces.schema import Dimension, Space, as_written

_EXAMPLE = "`autotune spaces show sft` prints a complete example."
_KEYS = tuple(Space.model_fields)
_TRAINERS = get_args(Space.model_fields["trainer"].annotation)
#: Options that a knob of another name turns.
_TURNED_BY = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing",
    "gradient_checkpointing_kwargs": "gradient_checkpointing",
    "gradient_accumulation_steps": "per_device_train_batch_size",
    "packing_strategy": "packing",
    "torch_dtype": "dtype",
    **{option: row.name for row in KNOBS for option in row.fixed_by},
}
#: Longest value quoted in a sentence, in characters.
_QUOTED = 60


def check_space(document: Document) -> None:
    """Check that a document is a search space.

    Raises:
        BadInput: it is none; says the file, the line and the first mistake.
    """
    space, at = document.value, document.at()
    if not isinstance(space, dict):
        raise BadInput(
            f"{at}: the file holds {_kind(space)}, expected a mapping with {_listed(_KEYS)}.",
            _EXAMPLE,
        )
    _check_keys(document, (), space, _KEYS, _KEYS)
    version = space["schema_version"]
    if version != 1 or type(version) is not int:
        raise BadInput(
            f"{document.at('schema_version')}: schema_version is {_shown(version)}, expected 1, "
            "the only one this version of autotune reads."
        )
    for key in ("name", "describe"):
        if not isinstance(space[key], str) or not space[key].strip():
            raise BadInput(
                f"{document.at(key)}: {key} is {_shown(space[key])}, expected text.",
                "Numbers and words such as null and true are text in quotes.",
            )
    trainer, knobs = space["trainer"], space["knobs"]
    if trainer not in _TRAINERS:
        # The others of TRL's trainers have no knobs yet, and mean none of these.
        known = trainer in [t.value for t in Trainer]
        close = "" if known else nearest(str(trainer).lower(), list(_TRAINERS))
        raise BadInput(
            f"{document.at('trainer')}: trainer is {_shown(trainer)}, expected "
            f"{_listed(_TRAINERS, 'or')}{close or '.'}"
        )
    if not isinstance(knobs, dict) or not knobs:
        found = "an empty mapping" if knobs == {} else _kind(knobs)
        raise BadInput(
            f"{document.at('knobs')}: knobs is {found}, expected knobs with their choices.",
            _EXAMPLE,
        )
    for name, dimension in knobs.items():
        _check_knob(document, name, trainer, ("knobs", name))
        _check_dimension(document, name, dimension)
    for name in knobs:
        _check_circle(document, name, knobs)


def _shown(value: Any) -> str:
    """Return a value as it is written in YAML, text in quotes, cut where it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _QUOTED else value[:_QUOTED] + "...")
    return as_written(value) if value is None else _kind(value)


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", set: "a set", type(None): "nothing"}
    return kinds.get(type(value)) or as_written(value)[:_QUOTED]


def _listed(words: Iterable[str], last: str = "and") -> str:
    *first, final = words
    return f"{', '.join(first)} {last} {final}" if first else final


def _check_keys(
    document: Document,
    where: tuple[str, ...],
    mapping: Mapping[Any, Any],
    known: tuple[str, ...],
    required: tuple[str, ...],
) -> None:
    whose = where[-1] if where else "a search space"
    for key in mapping:
        if key not in known:
            close = nearest(str(key), list(known))
            raise BadInput(
                f"{document.at(*where, key)}: unknown key {_shown(key)}{close or '.'}",
                f"The keys of {whose} are {_listed(known)}.",
            )
    for key in required:
        if key not in mapping:
            raise BadInput(
                f"{document.at(*where)}: {key} is missing; the keys of {whose} are "
                f"{_listed(known)}.",
                _EXAMPLE,
            )


def _check_knob(document: Document, name: Any, trainer: str, where: tuple[Any, ...]) -> None:
    """Check that a name is a knob, and one that the trainer has."""
    at = document.at(*where)
    if name not in BY_NAME:
        if name in _TURNED_BY:
            raise BadInput(f"{at}: {name} is turned by the knob {_TURNED_BY[name]}.", "Name that.")
        raise BadInput(
            f"{at}: unknown knob {_shown(name)}{nearest(str(name), sorted(BY_NAME)) or '.'}",
            f"Knobs are {_listed(BY_NAME)}.",
        )
    has = [t.value for t in BY_NAME[name].trainers]
    if trainer != "any" and trainer not in has:
        raise BadInput(
            f"{at}: {trainer} has no {name}; it is a knob of {_listed(has)}.",
            "Remove it, or write trainer: any, where each leaves out the knobs it does not have.",
        )


def _check_dimension(document: Document, name: str, dimension: Any) -> None:
    where: tuple[Any, ...] = ("knobs", name)
    if not isinstance(dimension, dict):
        _check_choices(document, where, BY_NAME[name], dimension)
        return
    _check_keys(document, where, dimension, tuple(Dimension.model_fields), ("choices",))
    _check_choices(document, (*where, "choices"), BY_NAME[name], dimension["choices"])
    conditions = dimension.get("when", {})
    if not isinstance(conditions, dict):
        raise BadInput(
            f"{document.at(*where, 'when')}: when of {name} is {_shown(conditions)}, expected "
            "knobs with the choices under which it is tried, such as {packing: [none]}."
        )
    for other, allowed in conditions.items():
        _check_condition(document, (*where, "when", other), other, allowed)


def _check_condition(document: Document, where: tuple[Any, ...], other: Any, allowed: Any) -> None:
    space = document.value
    _check_knob(document, other, space["trainer"], where)
    if not isinstance(allowed, list) or not allowed:
        found = "an empty list" if allowed == [] else _shown(allowed)
        raise BadInput(
            f"{document.at(*where)}: when {other} is {found}, expected a list of choices"
            f"{_in_a_list(BY_NAME[other], allowed)}."
        )
    _check_choices(document, where, BY_NAME[other], allowed)
    dimension = space["knobs"].get(other)
    tried = dimension.get("choices") if isinstance(dimension, dict) else dimension
    if isinstance(tried, list) and not any(a in tried for a in allowed):
        raise BadInput(
            f"{document.at(*where)}: {where[1]} is tried when {other} is "
            f"{_listed(map(as_written, allowed), 'or')}, which this space never tries.",
            f"It tries {_listed(map(as_written, tried))}.",
        )


def _check_choices(document: Document, where: tuple[Any, ...], row: Knob, choices: Any) -> None:
    at = document.at(*where)
    if choices == "auto":
        return
    if not isinstance(choices, list) or not choices:
        found = "an empty list" if choices == [] else _shown(choices)
        raise BadInput(
            f"{at}: {row.name} is {found}, expected auto or a list of choices"
            f"{_in_a_list(row, choices)}."
        )
    for index, choice in enumerate(choices):
        at = document.at(*where, index)
        if not row.accepts(choice):
            raise BadInput(f"{at}: {row.name} cannot be {_shown(choice)}, {_expected(row, choice)}")
        if choice in choices[:index]:
            raise BadInput(
                f"{at}: {row.name} lists {as_written(choice)} twice.", "Keep one of them."
            )


def _in_a_list(row: Knob, choice: Any) -> str:
    return f": write [{as_written(choice)}]" if row.accepts(choice) else ""


def _expected(row: Knob, choice: Any) -> str:
    """Say what is expected instead of a choice that a knob does not have."""
    if choice == "auto":
        return "auto stands alone: write auto instead of the list."
    if row.choices is None:
        known = [f"a whole number from 1 to {row.largest:,}", *(["null"] if row.nullable else [])]
    else:
        known = list(map(as_written, row.choices))
    expected = f"expected {_listed(known, 'or')}"
    if not isinstance(choice, str | None):
        return f"{expected}."
    if isinstance(choice, str) and (choice in known or choice.isdecimal()):
        return f"{expected}: remove the quotes."
    return expected + (nearest(as_written(choice), known) or ".")


def _check_circle(document: Document, name: str, knobs: Mapping[str, Any]) -> None:
    """Check that no knob depends on itself, by way of others or not."""
    reached, left = set(), [name]
    while left:
        dimension = knobs.get(left.pop())
        for other in dimension.get("when", {}) if isinstance(dimension, dict) else ():
            if other == name:
                raise BadInput(
                    f"{document.at('knobs', name, 'when')}: {name} depends on itself.",
                    "Remove one of the conditions.",
                )
            if other not in reached:
                reached.add(other)
                left.append(other)

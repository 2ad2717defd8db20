"""Checks that the user's values are of the types and choices TRL declares, before it uses them.

TRL's parser looks at text from a command line and passes on whatever a YAML holds. What is declared
right and still refused is the business of ``constructs``.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from autotune.core.errors import BadInput, nearest

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a mapping",
    list: "a list",
    type(None): "null",
}


#: Types that work where TRL's declaration is too narrow: transformers declares
#: ``resume_from_checkpoint`` as text, and hands it to ``Trainer.train(str | bool)``.
_WIDER: dict[str, Any] = {"resume_from_checkpoint": str | bool | None}


def check_types(
    options: Mapping[str, Any], owners: Mapping[str, str], classes: Mapping[str, Any]
) -> None:
    """Stop at a value that is not of the type, or none of the choices, of its option's declaration.

    Args:
        options: values as the user wrote them.
        owners: which of the classes declares each option.
        classes: TRL's argument classes.

    Raises:
        BadInput: names the option, what was found and what is expected.
    """
    hints = {owner: typing.get_type_hints(cls) for owner, cls in classes.items()}
    declared = {owner: {f.name: f for f in fields(cls)} for owner, cls in classes.items()}
    for name, value in options.items():
        hint = _WIDER.get(name, hints[owners[name]][name])
        # TRL takes one word where it declares a list of them, and a YAML's ``no`` is false.
        if not (_is(value, hint) or _is([value], hint) or (value is False and _is("no", hint))):
            raise BadInput(f"{name} is {value!r}, expected {_shown(hint)}.")
        choices = declared[owners[name]][name].metadata.get("choices")
        if choices and value is not None and value not in choices:
            known = [str(choice) for choice in choices]
            raise BadInput(
                f"{name} is {value!r}, expected {' or '.join(map(repr, known))}"
                f"{nearest(str(value), known)}."
            )


def _is(value: Any, hint: Any) -> bool:
    from pydantic import ConfigDict, TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:
        return True
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _shown(hint: Any) -> str:
    """Return a declared type in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_shown(part) for part in inner))
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(repr(member.value) for member in hint)
    return _WORDS.get(origin or hint, getattr(hint, "__name__", str(hint)))

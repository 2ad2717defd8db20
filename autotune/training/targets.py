"""Whether the modules a user names for adapters are modules of their model.

PEFT refuses names of which none matches, without a word of those there are, and passes over the
one of several that matches nothing. Compares names with a model built without weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.core.errors import BadInput
from autotune.training.anatomy import Anatomy

_TARGETS, _SAVED = "lora_target_modules", "lora_modules_to_save"


def check_targets(options: Mapping[str, Any], anatomy: Anatomy) -> list[str]:
    """Return a remark on every option of which some names match no module.

    Args:
        options: the user's options with their final types.
        anatomy: their model.

    Raises:
        BadInput: no layer would get adapters; lists the layers the model has.
    """
    if not options.get("use_peft"):
        return []
    modules = [name for name, _ in anatomy.model.named_modules() if name]
    has = f"This model's layers are {', '.join(anatomy.layers())}."
    targets = _asked(options.get(_TARGETS))
    if len(targets) == 1:
        _check_pattern(targets[0], modules, has)
        targets = ()
    found = []
    for option, asked in ((_TARGETS, targets), (_SAVED, _asked(options.get(_SAVED)))):
        missing = [one for one in asked if not _named(one, modules)]
        shown = ", ".join(missing)
        if missing and option == _TARGETS and len(missing) == len(asked):
            raise BadInput(f"{option} {shown}: no module of this model has such a name.", has)
        if missing:
            found.append(
                f"{len(missing)} of the {len(asked)} names in {option} match no module of this "
                f"model, and PEFT passes over them: {shown}. {has}"
            )
    return found


def _check_pattern(pattern: str, modules: Sequence[str], has: str) -> None:
    """Check a single target, which TRL hands on as a regular expression of whole names.

    Source: ``ModelConfig.__post_init__`` (trl 1.16) and PEFT's ``match_target_against_key``.

    Raises:
        BadInput: nothing matches.
    """
    try:
        if any(re.fullmatch(pattern, name) for name in modules):
            return
    except re.error:
        pass  # whether it was meant as one or not, it matches nothing
    if _named(pattern, modules):
        raise BadInput(
            f"{_TARGETS} {pattern}: TRL takes a single name as a regular expression of the whole "
            "name of a module, and none matches.",
            rf"Write .*\.{pattern} instead.",
        )
    raise BadInput(f"{_TARGETS} {pattern}: no module of this model has such a name.", has)


def _asked(value: Any) -> Sequence[str]:
    if value is None or value == "all-linear" or list(value) == ["all-linear"]:
        return ()
    return [value] if isinstance(value, str) else [str(one) for one in value]


def _named(asked: str, modules: Sequence[str]) -> bool:
    return any(name == asked or name.endswith(f".{asked}") for name in modules)

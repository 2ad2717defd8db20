"""Merge the tuner's environment variables into the user's, option lists by option.

An allocator setting such as ``expandable_segments:True`` is one entry of a list in one variable;
replacing the variable would drop the user's other entries. Does not set any variable.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.knobs.versions import at_least

#: Both configure torch's allocator. The first is read since PyTorch 2.10, and first; the second is
#: the only one before it, and the only one vLLM's sleep mode looks at.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def allocator_variable(versions: Mapping[str, str]) -> str:
    """Return the newest variable of allocator settings that the installed torch reads.

    Args:
        versions: installed versions by distribution name; torch missing counts as the newest.
    """
    return ALLOCATOR_VARIABLES[0 if at_least(versions, "torch", "2.10") else 1]


def allocator_entries(own: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, str | None]:
    """Return the allocator settings torch reads from the user's variables, by name."""
    name = allocator_variable(versions)
    return dict(_entries(own.get(_target(name, own), "")))


def merge_env(own: Mapping[str, str], tuned: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables with the tuner's merged in.

    Args:
        own: the user's, in their order; their allocator variable's name is kept where torch
            reads it.
        tuned: the tuner's; wins where both set the same thing.
    """
    merged = dict(own)
    for name, value in tuned.items():
        if name not in ALLOCATOR_VARIABLES:
            merged[name] = value
            continue
        target = _target(name, own)
        merged[target] = _merge_list(own.get(target, ""), value)
    return merged


def _target(name: str, own: Mapping[str, str]) -> str:
    """Return the variable to write instead of ``name``: never a second one beside the user's.

    torch reads one of the two and warns about the other. Where the newer is read, so is the older.
    """
    read = ALLOCATOR_VARIABLES[ALLOCATOR_VARIABLES.index(name) :]
    return next((known for known in read if known in own), name)


def _merge_list(own: str, tuned: str) -> str:
    entries = dict(_entries(own))
    entries.update(_entries(tuned))
    return ",".join(key if value is None else f"{key}:{value}" for key, value in entries.items())


def _entries(text: str) -> list[tuple[str, str | None]]:
    """Split ``a:1,b:[256:1,512:2]`` at the commas outside brackets."""
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    parts.append(current)
    pairs = [part.strip().partition(":") for part in parts if part.strip()]
    return [(key.strip(), value.strip() if colon else None) for key, colon, value in pairs]

"""Merge the tuner's environment variables into the user's, option lists by option.

An allocator setting such as ``expandable_segments:True`` is one entry of a list in one variable;
replacing the variable would drop the user's other entries. Does not set any variable.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Both names configure torch's allocator; the first is the one since PyTorch 2.10.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def merge_env(own: Mapping[str, str], tuned: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables with the tuner's merged in.

    Args:
        own: the user's, in their order; their allocator variable's name is kept.
        tuned: the tuner's; wins where both set the same thing.
    """
    merged = dict(own)
    for name, value in tuned.items():
        if name not in ALLOCATOR_VARIABLES:
            merged[name] = value
            continue
        names = [n for n in ALLOCATOR_VARIABLES if n in merged]
        # torch reads one of the two names and warns about the other: never set a second one.
        target = names[0] if names else name
        merged[target] = _merge_list(merged.get(target, ""), value)
    return merged


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

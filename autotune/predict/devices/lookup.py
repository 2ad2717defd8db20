"""Finds a device of the catalogue by what people and drivers call it."""

from __future__ import annotations

import re

from autotune.core.errors import BadInput, nearest
from autotune.predict.devices.catalogue import CATALOGUE, Spec

#: Words that tell makers and packages apart, never devices.
_NOISE = re.compile(
    r"nvidia|geforce|amd|instinct|tesla|graphics|\bgpu\b|\bcard\b|hbm\de?|\boam\b|\bhgx\b|sxm\d?"
)
_SIZE = re.compile(r"\b(\d{2,3})(?:\s*g(?:i?b)?)?\b")


def find_device(name: str) -> Spec:
    """Return the device a name means.

    Args:
        name: e.g. ``rtx-4090``, ``NVIDIA GeForce RTX 4090``, ``A100-SXM4-80GB`` or ``h100``.

    Raises:
        BadInput: no device is called so, or several are; names the nearest or all of them.
    """
    key, size = _plain(name)
    found = [s for s in CATALOGUE if key in s.keys and size in (None, s.label_gb)]
    if len(found) == 1:
        return found[0]
    if found:
        sizes = " or ".join(s.name.lower() for s in found)
        raise BadInput(f"--gpu {name} comes in several sizes.", f"Say {sizes}.")
    names = [s.name.lower() for s in CATALOGUE]
    guess = nearest(key, sorted({k for s in CATALOGUE for k in s.keys}))
    raise BadInput(
        f"--gpu {name!r} is not in the catalogue{guess}.",
        f"It has {', '.join(names)}. For another one name the most alike and give its --memory.",
    )


def _plain(name: str) -> tuple[str, int | None]:
    """Return a name without separators and makers' words, and the size in GB that it carries."""
    text = re.sub(r"[-_/,()]+", " ", name.lower())
    size = _SIZE.search(text)
    text = _NOISE.sub(" ", _SIZE.sub(" ", text))
    return re.sub(r"[^a-z0-9]", "", text), int(size.group(1)) if size else None

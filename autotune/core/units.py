"""Sizes, shares and durations: read from what people type, written for people.

Inside autotune every size is bytes, every duration seconds, every share a ratio in 0..1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from autotune.core.errors import BadInput

_BYTES = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"^\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-zA-Z%]*)\s*$")


def parse_bytes(text: str, what: str = "size") -> int:
    """Read a memory size such as ``22GiB``, ``512MiB`` or ``24GB``.

    Args:
        text: a number with a unit; GiB is 2**30 bytes, GB 10**9 bytes.
        what: the option it came from, named in the error.

    Raises:
        BadInput: the text is not a size above zero with a known unit.
    """
    match = _NUMBER.match(text)
    unit = match.group(2).lower() if match else None
    if match is None or unit not in _BYTES or (unit == "" and float(match.group(1)) < 2**20):
        raise BadInput(
            f"{what} is {text!r}, expected a number with a unit such as 22GiB, 512MiB or 24GB.",
            "Write the unit out; GiB is 2**30 bytes and GB is 10**9 bytes.",
        )
    value = int(float(match.group(1)) * _BYTES[unit])
    if value <= 0:
        raise BadInput(f"{what} is {text!r}, expected more than zero.")
    return value


def parse_ratio(text: str, what: str = "share") -> float:
    """Read a share such as ``5%`` or ``0.05`` as a ratio.

    Raises:
        BadInput: the text is not a share between 0 % and 100 %.
    """
    match = _NUMBER.match(text)
    if match is None or match.group(2) not in ("", "%"):
        raise BadInput(f"{what} is {text!r}, expected a share such as 5% or 0.05.")
    value = float(match.group(1)) / (100.0 if match.group(2) == "%" else 1.0)
    if value > 1.0:
        raise BadInput(f"{what} is {text!r}, expected at most 100 %.", "Write 5% or 0.05.")
    return value


def parse_duration(text: str, what: str = "duration") -> float:
    """Read a duration such as ``10m``, ``90s`` or ``1.5h`` as seconds.

    Raises:
        BadInput: the text is not a duration above zero.
    """
    match = _NUMBER.match(text)
    if match is None or match.group(2).lower() not in _SECONDS or float(match.group(1)) <= 0:
        raise BadInput(f"{what} is {text!r}, expected a duration such as 90s, 10m or 2h.")
    return float(match.group(1)) * _SECONDS[match.group(2).lower()]


def show_bytes(value: int) -> str:
    """Write bytes for a person, in MiB below 1 GiB and in GiB above."""
    if abs(value) < 2**30:
        return f"{value / 2**20:,.1f} MiB"
    return f"{value / 2**30:,.2f} GiB"


def show_alike(values: Iterable[int]) -> list[str]:
    """Write bytes that are read beside each other in one unit: that of the largest."""
    known = list(values)
    if max(map(abs, known), default=0) < 2**30:
        return [show_bytes(value) for value in known]
    return [f"{value / 2**30:,.2f} GiB" for value in known]


def show_duration(seconds: float) -> str:
    """Write seconds for a person: ``0.42 s``, ``12 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def show_ratio(value: float) -> str:
    """Write a ratio as a percentage with one decimal, never rounding a loss up to 100 %."""
    return f"{min(value, 0.999) * 100:.1f} %" if 0.999 <= value < 1 else f"{value * 100:.1f} %"

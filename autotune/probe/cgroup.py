"""Reads what a control group (a container, a batch system) lets its processes have."""

from __future__ import annotations

from pathlib import Path

_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def cgroup_limit() -> int | None:
    """Return the memory limit in bytes; None where there is none or it cannot be read."""
    for file in _LIMITS:
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return None

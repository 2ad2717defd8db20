"""Has glibc's heap hold what is alive and no more, while the memory of a process is measured.

glibc gives large blocks pages of their own until it has seen one freed; from then on blocks up to
that size come from its heap, where freed ones stay and fragments grow by chance. One and the same
training then peaked at 438 to 499 MiB, and at 806 to 1,026 MiB, with every live byte equal; with
pages of their own for all large blocks it peaks at 310 MiB every time
(reports/probe-repeatability.md). Where time is taken the heap is as training finds it: pages
that are new for every block cost a quarter of a step.

Nothing happens where the C library is another one, or where the user sets its heap up.
"""

from __future__ import annotations

import ctypes
import os

#: ``mallopt`` options of glibc (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks from here on get pages of their own: glibc's initial threshold (malloc.c).
_ALONE_BYTES = 128 * 1024
#: Where the threshold ends up once large tensors were freed, and how much free heap is kept then:
#: ``DEFAULT_MMAP_THRESHOLD_MAX``, and twice that (malloc.c).
_GROWN_BYTES = 32 * 2**20
#: Variables by which users set these thresholds themselves.
_OWN_WORDS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")
_OWN_TUNABLES = ("glibc.malloc.mmap", "glibc.malloc.trim")


def settle_heap() -> None:
    """Give freed memory back now, and that of large blocks at once from now on."""
    _set(_ALONE_BYTES, _ALONE_BYTES)
    library = ctypes.CDLL(None)
    if _is_ours() and hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def release_heap() -> None:
    """Let the heap keep freed blocks, as it does in a training that has run for a while."""
    _set(_GROWN_BYTES, 2 * _GROWN_BYTES)


def _set(mmap_bytes: int, trim_bytes: int) -> None:
    library = ctypes.CDLL(None)
    if _is_ours() and hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, mmap_bytes)
        library.mallopt(_M_TRIM_THRESHOLD, trim_bytes)


def _is_ours() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    mine = [name for name in _OWN_WORDS if name in os.environ]
    return not mine and not any(name in tunables for name in _OWN_TUNABLES)

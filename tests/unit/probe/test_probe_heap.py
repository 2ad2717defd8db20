"""What glibc's heap keeps of freed memory, before and after it is told to keep nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")

#: Frees every second of 64 blocks of 1 MiB and says how many MiB of them are still resident.
FREES = """
import sys
from autotune.probe.meters import cpu, heap

for step in sys.argv[1:]:
    getattr(heap, step)()
del sys.argv, step
before = cpu.status_bytes("VmRSS")
large = bytearray(16 * 2**20)
del large  # from now on, by default, smaller blocks share the heap
blocks = [bytearray(b"x" * 2**20) for _ in range(64)]
del blocks[::2]
print(round((cpu.status_bytes("VmRSS") - before) / 2**20))
"""


def resident(*steps: str, **env: str) -> int:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", FREES, *steps],
        env={**clean, **env}, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return int(done.stdout)


def test_a_settled_heap_gives_freed_blocks_back() -> None:
    assert 32 == pytest.approx(resident("settle_heap"), abs=4)


def test_a_released_heap_keeps_them_as_one_that_was_never_touched() -> None:
    kept = resident("settle_heap", "release_heap")
    assert 62 <= kept
    assert kept == pytest.approx(resident("_is_ours"), abs=4)


@pytest.mark.parametrize(
    "own", [{"MALLOC_MMAP_THRESHOLD_": "67108864"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_x=1"}]
)
def test_a_heap_that_the_user_sets_up_is_left_alone(own: dict[str, str]) -> None:
    assert 62 <= resident("settle_heap", **own)

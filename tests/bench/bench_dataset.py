"""Measures how fast and with how much memory a large data set is profiled; writes two files.

    make bench-dataset
    python tests/bench/bench_dataset.py [--rows 1000000] [--out reports/dataset-speed.json]

Limits (issue 4, item 5): lengths, quantiles and padding of 1,000,000 tokenised rows in under 5 s
and 500 MB above imports; packing them with 3 strategies x 5 lengths in under 60 s. Memory is
counted as anonymous memory; pages of the memory-mapped file, which the kernel takes back whenever
it needs them, are stated beside it. Exit code 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from autotune.core.lengths import IntArray
from autotune.core.packing import STRATEGIES, pack
from autotune.core.shapes import padding_waste
from autotune.dataset.measure import measure

LENGTHS = (256, 512, 1024, 2048, 4096)
OUT = Path("reports/dataset-speed.json")
LIMITS = {"profile_s": 5.0, "profile_anonymous_bytes": 500e6, "packing_s": 60.0}
_PART_ROWS = 100_000


class MemoryWatch(threading.Thread):
    """Sample the process's memory until stopped; the peaks are kept."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_bytes = self._now()
        self.peak_bytes = dict(self.start_bytes)
        self._over = threading.Event()

    @staticmethod
    def _now() -> dict[str, int]:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return {name: int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile")}

    def run(self) -> None:
        while not self._over.wait(0.005):
            for name, now in self._now().items():
                self.peak_bytes[name] = max(self.peak_bytes[name], now)

    def stop(self) -> dict[str, int]:
        """Return the growth of each kind of memory over the start, in bytes."""
        self._over.set()
        self.join()
        return {n: self.peak_bytes[n] - self.start_bytes[n] for n in self.start_bytes}


def write_rows(folder: Path, tokens: IntArray) -> None:
    """Write tokenised rows of the given lengths as ``Dataset.save_to_disk`` does."""
    datasets.disable_progress_bars()
    rng = np.random.default_rng(1)
    parts = []
    for start in range(0, len(tokens), _PART_ROWS):
        sizes = tokens[start : start + _PART_ROWS]
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        values = rng.integers(0, 32_000, int(offsets[-1]), dtype=np.int32)
        ids = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        parts.append(pa.table({"input_ids": ids}))
    datasets.Dataset(pa.concat_tables(parts)).save_to_disk(str(folder))


def bench_profile(folder: Path) -> dict[str, Any]:
    """Measure lengths, quantiles and padding at 7 batch sizes of the rows on disk."""
    rows = datasets.load_from_disk(str(folder))
    watch = MemoryWatch()
    watch.start()
    started = time.perf_counter()
    lengths = measure(rows, vocabulary=32_000)
    measured = time.perf_counter()
    quantiles = lengths.quantiles()
    waste = padding_waste(lengths, max_length=1024)
    ended = time.perf_counter()
    grown = watch.stop()
    return {
        "profile_s": ended - started,
        "measure_s": measured - started,
        "profile_anonymous_bytes": grown["RssAnon"],
        "profile_mapped_file_bytes": grown["RssFile"],
        "tokens": int(lengths.tokens.sum()),
        "quantiles": quantiles,
        "padding_ratio_by_batch": waste,
    }


def bench_packing(tokens: IntArray) -> dict[str, Any]:
    """Measure packing the rows with every strategy at every length."""
    runs = []
    started = time.perf_counter()
    for max_length in LENGTHS:
        for strategy in STRATEGIES:
            at = time.perf_counter()
            packed = pack(tokens, max_length, strategy)
            runs.append(
                {
                    "strategy": strategy,
                    "max_length": max_length,
                    "seconds": time.perf_counter() - at,
                    "rows": len(packed),
                    "fill_ratio": packed.fill_ratio,
                }
            )
    return {"packing_s": time.perf_counter() - started, "packing": runs}


def in_words(document: dict[str, Any]) -> str:
    """Return the evidence as a Markdown page."""
    machine = document["machine"]
    quantiles = ", ".join(f"{float(q):.0%} {n}" for q, n in document["quantiles"].items())
    rows = "\n".join(
        f"| {run['max_length']} | {run['strategy']} | {run['seconds']:.2f} "
        f"| {run['rows']:,} | {run['fill_ratio']:.1%} |"
        for run in document["packing"]
    )
    padding = ", ".join(f"{b}: {r:.1%}" for b, r in document["padding_ratio_by_batch"].items())
    return f"""# Speed of the data set profile

Made by `{document["command"]}` (`make bench-dataset`); the numbers are in the JSON file beside
this one.
{document["rows"]:,} tokenised rows drawn like chat data ({document["tokens"]:,} tokens; lengths
at {quantiles}), written by `save_to_disk`.

| what | measured | limit |
|---|---|---|
| lengths, quantiles and padding at 7 batch sizes | {document["profile_s"]:.2f} s \
| {document["limits"]["profile_s"]:.0f} s |
| memory for it above imports (anonymous) | {document["profile_anonymous_bytes"] / 1e6:.0f} MB \
| {document["limits"]["profile_anonymous_bytes"] / 1e6:.0f} MB |
| packing, 3 strategies x {len(LENGTHS)} lengths | {document["packing_s"]:.1f} s \
| {document["limits"]["packing_s"]:.0f} s |

Pages of the memory-mapped file, which the kernel takes back when it needs them, are not counted
({document["profile_mapped_file_bytes"] / 1e6:.0f} MB). Padding at max_length 1024 by batch size:
{padding}.

| max_length | strategy | seconds | packed rows | fill |
|---|---|---|---|---|
{rows}

{machine["cores"]} cores, load average {machine["load_average_before"]} before it started,
{machine["platform"]}, Python {machine["python"]},
{", ".join(f"{n} {v}" for n, v in document["versions"].items())}.
"""


def main() -> int:
    """Run both measurements, write the file, say how they compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    datasets.disable_progress_bars()
    # lengths like those of chat data: median 150 tokens, one row in a hundred above 950
    drawn = np.random.default_rng(0).lognormal(5.0, 0.8, given.rows)
    tokens = np.minimum(drawn.astype(np.int64) + 5, 8192)
    with tempfile.TemporaryDirectory() as home:
        # In another process: memory freed here would be taken again without growing this one.
        writer = multiprocessing.get_context("spawn").Process(
            target=write_rows, args=(Path(home) / "rows", tokens)
        )
        writer.start()
        writer.join()
        found = {**bench_profile(Path(home) / "rows"), **bench_packing(tokens)}
    exceeded = {name: limit for name, limit in LIMITS.items() if found[name] >= limit}
    document = {
        "command": " ".join(["python", *sys.argv]),
        "rows": given.rows,
        "limits": LIMITS,
        "exceeded": exceeded,
        "versions": {n: version(n) for n in ("datasets", "numpy", "pyarrow", "trl")},
        "machine": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cores": len(os.sched_getaffinity(0)),
            "load_average_before": round(load, 2),
        },
        **found,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    given.out.with_suffix(".md").write_text(in_words(document), encoding="utf-8")
    for name, limit in LIMITS.items():
        print(f"{name}: {found[name]:,.2f} (limit {limit:,.0f})")
    print(given.out)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks of times: what the first use of a shape costs, and single steps of whole candidates."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.gpu.found import Found
from tests.gpu.lab import Lab, checkpointing, fits, numbers

#: Turns torch's preference for cuDNN's attention off (torch 2.9 and later).
_WITHOUT_CUDNN = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
#: A first use that costs more than this many later ones would decide a search of few steps.
_COSTLY = 10.0


def first_uses(lab: Lab, found: Found) -> None:
    """Time attention at many widths, first and later uses, with and without cuDNN's."""
    for name, variables in (("as it is", {}), ("without cuDNN", _WITHOUT_CUDNN)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu.first_uses", lab.device],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        found.expect(done.returncode == 0, f"{name}: it ended with {done.returncode}")
        if done.returncode:
            found.keep(name, done.stderr[-2000:])
            continue
        timed = json.loads(done.stdout.splitlines()[-1])
        # The first width pays for everything that is loaded once per process.
        ratios = [row["ratio"] for row in timed["widths"][1:]]
        found.keep(name, {**timed, "costly": sum(ratio > _COSTLY for ratio in ratios)})


def step_times(lab: Lab, found: Found) -> None:
    """Time every step of candidates of a 0.5B-shaped model, shape by shape."""
    four = {"per_device_train_batch_size": 4}
    candidates = {
        "batch 4": four,
        "batch 4, no checkpointing": {**four, **checkpointing("none")},
        "batch 4, padding-free": {**four, "padding_free": True, "max_length": None},
        "packed": {"packing": True},
    }
    wanted = candidates if lab.on_gpu else {"packed": candidates["packed"]}
    for name, options in wanted.items():
        report = lab.probe(lab.spec("0.5B", **options), name.replace(" ", "-").replace(",", ""))
        found.keep(name, {"options": options, **numbers(report)})
        found.expect(fits(report), f"{name} ended as {report.ending}")

"""What every test of the suite may rely on: no hub, a cache of its own, plain output."""

from __future__ import annotations

import os

# Before anything imports a library that reads them; children inherit them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Measuring processes share the machine with the suite: waiting threads must not spin. Benches
# measure what a user would see, and set AUTOTUNE_BENCH (the Makefile does).
if "AUTOTUNE_BENCH" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

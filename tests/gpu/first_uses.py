"""Times attention at many widths, the first time and later ones; run once per setting of cuDNN.

    python -m tests.gpu.first_uses DEVICE

Prints one JSON object: seconds by width, first and median of later uses.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

_LATER = 5
#: Widths no two of which share a plan; the first one warms everything else up.
_WIDTHS = {"cuda": (512, 333, 640, 777, 1024, 1501, 2048), "cpu": (16, 24, 33)}


def main(device: str) -> None:
    """Print what was timed."""
    import torch

    kind = device.partition(":")[0]
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32

    def once(width: int) -> float:
        shape = (4, 16, width, 64)
        q = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
        start = time.perf_counter()
        out: Any = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        out.sum().backward()
        if kind == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    rows = []
    for width in _WIDTHS[kind]:
        first, later = once(width), [once(width) for _ in range(_LATER)]
        steady = statistics.median(later)
        rows.append({"width": width, "first_s": first, "later_s": steady, "ratio": first / steady})
    backends = {
        name: bool(getattr(torch.backends.cuda, f"{name}_sdp_enabled")())
        for name in ("flash", "mem_efficient", "math", "cudnn")
    }
    print(json.dumps({"widths": rows, "enabled": backends}))


if __name__ == "__main__":
    main(sys.argv[1])

"""fp16 training as on a GPU, on the CPU: real autocast and a real gradient scaler.

accelerate gives a CPU neither, so its `Accelerator` is given both here; the trainer, the optimizer
wrapper and torch's scaler are their own.
"""

from __future__ import annotations

from typing import Any


def scale_gradients(patch: Any, *, scale: float = 2.0**16) -> None:
    """Let every trainer built with ``fp16`` train as it would on a GPU.

    Args:
        patch: with a method ``setattr`` as pytest's monkeypatch has.
        scale: what the scaler begins with; gradients above 65504 overflow.
    """
    import accelerate
    import torch

    own = accelerate.Accelerator.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        if self.state.mixed_precision == "fp16":
            self.native_amp = True
            self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    patch.setattr(accelerate.Accelerator, "__init__", init)

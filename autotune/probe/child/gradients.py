"""Notes which trained modules a gradient reaches: a run can look well while an adapter is zero."""

from __future__ import annotations

from typing import Any

from autotune.core.measurement import ADAPTER


class GradientReach:
    """Follow the modules that have trained parameters until a gradient has reached each."""

    def __init__(self, model: Any) -> None:
        """List the trained modules.

        Args:
            model: the model that is trained. The parts of an adapter count as one module: the
                first update of a LoRA only ever reaches one of its two matrices.
        """
        self._waiting: dict[str, list[Any]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                owner, adapter, _ = name.rpartition(".")[0].partition(".lora_")
                named = f"{owner}{ADAPTER}" if adapter else owner
                self._waiting.setdefault(named, []).append(parameter)
        self.modules = len(self._waiting)

    def look(self) -> None:
        """Look at the gradients that are there, just before an optimizer update."""
        reached = [name for name, held in self._waiting.items() if any(map(_reached, held))]
        for name in reached:
            del self._waiting[name]

    @property
    def unreached(self) -> tuple[str, ...]:
        """Modules no gradient has reached so far."""
        return tuple(self._waiting)


def _reached(parameter: Any) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())

"""Counts a trainer's weights: the policy's, apart from those of the reference beside it."""

from __future__ import annotations

from typing import Any


def count_parameters(model: Any, reference: Any | None = None) -> dict[str, Any]:
    """Count parameters, each storage once (tied weights are one).

    Args:
        model: the model that is trained (the policy), adapters included.
        reference: a second model held beside it; None when the policy is its own reference, or
            none is needed.

    Returns:
        ``total`` and ``trainable`` (numbers of weights), ``bytes``, ``dtype`` and
        ``trainable_dtype`` of the policy; ``reference_total``, ``reference_bytes`` and
        ``reference_dtype`` of the reference (0, 0 and empty without one). Bytes of quantised
        weights include their scales. A dtype names every dtype that occurs, largest share first.
    """
    policy = _counted(model)
    other = _counted(reference) if reference is not None else _Counted()
    return {
        "total": policy.total,
        "trainable": policy.trainable,
        "bytes": policy.size,
        "dtype": policy.dtype,
        "trainable_dtype": "+".join(sorted(policy.trainable_dtypes)),
        "reference_total": other.total,
        "reference_bytes": other.size,
        "reference_dtype": other.dtype,
    }


class _Counted:
    """Running totals of one model."""

    def __init__(self) -> None:
        self.total = self.trainable = self.size = 0
        self.sizes: dict[str, int] = {}
        self.trainable_dtypes: set[str] = set()

    @property
    def dtype(self) -> str:
        return "+".join(sorted(self.sizes, key=lambda name: -self.sizes[name]))


def _counted(model: Any) -> _Counted:
    found = _Counted()
    seen: set[int] = set()
    for parameter in model.parameters():
        if parameter.data_ptr() in seen and parameter.numel() > 0:
            continue
        seen.add(parameter.data_ptr())
        name, elements = _dtype_and_elements(parameter)
        size = parameter.numel() * parameter.element_size()
        found.total += elements
        found.size += size + sum(s.numel() * s.element_size() for s in scales_of(parameter))
        found.sizes[name] = found.sizes.get(name, 0) + size
        if parameter.requires_grad:
            found.trainable += elements
            found.trainable_dtypes.add(name)
    return found


def _dtype_and_elements(parameter: Any) -> tuple[str, int]:
    """Return what a parameter is stored as, and how many weights that are.

    bitsandbytes packs two 4-bit weights into a byte of whatever dtype stores them.
    """
    if type(parameter).__name__ == "Params4bit":
        return str(parameter.quant_type), parameter.numel() * parameter.element_size() * 2
    return str(parameter.dtype).removeprefix("torch."), parameter.numel()


def scales_of(parameter: Any) -> list[Any]:
    """Return the tensors a quantised parameter is scaled by; they are no parameters themselves.

    A 4-bit parameter also holds the code of its values, 16 numbers; where its scales are quantised
    once more (double quantisation), besides an offset, scales of scales and a copy of the 8-bit
    code, 256 numbers (bitsandbytes 0.50, ``functional.quantize_4bit`` and ``quantize_blockwise``).
    """
    kind = type(parameter).__name__
    if kind == "Int8Params":
        return [] if parameter.SCB is None else [parameter.SCB]
    if kind != "Params4bit" or parameter.quant_state is None:
        return []
    state = parameter.quant_state
    nested = [state.offset, state.state2.absmax, state.state2.code] if state.nested else []
    return [state.absmax, state.code, *nested]

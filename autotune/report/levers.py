"""What takes most of a peak, and what would make that smaller that a candidate does not do yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.core.candidate import Candidate
from autotune.core.traced_step import Component
from autotune.report.anatomy import BESIDE, COMPONENTS

#: A lever in words, and whether it is still to be pulled.
_Lever = tuple[str, Callable[[Candidate], bool]]


def _choice(name: str, *values: object) -> Callable[[Candidate], bool]:
    """Say whether a knob has none of these values; an absent knob has no effect and no lever."""
    return lambda candidate: name in candidate.knobs and candidate.get(name) not in values


def _larger_batch(candidate: Candidate) -> bool:
    return int(candidate.get("per_device_train_batch_size") or 1) > 1


def _full_precision(candidate: Candidate) -> bool:
    whole = candidate.get("quantization", "none") == "none"
    return whole and candidate.get("dtype", "float32") == "float32"


_BATCH: _Lever = ("halve the micro-batch", _larger_batch)
_SHORTER: _Lever = ("cut rows shorter", lambda _: True)
_SMALLER: _Lever = ("take a smaller model", lambda _: True)
_ADAPTER: _Lever = ("train an adapter (LoRA)", lambda c: c.get("peft", "none") == "none")
_LEVERS: dict[Component, tuple[_Lever, ...]] = {
    "weights": (
        ("load them in bfloat16", _full_precision),
        ("train an adapter over 4-bit weights", lambda c: c.get("quantization", "none") != "4bit"),
        _SMALLER,
    ),
    "reference": (
        ("train an adapter (LoRA), which needs no second model", _ADAPTER[1]),
        ("compute its log-probabilities once (precompute_ref_log_probs)", lambda _: True),
    ),
    "gradients": (_ADAPTER, ("a smaller lora_r", lambda c: not _ADAPTER[1](c)), _SMALLER),
    "optimizer": (
        ("take an 8-bit optimizer", _choice("optim", "adamw_8bit", "paged_adamw_8bit")),
        _ADAPTER,
        ("a smaller lora_r", lambda c: not _ADAPTER[1](c)),
    ),
    "activations": (
        ("checkpoint them", _choice("gradient_checkpointing", "full", "reentrant", "selective")),
        (
            "checkpoint all of them (full instead of selective)",
            lambda c: c.get("gradient_checkpointing") == "selective",
        ),
        (
            "keep them in host memory (activation_offloading, on a GPU)",
            _choice("activation_offloading", True),
        ),
        _BATCH,
        _SHORTER,
    ),
    "logits": (_BATCH, _SHORTER),
    "inputs": (_BATCH, _SHORTER),
    "temporaries": (_BATCH, _SHORTER),
}


def levers(component: Component, candidate: Candidate) -> str:
    """Return what would make one part of a candidate's peak smaller, in words.

    Args:
        component: the part.
        candidate: the knobs it has now; what they do already is not advised again.
    """
    found = [words for words, left in _LEVERS[component] if left(candidate)]
    return " or ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]


def dominance(split: Mapping[Component, int], peak_bytes: int, candidate: Candidate) -> str:
    """Return one sentence on what takes most of a peak, and what makes that smaller.

    Args:
        split: bytes by component at the peak.
        peak_bytes: all of the peak, at least what is in the split.
        candidate: the knobs it has now.
    """
    component = max(split, key=lambda c: split[c])
    whole = max(1, peak_bytes, sum(split.values()))
    beside = whole - sum(split.values())
    if beside > whole / 2:
        return f"What no option changes ({BESIDE}) takes {beside / whole:.0%} of the peak."
    name = COMPONENTS[component]
    share = split[component] / whole
    verb = "takes" if component == "reference" else "take"
    advice = levers(component, candidate)
    return f"{name[0].upper()}{name[1:]} {verb} {share:.0%} of the peak: {advice}."

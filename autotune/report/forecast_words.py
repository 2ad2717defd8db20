"""A forecast in sentences: what takes the memory, what would change that, what the answer is."""

from __future__ import annotations

from autotune.core.prediction import Fit, Forecast, Prediction
from autotune.core.traced_step import Component
from autotune.core.units import show_bytes, show_duration

#: What every component is called, and what makes it smaller.
COMPONENTS: dict[Component, tuple[str, str]] = {
    "weights": ("weights", "load them in bfloat16 or 4-bit, or take a smaller model"),
    "reference": ("the reference model", "train an adapter (LoRA), which needs no second model"),
    "gradients": ("gradients", "train an adapter (LoRA), or take a smaller model"),
    "optimizer": ("optimizer states", "an 8-bit optimizer, or train an adapter (LoRA)"),
    "activations": ("activations", "checkpoint them, halve the micro-batch, or cut rows shorter"),
    "logits": ("logits and loss", "halve the micro-batch, or compute the loss in chunks"),
    "inputs": ("inputs", "halve the micro-batch, or cut rows shorter"),
    "temporaries": ("temporaries", "halve the micro-batch, or cut rows shorter"),
}

#: What no component of the step can change.
BESIDE = "context, allocator"


def shares(prediction: Prediction) -> list[tuple[str, int, float]]:
    """Return (words, bytes, share of the peak) of all that makes it up, largest first.

    What the process is charged with beside the step's tensors (the device's context, rounding and
    holes of the allocator) is one of them.
    """
    traced = sum(prediction.split.values())
    total = max(1, traced, prediction.peak_bytes)
    found = [(COMPONENTS[c][0], size) for c, size in prediction.split.items() if size]
    if total > traced:
        found.append((BESIDE, total - traced))
    return sorted(((words, size, size / total) for words, size in found), key=lambda r: -r[1])


def dominating(prediction: Prediction) -> Component:
    """Return the component that holds most at the peak."""
    return max(prediction.split, key=lambda c: prediction.split[c])


def peak_words(prediction: Prediction) -> str:
    """Return the predicted peak with its band."""
    low, high = show_bytes(prediction.low_bytes), show_bytes(prediction.high_bytes)
    return f"{show_bytes(prediction.peak_bytes)} ({low} to {high})"


def time_words(prediction: Prediction) -> str:
    """Return the predicted time of a pass with its band."""
    band = 1.0 + prediction.time_band_ratio
    low = show_duration(prediction.score_seconds / band)
    return (
        f"{show_duration(prediction.score_seconds)} "
        f"({low} to {show_duration(prediction.score_seconds * band)})"
    )


def counts(forecast: Forecast) -> str:
    """Return how many candidates fit, may fit and do not."""
    fits = [p.fit(forecast.budget) for p in forecast.predictions]
    parts = [
        f"{fits.count(Fit.FITS)} fit",
        f"{fits.count(Fit.UNSURE)} may fit",
        f"{fits.count(Fit.HOPELESS)} do not",
    ]
    if forecast.not_traced:
        parts.append(f"{len(forecast.not_traced)} could not be traced")
    return ", ".join(parts)


def dominance(prediction: Prediction) -> str:
    """Return one sentence on what takes most of the peak, and what makes that smaller."""
    name, advice = COMPONENTS[dominating(prediction)]
    share = next(part for words, _, part in shares(prediction) if words == name)
    return f"{name[0].upper()}{name[1:]} take {share:.0%} of the peak: {advice}."

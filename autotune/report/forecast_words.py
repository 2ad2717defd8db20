"""A forecast in sentences: what takes the memory, what would change that, what the answer is."""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.prediction import Fit, Forecast, Prediction
from autotune.core.units import show_bytes, show_duration
from autotune.report import levers
from autotune.report.anatomy import OFFLOADED, Part, parts_of
from autotune.report.summary import value_text

#: How a candidate fits, in words.
FIT_WORDS = {Fit.FITS: "fits", Fit.UNSURE: "may fit", Fit.HOPELESS: "does not fit"}


def differences(candidate: Candidate, forecast: Forecast) -> str:
    """Return what distinguishes a candidate from the user's own config, in words.

    All of its knobs that are not off, where the own config was not traced.
    """
    own = forecast.own_prediction
    if candidate.key == forecast.own:
        return "your own config"
    if own is None:
        shown = {k: v for k, v in candidate.knobs.items() if v not in (None, False, "none")}
    else:
        shown = {k: mine for k, (mine, _) in candidate.differences(own.candidate).items()}
    return ", ".join(f"{name} {value_text(value)}" for name, value in shown.items())


def parts(prediction: Prediction) -> list[Part]:
    """Return what makes up a predicted peak, in the order it is drawn."""
    return parts_of(prediction.split, prediction.peak_bytes, prediction.offloaded_bytes)


def shares(prediction: Prediction) -> list[tuple[str, int, float]]:
    """Return (words, bytes, share of the peak) of all that makes it up, largest first.

    What the process is charged with beside the step's tensors (the device's context, rounding and
    holes of the allocator) is one of them.
    """
    total = max(1, sum(prediction.split.values()), prediction.peak_bytes)
    found = [p for p in parts(prediction) if p.name != OFFLOADED]
    return sorted(
        ((p.name, p.size_bytes, p.size_bytes / total) for p in found), key=lambda row: -row[1]
    )


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
    return levers.dominance(prediction.split, prediction.peak_bytes, prediction.candidate)

"""A forecast as one self-contained HTML page, in the look of a result's page."""

from __future__ import annotations

from typing import Any

from autotune.core.about import __version__
from autotune.core.prediction import Fit, Forecast, Prediction
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.report.forecast_charts import candidate_text, forecast_charts
from autotune.report.forecast_words import counts, dominance, peak_words, shares, time_words
from autotune.report.page_shell import render_page
from autotune.report.privacy import clean

_WORDS = {Fit.FITS: "fits", Fit.UNSURE: "may fit", Fit.HOPELESS: "no"}
_VERDICTS = {Fit.FITS: "fits", Fit.UNSURE: "may fit", Fit.HOPELESS: "does not fit"}


def render(forecast: Forecast) -> str:
    """Write the page, without secrets and home folders."""
    shown = Forecast.model_validate(clean(forecast.model_dump(mode="json")))
    return render_page("forecast.html.j2", "lengths.js", forecast_charts(shown), _values(shown))


def _values(forecast: Forecast) -> dict[str, Any]:
    budget, best, own = forecast.budget, forecast.fastest, forecast.own_prediction
    miss = forecast.nearest_miss
    if forecast.alone and own is not None:
        headline = f"Your config {_VERDICTS[own.fit(budget)]} {forecast.device}"
        sentences = [f"Its peak is {peak_words(own)}, a pass {time_words(own)}.", dominance(own)]
    elif best is not None:
        headline = f"{candidate_text(best.candidate)}: {time_words(best)} for one pass"
        sentences = [f"Its peak is {peak_words(best)}.", dominance(best)]
    elif miss is not None:
        headline = f"Nothing fits {show_bytes(budget.usable_bytes)}"
        sentences = [
            f"The nearest is {candidate_text(miss.candidate)} with {peak_words(miss)}.",
            dominance(miss),
        ]
    else:
        headline, sentences = "Nothing could be traced", []
    if own is not None and not forecast.alone:
        verdict = _WORDS[own.fit(budget)]
        sentences.append(
            f"Your own config: {verdict}; peak {peak_words(own)}, pass {time_words(own)}."
        )
    return {
        "title": f"autotune: {forecast.model} on {forecast.device}",
        "device": forecast.device,
        "model": forecast.model,
        "version": __version__,
        "headline": headline,
        "under": [
            counts(forecast),
            f"{show_bytes(budget.usable_bytes)} usable",
            f"trl {forecast.trainer}",
            f"rates: {forecast.rates_source}",
        ],
        "sentences": sentences,
        "notices": [
            *forecast.notices,
            *(f"{candidate_text(n.candidate)}: {n.reason}" for n in forecast.not_traced[:5]),
        ],
        "predictions": {
            "heads": ["candidate", "fits", "peak", "most of it", "one pass", "useful tok/s"],
            "rows": [
                {"cells": _cells(p, forecast), "best": p is best} for p in forecast.predictions
            ],
        },
        "budget": f"{show_bytes(budget.total_bytes)} less {show_ratio(budget.headroom_ratio)}",
    }


def _cells(one: Prediction, forecast: Forecast) -> list[str]:
    name, _, share = shares(one)[0]
    mine = " (your config)" if one.candidate.key == forecast.own else ""
    return [
        candidate_text(one.candidate) + mine,
        _WORDS[one.fit(forecast.budget)],
        show_bytes(one.peak_bytes),
        f"{name} {share:.0%}",
        show_duration(one.score_seconds),
        f"{one.useful_tokens_per_s:,.0f}",
    ]

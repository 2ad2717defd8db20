"""A forecast as one self-contained HTML page, in the look of a result's page."""

from __future__ import annotations

from typing import Any

from autotune.core.about import __version__
from autotune.core.prediction import Fit, Forecast, Prediction
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.report.forecast_charts import forecast_charts
from autotune.report.forecast_words import (
    FIT_WORDS,
    counts,
    differences,
    dominance,
    peak_words,
    shares,
    time_words,
)
from autotune.report.page_model import short_name
from autotune.report.page_shell import render_page
from autotune.report.privacy import clean


def render(forecast: Forecast) -> str:
    """Write the page, without secrets and home folders."""
    shown = Forecast.model_validate(clean(forecast.model_dump(mode="json")))
    rows = bool(shown.predictions)
    return render_page("forecast.html.j2", forecast_charts(shown), _values(shown), table=rows)


def _values(forecast: Forecast) -> dict[str, Any]:
    budget = forecast.budget
    headline, sentences = _answer(forecast)
    model = short_name(forecast.model)
    fits = [FIT_WORDS[p.fit(budget)] for p in forecast.predictions]
    return {
        "title": f"autotune: {model} on {forecast.device}",
        "device": forecast.device,
        "model": model,
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
            *(f"{differences(n.candidate, forecast)}: {n.reason}" for n in forecast.not_traced[:5]),
        ],
        "counts": {words: fits.count(words) for words in FIT_WORDS.values() if words in fits},
        "rows": [_row(p, forecast) for p in _ordered(forecast)],
        "budget": f"{show_bytes(budget.total_bytes)} less {show_ratio(budget.headroom_ratio)}",
    }


def _answer(forecast: Forecast) -> tuple[str, list[str]]:
    """Return the headline and what is to be said under it."""
    budget, best, own = forecast.budget, forecast.fastest, forecast.own_prediction
    miss = forecast.nearest_miss
    if miss is None:
        return "Nothing could be traced", []
    if forecast.alone and own is not None:
        return f"Your config {FIT_WORDS[own.fit(budget)]}.", [
            f"Its peak is {peak_words(own)}, a pass takes {time_words(own)}.",
            dominance(own),
        ]
    if best is not None:
        took = show_duration(best.score_seconds)
        headline = f"The fastest that {FIT_WORDS[best.fit(budget)]} takes {took} a pass."
        what = f"It is: {differences(best.candidate, forecast)}."
        numbers = f"Its peak is {peak_words(best)}, a pass takes {time_words(best)}."
        sentences = [what, numbers, dominance(best)]
    else:
        headline = f"Nothing fits {show_bytes(budget.usable_bytes)}."
        what = f"The nearest is {differences(miss.candidate, forecast)} with {peak_words(miss)}."
        sentences = [what, dominance(miss)]
    if own is not None and own is not best:
        sentences.append(
            f"Your own config {FIT_WORDS[own.fit(budget)]}: peak {peak_words(own)}, pass "
            f"{time_words(own)}."
        )
    return headline, sentences


def _ordered(forecast: Forecast) -> list[Prediction]:
    """What fits first, then what may; the fastest first."""
    order = list(Fit)
    return sorted(
        forecast.predictions,
        key=lambda p: (order.index(p.fit(forecast.budget)), p.score_seconds),
    )


def _row(one: Prediction, forecast: Forecast) -> dict[str, Any]:
    name, _, share = shares(one)[0]
    fit = one.fit(forecast.budget)
    return {
        "what": differences(one.candidate, forecast),
        "fit": FIT_WORDS[fit],
        "badge": fit.value,
        "best": one is forecast.fastest,
        "peak": show_bytes(one.peak_bytes),
        "peak_key": one.peak_bytes,
        "seconds": show_duration(one.score_seconds),
        "seconds_key": one.score_seconds,
        "rate": f"{one.useful_tokens_per_s:,.0f}",
        "rate_key": one.useful_tokens_per_s,
        "most": f"{name} {share:.0%}",
    }

"""A forecast for the terminal: the answer on top, then what fits, then one config explained."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.cli.words import describe
from autotune.core.prediction import Fit, Forecast, Prediction
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.report.forecast_words import (
    counts,
    dominance,
    peak_words,
    shares,
    time_words,
)

#: Rows of the table; the document has all of them.
_SHOWN = 20
#: Columns of a bar.
_BAR = 24
_STYLE = {Fit.FITS: "green", Fit.UNSURE: "yellow", Fit.HOPELESS: "red"}
_WORDS = {Fit.FITS: "fits", Fit.UNSURE: "may fit", Fit.HOPELESS: "no"}


def print_forecast(forecast: Forecast, console: Console) -> None:
    """Print a forecast.

    Args:
        forecast: what was predicted.
        console: where to.
    """
    budget = forecast.budget
    console.print(
        f"{forecast.device}: {show_bytes(budget.usable_bytes)} usable "
        f"({show_bytes(budget.total_bytes)} less {show_ratio(budget.headroom_ratio)} headroom); "
        f"rates: {forecast.rates_source}",
        markup=False,
    )
    for notice in forecast.notices:
        console.print(f"note: {notice}", markup=False)
    for one in forecast.not_traced[:3]:
        console.print(f"note: {describe(one.candidate)}: {one.reason}", markup=False)
    if not forecast.predictions:
        return
    own = forecast.own_prediction
    if forecast.alone and own is not None:
        _print_explained(own, forecast, console)
    else:
        _print_space(forecast, console)


def _print_space(forecast: Forecast, console: Console) -> None:
    console.print(f"{len(forecast.predictions)} candidates: {counts(forecast)}", markup=False)
    shown = _ordered(forecast)[:_SHOWN]
    console.print(_table(shown, forecast, console.width))
    if len(forecast.predictions) > len(shown):
        console.print(
            f"... and {len(forecast.predictions) - len(shown)} more; --out DIR writes all of them, "
            "--format json prints them.",
            markup=False,
        )
    console.print("* no other candidate is both smaller and faster", markup=False)
    best, own = forecast.fastest, forecast.own_prediction
    if best is not None:
        console.print(f"fastest: {_name(best)}", style="bold", markup=False)
        _print_split(best, console)
    if own is not None:
        verdict = _WORDS[own.fit(forecast.budget)]
        against = ""
        if best is not None and best is not own:
            against = f", {own.score_seconds / best.score_seconds:.2f} times as long as the fastest"
        console.print(
            f"your config: {_name(own)}: {verdict}, peak {peak_words(own)}, pass "
            f"{time_words(own)}{against}",
            markup=False,
        )


def _print_explained(own: Prediction, forecast: Forecast, console: Console) -> None:
    console.print(f"{_name(own)}: {_WORDS[own.fit(forecast.budget)]}", style="bold", markup=False)
    _print_split(own, console)
    console.print(dominance(own), markup=False)
    others = [p for p in forecast.predictions if p is not own]
    if not others:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("one change", "left"), ("fits", "left"), ("peak", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("against yours", justify="right")
    table.add_column("pass", justify="right")
    for one in sorted(others, key=lambda p: p.peak_bytes):
        fit = one.fit(forecast.budget)
        table.add_row(
            Text(_changes(one, own)),
            Text(_WORDS[fit], style=_STYLE[fit]),
            show_bytes(one.peak_bytes),
            f"{one.peak_bytes / own.peak_bytes - 1:+.0%}",
            f"{one.score_seconds / own.score_seconds - 1:+.0%}",
        )
    console.print(table)


def _print_split(one: Prediction, console: Console) -> None:
    """Print the peak by component as bars, and the time by kind of work in a line."""
    console.print(
        f"  peak {peak_words(one)}, in phase {one.phase.replace('_', ' ')}; one pass "
        f"{time_words(one)}, {one.useful_tokens_per_s:,.0f} useful tokens/s",
        markup=False,
    )
    for name, size, share in shares(one):
        if share >= 0.005:
            bar = "█" * max(1, round(share * _BAR))
            console.print(f"  {name:<20} {bar:<{_BAR}} {share:>4.0%}  {show_bytes(size)}")
    if one.precompute_seconds:
        once = show_duration(one.precompute_seconds)
        console.print(f"  once before training, over the reference: {once}", markup=False)
    if one.offloaded_bytes:
        kept = f"  kept in host memory: {show_bytes(one.offloaded_bytes)}"
        console.print(f"{kept} (pinned blocks are rounded up: up to twice that)", markup=False)
    total = max(1e-12, sum(one.parts_seconds.values()))
    parts = sorted(one.parts_seconds.items(), key=lambda item: -item[1])
    words = ", ".join(
        f"{n.replace('_', ' ')} {s / total:.0%}" for n, s in parts if s > 0.02 * total
    )
    console.print(f"  time: {words}", markup=False)


def _table(shown: list[Prediction], forecast: Forecast, width: int) -> Table:
    front = {p.candidate.key for p in forecast.front}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("candidate", overflow="fold", min_width=24 if width >= 80 else 12)
    table.add_column("fits")
    table.add_column("peak", justify="right")
    if width >= 100:
        table.add_column("most of it")
    table.add_column("pass", justify="right")
    if width >= 90:
        table.add_column("useful tok/s", justify="right")
    for one in shown:
        fit = one.fit(forecast.budget)
        name, _, share = shares(one)[0]
        cells: list[str | Text] = [
            "*" if one.candidate.key in front else "",
            Text(_name(one) + (" (your config)" if one.candidate.key == forecast.own else "")),
            Text(_WORDS[fit], style=_STYLE[fit]),
            show_bytes(one.peak_bytes),
        ]
        if width >= 100:
            cells.append(f"{name} {share:.0%}")
        cells.append(show_duration(one.score_seconds))
        if width >= 90:
            cells.append(f"{one.useful_tokens_per_s:,.0f}")
        table.add_row(*cells)
    return table


def _ordered(forecast: Forecast) -> list[Prediction]:
    """What fits first, then what may, then the nearest misses."""
    order = {Fit.FITS: 0, Fit.UNSURE: 1, Fit.HOPELESS: 2}

    def place(one: Prediction) -> tuple[int, float]:
        fit = one.fit(forecast.budget)
        return order[fit], one.peak_bytes if fit is Fit.HOPELESS else one.score_seconds

    return sorted(forecast.predictions, key=place)


def _name(one: Prediction) -> str:
    return describe(one.candidate, one.accumulation)


def _changes(one: Prediction, own: Prediction) -> str:
    """Return what is changed, e.g. ``per_device_train_batch_size 8 -> 4``."""
    parts = [
        f"{name} {theirs} -> {mine}"
        for name, (mine, theirs) in one.candidate.differences(own.candidate).items()
    ]
    return ", ".join(parts)

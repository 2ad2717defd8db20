"""A forecast as page and as table: whole, safe with hostile names, and right about what fits."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from autotune.cli.forecast_view import print_forecast
from autotune.core.errors import EnvironmentUnable, NothingFits
from autotune.core.prediction import Forecast, NotTraced
from autotune.knobs.translate import canonical
from autotune.report import palette
from autotune.report.forecast_page import render
from autotune.study.foresight import Foresight, trace_candidates
from autotune.use.predict import require_fit, smallest_fitting
from tests.support.facts import GIB, GPU, MIB, budget_of, candidate_of, facts_of
from tests.support.work import FakeTracing, rates_of
from tests.unit.report.test_report_html import EVIL, Page

FACTS = facts_of(device=GPU)
OWN = canonical(candidate_of(), FACTS)


def forecast_of(memory_bytes: int = 2 * GIB, **changes: object) -> Forecast:
    """Return a forecast of twelve candidates on a made-up GPU."""
    candidates = {
        c.key: c
        for n in (1, 2, 4, 8)
        for saver in ("none", "full", "selective")
        for c in [
            canonical(
                candidate_of(per_device_train_batch_size=n, gradient_checkpointing=saver), FACTS
            )
        ]
    }
    foreseen, _ = trace_candidates(
        list(candidates.values()),
        FACTS,
        "model",
        FakeTracing(),
        seconds=1.0,
        tick=lambda _: None,
        tell=lambda *_: None,
    )
    plain = Forecast(
        trainer="sft",
        model="a/model",
        device="RTX-4090",
        rates_source="made up",
        budget=budget_of(memory_bytes),
        predictions=tuple(Foresight(FACTS, rates_of(), foreseen).all()),
        own=OWN.key,
    )
    return plain.model_copy(update=changes)


def shown(forecast: Forecast, width: int = 110) -> str:
    console = Console(width=width, highlight=False, record=True)
    print_forecast(forecast, console)
    return console.export_text()


def test_the_table_leads_with_what_fits_and_names_the_users_own_config() -> None:
    text = shown(forecast_of())
    assert "may fit" in text or "fits" in text
    assert "(your config)" in text and "fastest:" in text
    assert max(len(line) for line in shown(forecast_of(), 80).splitlines() if "|" not in line) < 200


def test_one_config_is_explained_by_component_and_by_single_changes() -> None:
    text = shown(forecast_of(alone=True))
    assert "logits and loss" in text and "activations" in text
    assert "per_device_train_batch_size 8 -> 4" in text
    assert "gradient_checkpointing full -> none" in text


def test_the_page_is_whole_and_its_colours_have_a_dark_partner() -> None:
    page = Page(render(forecast_of()))
    assert [] == [t for t, a in page.tags if "src" in a or t in ("link", "iframe", "object")]
    figures = json.loads(page.scripts[0])
    assert {"pareto", "split"} == set(figures)
    colours = {t["marker"]["color"] for t in figures["split"]["data"]}
    assert colours <= set(palette.DARK)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_hostile_names_add_no_tag_and_no_script() -> None:
    refused = NotTraced(candidate=OWN, reason=EVIL)
    plain = Page(render(forecast_of()))
    evil = Page(render(forecast_of(model=EVIL, notices=(EVIL,), not_traced=(refused,))))
    scripts = [t for t, _ in plain.tags if t in ("script", "img")]
    assert scripts == [t for t, _ in evil.tags if t in ("script", "img")]


def test_something_that_may_fit_is_no_failure() -> None:
    least = min(p.peak_bytes for p in forecast_of().predictions)
    require_fit(forecast_of(memory_bytes=least))


def test_nothing_fits_names_the_nearest_miss_its_dominating_part_and_a_device() -> None:
    with pytest.raises(NothingFits) as raised:
        require_fit(forecast_of(memory_bytes=300 * MIB))
    assert "nothing fits 300.0 MiB" in raised.value.message
    assert "per_device_train_batch_size 1" in raised.value.message
    assert "of the peak" in str(raised.value.hint) and "would fit T4" in str(raised.value.hint)


def test_one_config_that_does_not_fit_says_when_a_change_does() -> None:
    own = forecast_of().own_prediction
    assert own is not None
    with pytest.raises(NothingFits, match="One change may make it fit"):
        require_fit(forecast_of(memory_bytes=int(0.95 * own.low_bytes), alone=True))


def test_a_forecast_without_predictions_says_why() -> None:
    refused = NotTraced(candidate=OWN, reason="it is made of numbers")
    with pytest.raises(EnvironmentUnable, match="made of numbers"):
        require_fit(forecast_of(predictions=(), not_traced=(refused,)))
    assert "made of numbers" in shown(forecast_of(predictions=(), not_traced=(refused,)))
    assert "Nothing could be traced" in render(forecast_of(predictions=()))


def test_the_smallest_device_that_holds_a_job_is_found() -> None:
    found = smallest_fitting(30 * GIB, 0.0)
    assert found is not None and "RTX-5090" == found.name
    assert smallest_fitting(900 * GIB, 0.05) is None

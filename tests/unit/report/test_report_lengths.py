"""The page of a length report: whole, self-contained, and safe with hostile names."""

from __future__ import annotations

import json

import pytest

from autotune.core.job import Trainer
from autotune.report import palette
from autotune.report.profile_page import render
from tests.support.lengths import length_report
from tests.unit.report.test_report_html import EVIL, Page


@pytest.mark.parametrize("trainer", [Trainer.SFT, Trainer.DPO])
def test_the_page_asks_for_nothing_from_outside_and_holds_every_number(trainer: Trainer) -> None:
    report = length_report(trainer)
    text = render(report)
    page = Page(text)
    assert [] == [t for t, a in page.tags if "src" in a or t in ("link", "iframe", "object")]
    policy = next(a["content"] or "" for t, a in page.tags if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert 2 == policy.count("sha256-")
    for row in report.lengths:
        assert f">{row.max_length:,}<" in text
        for packed in row.packing:
            assert f">{packed.rows:,}<" in text
    for sentence in report.advice.sentences:
        assert sentence.split(":")[0].replace("'", "&#39;") in text


def test_hostile_names_add_no_tag_and_no_script() -> None:
    plain = Page(render(length_report()))
    evil = Page(render(length_report(model=EVIL, dataset=EVIL, notices=(EVIL,))))
    scripts = [t for t, _ in plain.tags if t in ("script", "img")]
    assert scripts == [t for t, _ in evil.tags if t in ("script", "img")]
    assert not any("onerror" in (a or {}) for _, a in evil.tags)


def test_the_charts_are_those_of_the_trainer_in_colours_that_have_a_dark_partner() -> None:
    figures = json.loads(Page(render(length_report())).scripts[0])
    assert {"lengths", "kept", "padding", "fill"} == set(figures)
    colours = {t["marker"]["color"] for figure in figures.values() for t in figure["data"]}
    assert colours <= set(palette.DARK)
    without = json.loads(Page(render(length_report(Trainer.DPO))).scripts[0])
    assert "fill" not in without


def test_headings_and_regions_are_labelled_by_what_exists() -> None:
    page = Page(render(length_report()))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    named = [a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a]
    assert set(named) <= set(ids)
    assert all(a.get("aria-label") for _, a in page.tags if a.get("role") == "img")


def test_home_folders_are_not_shown() -> None:
    assert "/home/ann" not in render(length_report(dataset="/home/ann/rows.jsonl"))

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from autotune.core.candidate import Candidate
from autotune.core.job import DatasetSource, Trainer
from autotune.core.result import Result, Skipped
from autotune.report import REPORTERS, palette
from autotune.report.charts import charts
from autotune.report.page_model import again_command
from tests.golden.check import assert_golden
from tests.support.results import (
    cpu_result,
    gpu_result,
    nothing_fits_result,
    predicted_result,
    preference_result,
    profile,
    with_best,
    with_job,
)

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
RESULTS = {
    "gpu": predicted_result,
    "cpu": cpu_result,
    "dpo": lambda: preference_result(Trainer.DPO),
    "nothing": nothing_fits_result,
}


class Page(HTMLParser):
    """Collect the tags of a page, the text of its scripts, and its ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data


def hostile() -> Result:
    result = with_job(gpu_result(), model=EVIL)
    best = result.best_trial
    assert best is not None
    candidate = Candidate(knobs={**best.candidate.knobs, "packing": EVIL})
    result = with_best(result, note=EVIL, options={EVIL: EVIL}, candidate=candidate)
    return result.model_copy(
        update={
            "best": candidate.key,
            "notices": (EVIL,),
            "skipped": (Skipped(what=EVIL, reason=EVIL, count=1),),
            "profile": profile(layout=EVIL, pad_token=EVIL),
        }
    )


@pytest.mark.parametrize("name", list(RESULTS))
def test_the_body_of_the_page_equals_its_golden_file(name: str) -> None:
    page = REPORTERS["html"].render(RESULTS[name]())
    body = page.partition("<body>")[2].partition("<script")[0]
    assert_golden(f"report/{name}/report-body.html", body)


@pytest.mark.parametrize("name", list(RESULTS))
def test_the_page_asks_for_nothing_from_outside_and_stays_small(name: str) -> None:
    text = REPORTERS["html"].render(RESULTS[name]())
    page = Page(text)
    assert [] == [t for t, a in page.tags if "src" in a or t in ("link", "iframe", "object")]
    policy = next(a["content"] or "" for t, a in page.tags if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert len(text) < 2 * 2**20


def test_the_policy_names_exactly_the_pages_own_scripts() -> None:
    text = REPORTERS["html"].render(gpu_result())
    page = Page(text)
    kinds = [a.get("type") for t, a in page.tags if t == "script"]
    assert kinds.count(None) == len(re.findall(r"sha256-", text.partition("</head>")[0]))


def test_hostile_names_add_no_tag_and_no_script() -> None:
    plain, evil = (
        Page(REPORTERS["html"].render(gpu_result())),
        Page(REPORTERS["html"].render(hostile())),
    )
    assert [t for t, _ in plain.tags if t in ("script", "img")] == [
        t for t, _ in evil.tags if t in ("script", "img")
    ]
    assert not any("onerror" in (a or {}) for _, a in evil.tags)


def test_chart_data_is_json_that_cannot_end_its_script() -> None:
    page = Page(REPORTERS["html"].render(hostile()))
    figures = json.loads(page.scripts[0])
    assert {"pareto", "split", "memory", "lengths"} == set(figures)
    assert "<" not in page.scripts[0]


def test_labels_of_a_chart_hold_no_tag_from_outside() -> None:
    pareto = charts(hostile())[0]
    hovers = [text for trace in pareto.figure["data"] for text in trace.get("hovertext") or ()]
    assert any("&lt;script" in text for text in hovers)
    assert not any("<script" in text or "<img" in text for text in hovers)


def test_headings_and_regions_are_labelled_by_what_exists() -> None:
    page = Page(REPORTERS["html"].render(gpu_result()))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert [] == [
        a["aria-labelledby"]
        for _, a in page.tags
        if "aria-labelledby" in a and a["aria-labelledby"] not in ids
    ]
    assert all(a.get("aria-label") for _, a in page.tags if a.get("role") == "img")


def test_without_a_fit_the_page_says_what_was_nearest() -> None:
    text = REPORTERS["html"].render(nothing_fits_result())
    assert "Nothing fits 8.00 GiB." in text
    assert "it needs at least 9.10 GiB" in text


def test_a_result_of_a_cpu_says_so_under_the_answer() -> None:
    assert "not a recommendation for a GPU" in REPORTERS["html"].render(cpu_result())


def test_the_command_to_search_again_is_quoted_for_a_shell() -> None:
    result = with_job(gpu_result(), model="my model", allow=frozenset({"peft", "mixing"}))
    command = again_command(result)
    assert "--model 'my model'" in command
    assert "--allow mixing,peft" in command
    assert "--memory 22528MiB" in command


def test_the_command_names_the_rows_unless_a_block_of_the_yaml_does() -> None:
    named = DatasetSource(path="acme/rows", test_split="held out")
    command = again_command(with_job(gpu_result(), dataset=named))
    assert "--dataset acme/rows" in command
    assert "--dataset-test-split 'held out'" in command
    block = {"path": "json", "data_files": "rows.jsonl"}
    mixed = DatasetSource(path="json", blocks=(block,))
    assert "--dataset" not in again_command(with_job(gpu_result(), dataset=mixed))


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("text", ["ink", "muted", "best", "misfit", "budget", "good"])
@pytest.mark.parametrize("ground", ["surface", "background"])
def test_text_has_the_contrast_people_need(text: str, ground: str, dark: bool) -> None:
    colours = {n: palette.DARK[c] if dark else c for n, c in palette.NAMES.items()}
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("mark", ["trial", "front", "reference", "best", "misfit"])
def test_marks_of_a_chart_have_the_contrast_people_need(mark: str, dark: bool) -> None:
    colours = {n: palette.DARK[c] if dark else c for n, c in palette.NAMES.items()}
    assert contrast(colours[mark], colours["surface"]) >= 3.0


def test_every_colour_has_a_dark_partner_and_no_two_are_equal() -> None:
    assert set(palette.NAMES.values()) == set(palette.DARK)
    assert len(palette.DARK) == len(palette.NAMES)

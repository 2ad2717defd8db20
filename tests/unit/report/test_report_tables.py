from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
import xmlschema
import yaml

from autotune.core.job import Trainer
from autotune.core.outcome import Outcome, Phase
from autotune.core.result import Skipped
from autotune.emit import EMITTERS
from autotune.report import REPORTERS
from autotune.report.markdown import MAX_CHARACTERS, code, fitted, text
from autotune.report.privacy import clean_text
from autotune.report.summary import sentences, settings
from tests.golden.check import assert_golden
from tests.support.results import (
    cpu_result,
    failed_trial,
    gpu_result,
    knobs_of,
    nothing_fits_result,
    predicted_result,
    preference_result,
    with_best,
    with_job,
)

JUNIT_SCHEMA = xmlschema.XMLSchema(Path(__file__).parents[2] / "formats" / "junit.xsd")
EVIL = "<script>alert(1)</script> | `x` @you https://e.vil [a](b) $x$ #1\n## h"


@pytest.mark.parametrize("name", ["csv", "junit", "markdown"])
@pytest.mark.parametrize("result", ["gpu", "cpu", "nothing"])
def test_a_report_equals_its_golden_file(name: str, result: str) -> None:
    made = {"gpu": gpu_result, "cpu": cpu_result, "nothing": nothing_fits_result}[result]()
    reporter = REPORTERS[name]
    assert_golden(f"report/{result}/{reporter.file_name}", reporter.render(made))


@pytest.mark.parametrize("name", list(REPORTERS))
def test_every_reporter_takes_a_result_without_trials(name: str) -> None:
    empty = nothing_fits_result().model_copy(update={"trials": (), "interrupted": True})
    assert REPORTERS[name].render(empty)


def test_the_csv_table_keeps_numbers_whole_and_absent_ones_empty() -> None:
    frame = pd.read_csv(StringIO(REPORTERS["csv"].render(gpu_result())))
    assert len(gpu_result().trials) == len(frame)
    best = gpu_result().best_trial
    assert best is not None
    assert best.report.measurement is not None
    row = frame[frame["number"] == best.number].iloc[0]
    assert best.report.measurement.peaks.process_bytes == row["process_bytes"]
    assert 7420.0 == row["useful_tokens_per_s"]
    assert "selective" == row["knob.gradient_checkpointing"]
    assert frame[frame["number"] == 2]["pass_seconds"].isna().all()
    assert ",20121720454," in REPORTERS["csv"].render(gpu_result())


def test_the_csv_table_holds_predictions_and_what_the_weights_are() -> None:
    frame = pd.read_csv(StringIO(REPORTERS["csv"].render(predicted_result())))
    expected = predicted_result().trials[5].prediction
    assert expected is not None
    assert expected.peak_bytes == frame["predicted_peak_bytes"][5]
    assert frame["predicted_peak_bytes"].isna()[2]
    frame = pd.read_csv(StringIO(REPORTERS["csv"].render(preference_result(Trainer.DPO))))
    assert {"bfloat16"} == set(frame["reference_dtype"])


def test_several_processes_are_told_that_the_numbers_are_those_of_one() -> None:
    # BC11
    said = "Numbers are those of one process on one device. 4 processes need as much each"
    several = with_job(gpu_result(), options={"num_processes": 4})
    assert all(said in REPORTERS[name].render(several) for name in ("html", "markdown", "junit"))
    assert said not in REPORTERS["markdown"].render(gpu_result())


def test_markdown_fits_a_comment_whatever_the_number_of_trials() -> None:
    many = tuple(
        failed_trial(n, knobs_of(n + 1), Outcome.CRASHED, Phase.LOAD, "x" * 3000)
        for n in range(300)
    )
    skipped = (Skipped(what="x" * 500, reason="y" * 500, count=1),) * 200
    result = gpu_result().model_copy(update={"trials": many, "skipped": skipped})
    made = REPORTERS["markdown"].render(result)
    assert MAX_CHARACTERS >= len(made)
    assert "and 260 more" in made and "and 160 more reasons" in made
    assert made.count("<details>") == made.count("</details>") == 2


def test_what_a_comment_cannot_hold_is_left_out_whole_and_counted() -> None:
    long = gpu_result().model_copy(update={"notices": ("n" * 70_000,)})
    made = REPORTERS["markdown"].render(long)
    assert MAX_CHARACTERS >= len(made)
    assert "3 more parts did not fit here" in made
    assert made.startswith("### autotune: 2.47 times as fast")
    assert MAX_CHARACTERS >= len(fitted(["n" * 70_000]))


def test_hostile_names_are_text_in_markdown() -> None:
    result = with_job(gpu_result(), model=EVIL)
    result = with_best(result, note=EVIL, options={"run_name": EVIL})
    made = REPORTERS["markdown"].render(result)
    outside_code = re.sub(r"`[^`\n]*`", "", made)
    assert "<script" not in outside_code
    assert "@you" not in outside_code
    assert "https://" not in outside_code
    assert "\n## h" not in made


def test_a_bar_in_a_name_does_not_end_a_table_cell() -> None:
    assert (r"a\|b", r"`a\|b`") == (text("a|b"), code("a|b"))


def junit(name: str = "gpu") -> ElementTree.Element:
    made = {"gpu": gpu_result, "nothing": nothing_fits_result}[name]()
    suite = ElementTree.fromstring(REPORTERS["junit"].render(made)).find("testsuite")
    assert suite is not None
    return suite


@pytest.mark.parametrize("result", ["gpu", "cpu", "nothing", "empty"])
def test_junit_is_valid_against_the_strict_schema(result: str) -> None:
    made = {"gpu": gpu_result, "cpu": cpu_result}.get(result, nothing_fits_result)()
    if result == "empty":
        made = made.model_copy(update={"trials": ()})
    JUNIT_SCHEMA.validate(REPORTERS["junit"].render(made))


def test_the_strict_schema_refuses_what_ci_systems_stumble_over() -> None:
    made = REPORTERS["junit"].render(gpu_result())
    for broken in (
        re.sub(r'timestamp="([^"]*)"', r'timestamp="\1Z"', made),
        made.replace(' classname="autotune.sft"', "", 1),
        re.sub(r"<system-err[^>]*?(/>|>.*</system-err>)", "", made, flags=re.S),
    ):
        assert broken != made
        assert not JUNIT_SCHEMA.is_valid(broken)


def test_junit_counts_what_it_holds() -> None:
    suite = junit()
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert str(len(list(suite.iter(tag)))) == suite.attrib[attribute]
    assert str(len(list(suite.iter("testcase")))) == suite.attrib["tests"]


def test_a_candidate_that_does_not_fit_is_skipped_but_the_users_own_config_fails() -> None:
    assert ("0", "3") == (junit().attrib["failures"], junit().attrib["skipped"])
    suite = junit("nothing")
    assert ("1", "1") == (suite.attrib["failures"], suite.attrib["skipped"])


def test_junit_drops_what_xml_cannot_hold() -> None:
    trial = failed_trial(
        0, knobs_of(1), Outcome.CRASHED, Phase.LOAD, "a\x00b\x1b[31m", detail="\x08"
    )
    made = REPORTERS["junit"].render(gpu_result().model_copy(update={"trials": (trial,)}))
    assert "a?b?[31m" in made
    ElementTree.fromstring(made)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ("/home/ada/runs/x", "~/runs/x"),
        ("/Users/ada/x", "~/x"),
        ("in /root: no", "in ~: no"),
        ("/rooted/x", "/rooted/x"),
        (f"{Path.home()}/x", "~/x"),
        ("token hf_abcdefghijklmnopqrstuvwx end", "token (hidden) end"),
        ("https://me:secret@host/x", "https://(hidden)@host/x"),
        ("acme/base-7b", "acme/base-7b"),
        ("hf-internal-testing/tiny-random", "hf-internal-testing/tiny-random"),
        ("hf_checkpoints_of_last_week", "hf_checkpoints_of_last_week"),
        ("sk-learn-like-a-pipeline", "sk-learn-like-a-pipeline"),
        ("key sk-proj-a1b2c3d4e5f6g7h8 end", "key (hidden) end"),
    ],
)
def test_homes_and_secrets_are_not_shown(found: str, shown: str) -> None:
    assert shown == clean_text(found)


@pytest.mark.parametrize("name", list(REPORTERS))
def test_no_report_holds_a_secret_or_a_home(name: str) -> None:
    token = "hf_" + "s" * 30
    result = with_job(
        gpu_result(),
        model="/home/ada/models/base",
        options={"hub_token": "plain-secret", "output_dir": "/home/ada/out"},
        env={"WANDB_API_KEY": "0123456789abcdef", "X": token},
    )
    best = result.best_trial
    assert best is not None
    result = with_best(
        result,
        env={"MY_SECRET": "swordfish", **best.env},
        options={**best.options, "hub_token": "plain-secret"},
        note=f"see /home/ada/log and {token}",
    ).model_copy(update={"out_dir": "/home/ada/out", "notices": (f"{token} at /home/ada",)})
    made = REPORTERS[name].render(result)
    words = ("/home/ada", token, "plain-secret", "0123456789abcdef", "swordfish")
    assert [] == [word for word in words if word in made]


@pytest.mark.parametrize("own", [{}, {"activation_checkpointing": True}])
def test_an_option_of_the_list_is_called_as_in_the_emitted_file(own: dict[str, Any]) -> None:
    result = cpu_result()
    result = with_job(result, options={**result.job.options, **own})
    emitted = yaml.safe_load(EMITTERS["trl-yaml"].render(result))
    names = {setting.name for setting in settings(result)}
    assert names <= set(emitted)
    assert "activation_checkpointing" in names
    assert any("is the knob gradient_checkpointing" in said for said in sentences(result))

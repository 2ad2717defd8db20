"""Results written by older versions stay readable; a file here is never written anew.

A new version of the schema adds a file and keeps these.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.core.errors import BadInput
from autotune.core.result import read_result
from autotune.emit import EMITTERS
from autotune.report import REPORTERS, compare, parse_thresholds

BASELINES = Path(__file__).parents[2] / "reports" / "baselines"
FROZEN = [*sorted(Path(__file__).parent.glob("result-v*.json")), *sorted(BASELINES.glob("*.json"))]
#: The thresholds of .ci/compare.
CI = re.findall(
    r"--fail-on (\S+)", (BASELINES.parents[1] / ".ci" / "compare").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("file", FROZEN, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", list(REPORTERS))
def test_an_old_result_is_reported(file: Path, name: str) -> None:
    assert REPORTERS[name].render(read_result(file))


@pytest.mark.parametrize("file", FROZEN, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", list(EMITTERS))
def test_an_old_result_is_emitted(file: Path, name: str) -> None:
    assert EMITTERS[name].render(read_result(file))


@pytest.mark.parametrize("file", FROZEN, ids=lambda file: file.stem)
def test_an_old_result_is_a_baseline(file: Path) -> None:
    result = read_result(file)
    assert compare(result, result, parse_thresholds([])).passed


@pytest.mark.parametrize("file", sorted(BASELINES.glob("*.json")), ids=lambda file: file.stem)
def test_a_stored_baseline_holds_everything_ci_compares(file: Path) -> None:
    result = read_result(file)
    assert compare(result, result, parse_thresholds(CI), speed="ratio").passed
    assert result.speedup is not None
    assert result.speedup.pairs >= 3


def test_a_result_of_an_unknown_version_is_refused_by_name(tmp_path: Path) -> None:
    text = FROZEN[0].read_text().replace('"schema_version": 1', '"schema_version": 99', 1)
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(BadInput, match="schema_version 99; this autotune reads 1"):
        read_result(file)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 1}'])
def test_a_damaged_result_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"result\.json"):
        read_result(file)

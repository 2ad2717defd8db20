"""Stopped at any moment: what is finished stays, children are gone, and a run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from autotune.core.result import read_result
from tests.support.cli import alive, descendants, start, wait_until
from tests.support.facts import GPU, facts_of
from tests.support.models import tiny_model
from tests.support.search import search_of
from tests.support.warm import Shared, command_of

pytestmark = pytest.mark.integration


def begin(
    folder: Path, sigint: signal.Handlers = signal.SIG_DFL
) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """Start a run and return once its second probe is under way."""
    model = tiny_model(folder / "model")
    rows = [{"text": "word " * n} for n in range(1, 30)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    process = start(
        *("run", "--model", str(model), "--dataset", "rows.jsonl", "--memory", "2GiB"),
        *("--out", "run", "--trials", "6", "--space", "quick", "--set", "bf16=false"),
        cwd=folder,
        sigint=sigint,
    )
    finished = folder / "run" / "trials" / "0000.json"
    wait_until(
        lambda: finished.exists() or process.poll() is not None, 300, "the first finished probe"
    )
    assert process.poll() is None, (folder / "err").read_text()
    return process, descendants(process.pid)


@pytest.mark.parametrize(
    ("number", "sigint"),
    [
        (signal.SIGINT, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_IGN),  # `autotune run ... &` in a script
        (signal.SIGHUP, signal.SIG_DFL),
    ],
)
def test_a_signal_saves_what_is_finished_and_leaves_no_child(
    number: signal.Signals, sigint: signal.Handlers, tmp_path: Path
) -> None:
    process, children = begin(tmp_path, sigint)
    assert children
    if sigint is signal.SIG_IGN:
        process.send_signal(signal.SIGINT)  # meant for what runs in front
    process.send_signal(number)
    assert 130 == process.wait(timeout=120)
    wait_until(lambda: not alive(children), 60, "the children to end")
    errors = (tmp_path / "err").read_text()
    assert "--resume --out run" in errors and "Traceback" not in errors
    assert (sigint is signal.SIG_IGN) == (f"`kill {process.pid}` stops it" in errors)
    result = read_result(tmp_path / "run")
    assert result.interrupted and len(result.trials) >= 1


def test_ctrl_c_before_the_first_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    before = sorted(p.name for p in tmp_path.iterdir())
    process = start("run", "--model", str(model), "--dataset", "demo", cwd=tmp_path)
    wait_until(lambda: bool(descendants(process.pid)), 300, "the measuring process to start")
    children = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    wait_until(lambda: not alive(children), 60, "the children to end")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "out", "err"])
    assert "nothing was kept" in (tmp_path / "err").read_text()


def test_a_killed_parent_leaves_no_child_and_the_run_goes_on(
    shared: Shared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    process, children = begin(tmp_path)
    process.kill()
    process.wait(timeout=10)
    wait_until(lambda: not alive(children), 60, "the children of a killed parent to end")
    before = len(list((tmp_path / "run" / "trials").glob("*.json")))
    go_on = command_of(shared, monkeypatch, capsys, tmp_path)
    resumed = go_on("run", "--resume", "--out", "run", "--trials", "2")
    assert resumed.code == 0, resumed.err[-3000:]
    result = read_result(tmp_path / "run")
    searched = [t for t in result.trials if t.role in ("baseline", "search")]
    assert len(searched) == 2 >= before
    assert len({t.candidate.key for t in searched}) == 2
    assert not result.interrupted


#: A search (on a made-up machine) that is killed as Optuna is to hear of its third measurement.
KILLED = """
import os, signal, sys
from pathlib import Path
import optuna
from tests.support.facts import GPU, facts_of
from tests.support.search import search_of
from tests.support.warm import Shared, command_of

calls, tell = [], optuna.Study.tell

def killing(*arguments, **keywords):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return tell(*arguments, **keywords)

optuna.Study.tell = killing
search_of(Path(sys.argv[1]), facts_of(device=GPU), storage=None).run()
"""


def test_a_measurement_optuna_never_heard_of_is_told_by_the_resumed_search(tmp_path: Path) -> None:
    # BC24
    root = Path(__file__).resolve().parents[2]
    (tmp_path / "killed").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed")],
        cwd=root,
        capture_output=True,
        check=False,
    )
    assert -signal.SIGKILL == done.returncode, done.stderr.decode()[-2000:]
    kept = list((tmp_path / "killed" / "trials").iterdir())
    assert 4 == len(kept), "the baseline, and the three trials"
    resumed = search_of(tmp_path / "killed", facts_of(device=GPU), storage=None)
    states = [t.state.name for t in resumed.store._study.trials]
    assert ["COMPLETE", "COMPLETE", "RUNNING"] == states
    resumed.run()
    whole = search_of(tmp_path / "whole", facts_of(device=GPU))
    whole.run()
    assert [t.candidate.key for t in whole.trials] == [t.candidate.key for t in resumed.trials]
    told = {t.user_attrs["key"]: t for t in resumed.store._study.trials}
    assert {"COMPLETE"} == {t.state.name for t in told.values()}
    for trial in resumed.trials:
        if trial.role == "search":
            assert trial.estimate is not None
            assert [trial.estimate.score_seconds] == told[trial.candidate.key].values

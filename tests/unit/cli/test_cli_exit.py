"""The command line's outermost frame: one clear line on stderr and the right exit code."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune.cli.app import app, main
from autotune.cli.options import check_format, parse_sets
from autotune.cli.signals import Terminated
from autotune.core.errors import (
    AutotuneError,
    BadInput,
    EnvironmentUnable,
    Interrupted,
    NotBuiltYet,
    NothingFits,
    ToolFailure,
)

Said = tuple[int, str, str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., Said]:
    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["autotune", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


@pytest.fixture
def ends_in() -> Iterator[Callable[[BaseException], str]]:
    """Add a command that ends in an exception, for as long as the test runs."""
    added: list[Any] = []

    def add(error: BaseException) -> str:
        def fail() -> None:
            raise error

        app.command("ends-in")(fail)
        added.append(app.registered_commands[-1])
        return "ends-in"

    yield add
    for command in added:
        app.registered_commands.remove(command)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (2, BadInput),
        (3, NothingFits),
        (4, EnvironmentUnable),
        (4, NotBuiltYet),
        (5, ToolFailure),
        (130, Interrupted),
    ],
)
def test_an_error_is_one_line_and_its_own_exit_code(
    code: int, kind: type[AutotuneError], call: Any, ends_in: Any
) -> None:
    said = call(ends_in(kind("what\nhappened.", "What to do.")))
    assert said == (code, "", "error: what happened. What to do.\n")


def test_markup_in_a_message_is_text(call: Any, ends_in: Any) -> None:
    assert "[bold]x[/bold]" in call(ends_in(BadInput("[bold]x[/bold]")))[2]


def test_ctrl_c_is_130_and_termination_143(call: Any, ends_in: Any) -> None:
    assert call(ends_in(KeyboardInterrupt()))[0] == 130
    assert call(ends_in(Terminated()))[0] == 143


def test_a_run_that_can_be_resumed_is_130_whichever_signal_stopped_it(
    call: Any, ends_in: Any
) -> None:
    stopped = Interrupted("stopped by SIGTERM after 3 probes.")
    stopped.__cause__ = Terminated("SIGTERM")
    assert 130 == call(ends_in(stopped))[0]


#: Takes the handlers of a run, and says of each signal whether it raises or is ignored.
HEARD = """
import os, signal
from autotune.cli.signals import Terminated, how_to_stop, terminate_like_ctrl_c
terminate_like_ctrl_c()
for name in ("SIGTERM", "SIGHUP"):
    try:
        os.kill(os.getpid(), getattr(signal, name))
        print(name, "ignored")
    except Terminated as heard:
        print(name, "raises", heard)
print(how_to_stop().replace(str(os.getpid()), "PID"))
"""


@pytest.mark.parametrize(
    ("ignored", "said"),
    [
        ((), ["SIGTERM raises SIGTERM", "SIGHUP raises SIGHUP", ""]),
        (("SIGHUP",), ["SIGTERM raises SIGTERM", "SIGHUP ignored", ""]),
        (
            ("SIGINT",),
            [
                "SIGTERM raises SIGTERM",
                "SIGHUP raises SIGHUP",
                "Ctrl-C does not reach a job in the background: `kill PID` stops it and keeps "
                "every finished probe.",
            ],
        ),
    ],
    ids=["in front", "under nohup", "in the background"],
)
def test_a_signal_that_was_ignored_at_the_start_stays_so(
    ignored: tuple[str, ...], said: list[str]
) -> None:
    def begin() -> None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name)
            signal.signal(number, signal.SIG_IGN if name in ignored else signal.SIG_DFL)

    done = subprocess.run(
        [sys.executable, "-c", HEARD],
        capture_output=True, text=True, timeout=300, check=True, preexec_fn=begin,
    )  # fmt: skip
    assert said == done.stdout.split("\n")[:3]


@pytest.mark.parametrize(
    "start", [("-m", "autotune"), ("-c", "from autotune.__main__ import main; main()")]
)
def test_ctrl_c_while_libraries_load_shows_no_traceback(
    start: tuple[str, str], tmp_path: Path
) -> None:
    # The first library to load stands in for a user who presses it at once.
    pressed = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "typer.py").write_text(pressed, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, *start, "--version"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=300, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (130, "", "error: stopped.\n") == (done.returncode, done.stdout, done.stderr)


def test_an_exit_code_a_command_asks_for_is_kept(call: Any, ends_in: Any) -> None:
    assert call(ends_in(typer.Exit(1)))[0] == 1
    assert call(ends_in(typer.Exit(0)))[0] == 0


def test_a_full_disk_is_the_machines_fault(call: Any, ends_in: Any) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "run/result.json")
    said = "error: the disk is full at run/result.json: No space left on device."
    assert (4, "", f"{said} Make room and try again.\n") == call(ends_in(full))


def test_a_bug_is_said_to_be_one_without_a_traceback(
    call: Any, ends_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = call(ends_in(RuntimeError("oops")))
    assert (5, "") == (code, out)
    assert "RuntimeError: oops" in err
    assert "bug in autotune" in err
    assert "Traceback" not in err
    monkeypatch.setenv("AUTOTUNE_DEBUG", "1")
    assert "Traceback" in call("ends-in")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--memmory", "2GiB"),
        ("run", "--trials", "0"),
        ("run", "--trials", "many"),
        ("run", "--effective-batch", "-4"),
        ("runn",),
        ("spaces",),
        ("spaces", "lst"),
        ("emit",),
        ("run", "--format", "xml"),
        ("run", "--set", "max_length"),
        ("run", "--headroom", "100%"),
        ("run", "--memory", "0GiB"),
        ("run", "--trainer", "sfft"),
        ("run", "--space", "quik"),
        ("run", "--allow", "everything"),
        ("run", "--timeout", "-3m"),
        ("emit", "nowhere"),
        ("emit", ".", "--format", "toml"),
        ("spaces", "show", "quik"),
        ("spaces", "check", "nowhere.yaml"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], call: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (2, "") == (code, out)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_without_a_command_the_help_is_shown(call: Any) -> None:
    code, out, err = call()
    assert (0, "") == (code, err)
    assert "Usage: autotune" in out
    assert call("--help") == (0, out, "")


def test_an_unknown_gpu_is_bad_input_that_names_the_nearest(call: Any) -> None:
    code, out, err = call("predict", "--gpu", "rtx-4009")
    assert (2, "") == (code, out)
    assert "did you mean 'rtx4090'" in err


def test_spaces_are_listed_shown_and_checked(call: Any, tmp_path: Any) -> None:
    code, listed, _ = call("spaces", "list")
    assert code == 0
    assert "sft" in listed
    code, shown, _ = call("spaces", "show", "quick")
    assert code == 0
    file = tmp_path / "mine.yaml"
    file.write_text(shown, encoding="utf-8")
    code, checked, _ = call("spaces", "check", str(file))
    assert code == 0
    assert "search space for any trainer with 5 knobs" in checked
    file.write_text(shown.replace("packing:", "paking:", 1), encoding="utf-8")
    code, _, err = call("spaces", "check", str(file))
    assert code == 2
    assert "did you mean 'packing'" in err


SETS: dict[str, object] = {
    "max_length=2048": 2048,
    "packing=true": True,
    "packing=no": "no",
    "learning_rate=2e-5": 2e-5,
    "learning_rate=1.5": 1.5,
    "optim=adamw_8bit": "adamw_8bit",
    "max_length=null": None,
    "max_length=": None,
    "kw={use_reentrant: false}": {"use_reentrant": False},
    "targets=[q_proj, v_proj]": ["q_proj", "v_proj"],
    "path=a=b": "a=b",
    " spaced = 3": 3,
}


@pytest.mark.parametrize("pair", SETS)
def test_a_set_value_is_a_yaml_scalar_list_or_mapping(pair: str) -> None:
    (found,) = parse_sets([pair]).values()
    assert SETS[pair] == found
    assert type(SETS[pair]) is type(found)


@pytest.mark.parametrize("pair", ["max_length", "=3", " =3", "", "x=[1", "x={a: b: c}", "x=\t- a"])
def test_a_set_that_is_none_is_bad_input(pair: str) -> None:
    with pytest.raises(BadInput, match="--set"):
        parse_sets([pair])


def test_the_last_of_two_sets_wins() -> None:
    assert {"a": 2} == parse_sets(["a=1", "a=2"])


def test_an_unknown_format_is_bad_input() -> None:
    check_format("json", ("table", "json"))
    with pytest.raises(BadInput, match="table or json"):
        check_format("xml", ("table", "json"))

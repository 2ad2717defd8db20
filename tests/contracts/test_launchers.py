"""What a launcher promises: whatever a process does, it ends, all of it, and its end is told.

Misdeeds are brought in as Python itself allows: a ``sitecustomize`` module on the processes' path
that acts by the name of the request's folder: in a forked process when it opens the request, in a
fresh one just before it imports torch, since that takes seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.core.outcome import Outcome
from autotune.probe.cold import ColdLauncher
from autotune.probe.finished import Finished
from autotune.probe.launcher import Launcher
from autotune.probe.protocol import InspectSpec, Request
from autotune.probe.runner import Runner
from autotune.probe.warm import WarmServer
from tests.support.facts import lengths_of, spec_of

pytestmark = pytest.mark.integration

#: Grandchildren write their ids here, beside the request's folder.
DEEDS = """
import json, os, signal, subprocess, sys, time

STUBBORN = (
    "import signal, time\\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\\n"
    "    signal.signal(number, signal.SIG_IGN)\\n"
    "time.sleep(600)"
)


def note(folder, **what):
    with open(folder + ".json", "w") as file:
        json.dump(what, file)


def stubborn_family(folder, own_session):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-c", STUBBORN], start_new_session=own_session)
    note(folder, pids=[os.getpid(), child.pid])


def act(folder):
    name = os.path.basename(folder)
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "aborts":
        # as libstdc++ prints it
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n")
        sys.stderr.write("  what():  std::bad_alloc\\n")
        sys.stderr.flush()
        os.abort()
    elif name == "exits":
        os._exit(7)
    elif name == "hangs":
        stubborn_family(folder, own_session=False)
        time.sleep(600)
    elif name == "scatters":
        stubborn_family(folder, own_session=True)
        time.sleep(600)
    elif name == "leaves":
        stubborn_family(folder, own_session=False)
        os._exit(0)
    elif name == "environment":
        note(folder, env=dict(os.environ), group=os.getpgrp(), pid=os.getpid())
        os._exit(0)


def hook(event, arguments):
    fresh = "--once" in sys.orig_argv
    if event != "open":
        return
    if fresh and "/torch/__" in str(arguments[0]):
        act(os.path.dirname(sys.orig_argv[-1]))
    elif not fresh and str(arguments[0]).endswith("request.json"):
        act(os.path.dirname(str(arguments[0])))


sys.addaudithook(hook)
"""


@pytest.fixture(scope="module")
def deeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("deeds")
    (folder / "sitecustomize.py").write_text(DEEDS, encoding="utf-8")
    # BC52: a PATH without python. No launcher is looked up there, so none can be missing.
    return {
        "PYTHONPATH": str(folder),
        "PATH": "/nowhere",
        "MY_OWN": "kept",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="module", params=[WarmServer, ColdLauncher], ids=["warm", "cold"])
def launcher(
    request: Any, deeds: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Launcher]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_RANK", "3")
        patch.setenv("WANDB_MODE", "online")
        if request.param is WarmServer:
            launched: Launcher = WarmServer(tmp_path_factory.mktemp("server"), deeds)
            assert isinstance(launched, WarmServer)
            assert launched.wait_ready() == ""
        else:
            launched = ColdLauncher(deeds)
    yield launched
    launched.close()


@pytest.fixture
def runner(launcher: Launcher, tmp_path: Path) -> Runner:
    return Runner(launcher, tmp_path)


def run(runner: Runner, name: str, deadline_s: float = 300.0) -> Finished:
    return runner.run(Request(spec=InspectSpec()), name=name, deadline_s=deadline_s)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids: list[int], timeout_s: float = 60.0) -> list[int]:
    end = time.monotonic() + timeout_s
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)  # another process's end has no event here
    return [pid for pid in pids if alive(pid)]


def noted(runner: Runner, name: str) -> dict[str, Any]:
    file = runner._work_dir / "probes" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_an_answer_comes_back_with_code_zero_whatever_the_path(runner: Runner) -> None:
    done = run(runner, "plain")
    assert done.code == 0
    assert done.reply is not None
    assert done.reply.environment is not None
    assert not done.timed_out
    assert not (runner._work_dir / "probes" / "plain").exists(), "the folder is removed"


def test_an_end_by_signal_is_told_as_that_signal(runner: Runner) -> None:
    done = run(runner, "killed")
    assert done.code == -signal.SIGKILL
    assert done.reply is None


def test_signal_9_is_likely_host_memory(runner: Runner) -> None:
    # BC14
    report = runner.probe(spec_of(lengths_of([3])), name="killed", deadline_s=300.0)
    assert report.ending.outcome is Outcome.OOM_HOST
    assert report.ending.reason.startswith("killed (likely host memory)")


def test_an_allocator_that_aborts_leaves_its_words_in_the_log(runner: Runner) -> None:
    report = runner.probe(spec_of(lengths_of([3])), name="aborts", deadline_s=300.0)
    assert report.ending.outcome is Outcome.OOM_HOST
    assert report.log_file is not None
    assert "std::bad_alloc" in Path(report.log_file).read_text(encoding="utf-8")


def test_an_end_without_an_answer_is_a_crash(runner: Runner) -> None:
    report = runner.probe(spec_of(lengths_of([3])), name="exits", deadline_s=300.0)
    assert report.ending.outcome is Outcome.CRASHED
    assert "code 7" in report.ending.reason


@pytest.mark.parametrize("deed", ["hangs", "scatters"])
def test_after_the_deadline_the_whole_family_is_gone(deed: str, runner: Runner) -> None:
    # BC25: child and grandchild ignore every polite signal; one has a session of its own.
    for deadline_s in (3.0, 30.0, 120.0):  # a busy machine takes longer to misbehave
        done = run(runner, deed, deadline_s=deadline_s)
        assert done.timed_out
        if (runner._work_dir / "probes" / f"{deed}.json").exists():
            break
    pids = noted(runner, deed)["pids"]
    assert len(pids) == 2
    assert wait_until_gone(pids) == []


def test_what_a_process_leaves_behind_is_ended_with_it(runner: Runner) -> None:
    done = run(runner, "leaves")
    assert done.code == 0
    assert wait_until_gone(noted(runner, "leaves")["pids"]) == []


def test_whatever_interrupts_the_wait_ends_the_family_first(runner: Runner) -> None:
    class Pressed(KeyboardInterrupt):
        pass

    def tick(seconds: float) -> None:
        if (runner._work_dir / "probes" / "hangs.json").exists():
            raise Pressed

    request = Request(spec=InspectSpec())
    with pytest.raises(Pressed):
        runner.run(request, name="hangs", deadline_s=300.0, tick=tick)
    assert wait_until_gone(noted(runner, "hangs")["pids"]) == []


def test_a_process_has_the_users_environment_less_a_launchers(runner: Runner) -> None:
    run(runner, "environment")
    found = noted(runner, "environment")
    assert "LOCAL_RANK" not in found["env"]
    assert found["env"]["MY_OWN"] == "kept"
    assert found["env"]["WANDB_MODE"] == "disabled"
    assert found["group"] == found["pid"], "it leads a process group of its own"


def test_probes_in_a_row_leave_no_file_open(runner: Runner) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    run(runner, "killed")
    before = opened()
    for _ in range(5):
        run(runner, "killed")
    assert opened() <= before


PARENT = """
import sys
from pathlib import Path
from autotune.probe.cold import ColdLauncher
from autotune.probe.protocol import InspectSpec, Request
from autotune.probe.runner import Runner

runner = Runner(ColdLauncher({"PYTHONPATH": sys.argv[2]}), Path(sys.argv[1]))
runner.run(Request(spec=InspectSpec()), name="hangs", deadline_s=600.0)
"""


def test_a_killed_parent_leaves_nobody(deeds: dict[str, str], tmp_path: Path) -> None:
    # BC25: SIGKILL gives the parent no chance to clean up.
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path), deeds["PYTHONPATH"]]
    )
    file = tmp_path / "probes" / "hangs.json"
    end = time.monotonic() + 300.0
    while not (file.exists() and file.read_text(encoding="utf-8")):
        assert time.monotonic() < end
        time.sleep(0.02)
    pids = json.loads(file.read_text(encoding="utf-8"))["pids"]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert wait_until_gone(pids) == []

"""Real children in which something goes wrong on purpose: each ends as what it is, where it is.

Faults are planted as a worse library would: a ``sitecustomize`` module on the server's path acts in
the forked child, by the name of the request's folder.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome, Phase
from autotune.knobs.translate import canonical, settings
from autotune.probe.protocol import GuardSide, GuardSpec, ProbeSpec, Verification
from autotune.probe.runner import Runner
from autotune.probe.warm import WarmServer
from autotune.study.guard import guard_spec, not_comparable
from autotune.study.plan import probe_spec
from tests.support.facts import GIB, budget_of, candidate_of, facts_of, trial_of
from tests.support.rows import LATE_LONG_ROW, write_job, write_rows, write_trainer_rows

pytestmark = pytest.mark.integration

FAULTS = """
import os, resource, signal, sys, time

LOADED = 0


def full(*_, **__):
    import torch
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def at_call(number, deed, own):
    calls = []

    def wrapped(*arguments, **keywords):
        calls.append(1)
        if len(calls) == number:
            deed()
        return own(*arguments, **keywords)

    return wrapped


def act(name):
    global LOADED
    import torch
    import transformers
    import trl

    step = torch.optim.AdamW.step
    if name == "first-update":
        torch.optim.AdamW.step = at_call(1, full, step)
    elif name == "second-update":
        torch.optim.AdamW.step = at_call(2, full, step)
    elif name == "hangs-in-update":
        torch.optim.AdamW.step = at_call(1, lambda: time.sleep(600), step)
    elif name == "killed-in-step":
        own = trl.SFTTrainer.compute_loss
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
        trl.SFTTrainer.compute_loss = at_call(3, kill, own)
    elif name == "killed-in-own-step":
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
        own = transformers.Trainer.training_step
        transformers.Trainer.training_step = at_call(3, kill, own)
    elif name == "address-space":
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (2**30, resource.RLIM_INFINITY))
            torch.empty(2**33, dtype=torch.uint8)
        own = trl.SFTTrainer.compute_loss
        trl.SFTTrainer.compute_loss = at_call(1, limit, own)
    elif name == "save":
        transformers.Trainer._save_checkpoint = full
    elif name == "save-to-full-disk":
        def no_room(*_, **__):
            raise OSError(28, "No space left on device")
        transformers.Trainer._save_checkpoint = no_room
    elif name == "after-save":
        saved, own = transformers.Trainer._save_checkpoint, trl.SFTTrainer.compute_loss
        def save(*arguments, **keywords):
            trl.SFTTrainer.compute_loss = full
            return saved(*arguments, **keywords)
        transformers.Trainer._save_checkpoint = save
    elif name.startswith("counts"):
        LOADED += 1
        print("loaded", LOADED, "times", file=sys.stderr, flush=True)


def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith("request.json"):
        act(os.path.basename(os.path.dirname(str(arguments[0]))))


sys.addaudithook(hook)
"""


@dataclass
class Place:
    runner: Runner
    spec: ProbeSpec

    def of(self, trainer: Trainer) -> ProbeSpec:
        """Return the same request for another trainer, on rows of its own."""
        rows = Path(self.spec.rows_dir).with_name(trainer.value)
        if not rows.is_dir():
            write_trainer_rows(rows, trainer, LATE_LONG_ROW)
        options = {k: v for k, v in self.spec.options.items() if not k.startswith(("pack", "padd"))}
        return self.spec.model_copy(
            update={"trainer": trainer, "rows_dir": str(rows), "options": options}
        )

    def probe(self, name: str, deadline_s: float = 120.0, **changes: Any) -> ProbeReport:
        spec = self.spec.model_copy(update=changes)
        return self.runner.probe(spec, name=name, deadline_s=deadline_s)

    def compare(self, name: str, deadline_s: float = 120.0, **options: Any) -> ProbeReport:
        """Compare the request with itself, or with other options."""
        own = self.spec
        spec = GuardSpec(
            trainer=own.trainer,
            model_dir=own.model_dir,
            weights="random",
            device="cpu",
            rows_dir=own.rows_dir,
            rows=(0, 1, 2, 3),
            reference=GuardSide(options=own.options),
            candidate=GuardSide(options={**own.options, **options}),
        )
        return self.runner.compare(spec, name=name, deadline_s=deadline_s)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "sitecustomize.py").write_text(textwrap.dedent(FAULTS), encoding="utf-8")
    model_dir, rows_dir = write_job(folder, LATE_LONG_ROW)
    options = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "bf16": False,
        "save_steps": 1,
    }
    facts = facts_of(LATE_LONG_ROW, options=options, min_retention_ratio=0.0)
    candidate = canonical(candidate_of(per_device_train_batch_size=2, max_length=64), facts)
    budget = budget_of(8 * GIB)
    spec = probe_spec(
        candidate, settings(candidate, facts), facts, model_dir, rows_dir, budget
    ).model_copy(update={"memory_only": True})
    server = WarmServer(folder, {"OMP_NUM_THREADS": "1", "PYTHONPATH": _with(folder)})
    with Runner(server, folder) as runner:
        yield Place(runner, spec)


def _with(folder: Path) -> str:
    import os

    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def test_two_whole_updates_are_run_whatever_the_accumulation(place: Place) -> None:
    # BC13: four micro-steps of accumulation; the probe's length is counted in updates.
    measured = place.probe("quiet").measurement
    assert measured is not None
    assert len(measured.grad_norms) >= 2
    assert len(measured.memory_steps) == 4


@pytest.mark.parametrize(("name", "steps"), [("first-update", 2), ("second-update", 4)])
def test_memory_that_runs_out_in_an_update_is_placed_there(
    name: str, steps: int, place: Place
) -> None:
    # BC13
    ending = place.probe(name).ending
    assert (Outcome.OOM_DEVICE, Phase.OPTIMIZER_STEP) == (ending.outcome, ending.phase)
    assert f"after {steps} micro-steps" in ending.reason


@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.REWARD, Trainer.KTO])
def test_phases_are_right_for_every_trainer(trainer: Trainer, place: Place) -> None:
    # BC13
    of_trainer = place.of(trainer).model_dump(include={"trainer", "rows_dir", "options"})
    ending = place.probe("second-update", **of_trainer).ending
    assert (Outcome.OOM_DEVICE, Phase.OPTIMIZER_STEP) == (ending.outcome, ending.phase)
    assert "after 4 micro-steps" in ending.reason
    ending = place.probe("killed-in-own-step", **of_trainer).ending
    assert (Outcome.OOM_HOST, Phase.STEADY) == (ending.outcome, ending.phase)
    assert "after 2 micro-steps" in ending.reason


def test_a_killed_probe_is_placed_in_the_phase_it_was_in(place: Place) -> None:
    # BC14: what the kernel's killer leaves is no traceback.
    report = place.probe("killed-in-step")
    assert report.ending.outcome is Outcome.OOM_HOST
    assert report.ending.phase is Phase.STEADY
    assert "killed (likely host memory) at" in report.ending.reason
    assert "after 2 micro-steps" in report.ending.reason
    assert report.peak_rss_bytes is not None and report.peak_rss_bytes > 0


def test_a_hanging_probe_is_placed_in_the_phase_it_was_in(place: Place) -> None:
    for deadline_s in (8.0, 60.0, 240.0):  # a busy machine comes to its first update later
        ending = place.probe("hangs-in-update", deadline_s=deadline_s).ending
        if ending.phase is Phase.OPTIMIZER_STEP:
            break
    assert (Outcome.TIMEOUT, Phase.OPTIMIZER_STEP) == (ending.outcome, ending.phase)


def test_a_comparison_that_fails_is_placed_in_the_phase_it_was_in(place: Place) -> None:
    ending = place.compare("second-update").ending  # the candidate's; the reference's is the first
    assert (Outcome.OOM_DEVICE, Phase.OPTIMIZER_STEP) == (ending.outcome, ending.phase)
    assert "after 4 micro-steps" in ending.reason
    refused = place.compare("quiet-comparison", padding_free=True).ending
    assert (Outcome.INVALID, Phase.LOAD) == (refused.outcome, refused.phase)
    killed = place.compare("killed-in-own-step").ending
    assert (Outcome.OOM_HOST, Phase.FIRST_STEP) == (killed.outcome, killed.phase)


def test_an_address_space_that_is_too_small_is_host_memory(place: Place) -> None:
    # BC14, second variant: torch's allocator raises a RuntimeError.
    ending = place.probe("address-space").ending
    assert (Outcome.OOM_HOST, Phase.FIRST_STEP) == (ending.outcome, ending.phase)


SAVING = {"verification": Verification(updates=4, save=True), "memory_only": False}


@pytest.mark.parametrize(("name", "phase"), [("save", Phase.SAVE), ("after-save", Phase.STEADY)])
def test_a_verification_saves_and_trains_on(name: str, phase: Phase, place: Place) -> None:
    # BC26
    ending = place.probe(name, **SAVING).ending
    assert (Outcome.OOM_DEVICE, phase) == (ending.outcome, ending.phase)


def test_a_full_disk_at_the_save_is_said_as_such_and_leaves_nothing(place: Place) -> None:
    # BC26
    report = place.probe("save-to-full-disk", **SAVING)
    assert report.ending.outcome is Outcome.CRASHED
    assert report.ending.phase is Phase.SAVE
    assert "the disk is full" in report.ending.reason
    assert list((Path(str(report.log_file)).parents[1] / "probes").iterdir()) == []


def test_nothing_a_probe_leaves_in_memory_reaches_the_next(place: Place) -> None:
    # BC21: a counter in a module, which only the end of its process resets.
    reports = [place.probe(f"counts-{i}") for i in range(2)]
    for report in reports:
        assert "loaded 1 times" in Path(str(report.log_file)).read_text(encoding="utf-8")
    first, second = (r.measurement for r in reports)
    assert first is not None and second is not None
    assert first.peaks.allocated_bytes == second.peaks.allocated_bytes


def test_documents_split_in_silence_are_caught_on_rows_longer_than_the_pieces(place: Place) -> None:
    # A rule that lets `bfd_split` through at a length that documents do not fit, as if it kept all.
    folder = Path(place.spec.rows_dir).with_name("documents")
    tokens = [90, 100, 110, 120] * 8
    facts = facts_of(tokens, options={**place.spec.options, "max_length": 120})
    own = trial_of(0, canonical(candidate_of(max_length=120), facts), role="baseline")
    rows_dir = str(write_rows(folder, tokens))

    def compared(number: int, packing: str, length: int) -> ProbeReport:
        knobs = {"packing": packing, "max_length": length, "per_device_train_batch_size": 1}
        trial = trial_of(number, canonical(candidate_of(**knobs), facts), changes="data")
        options = {"packing": True, "packing_strategy": packing, "max_length": length}
        trial = trial.model_copy(update={"options": {**options, "per_device_train_batch_size": 1}})
        assert not_comparable(trial, own, facts) == ""
        spec = guard_spec(
            trial,
            own,
            facts,
            model_dir=place.spec.model_dir,
            rows_dir=rows_dir,
            weights="random",
        )
        return place.runner.compare(spec, name=f"split-{number}", deadline_s=120.0)

    assert Outcome.FITS is compared(1, "bfd", 120).ending.outcome
    split = compared(2, "bfd_split", 64)
    assert Outcome.INVALID is split.ending.outcome
    assert "not equivalent" in split.ending.reason

"""The shipped fake: what it makes up is what a device would do."""

from __future__ import annotations

import dataclasses
import signal
from typing import Any

import numpy as np
import pytest

from autotune.core.job import PROBED_TRAINERS, Trainer
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome, Phase
from autotune.probe.protocol import Verification
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_prober import FakeProber
from autotune.testing.fake_script import (
    Dies,
    Diverges,
    Grows,
    Hangs,
    Happening,
    Interrupts,
    Pollutes,
    Raises,
    Spills,
    always,
    at,
    out_of_memory,
)
from tests.support.facts import GIB, MIB, SKEWED, lengths_of, spec_of

ROWS = lengths_of(SKEWED)


def probe(
    happening: Happening | None = None, machine: FakeMachine | None = None, **spec: Any
) -> ProbeReport:
    prober = FakeProber(machine or FakeMachine(), ROWS, always(happening) if happening else None)
    return prober.probe(spec_of(ROWS, **{"device": "cuda:0", **spec}), name="0000", deadline_s=60.0)


ENDINGS: dict[str, tuple[Happening, Outcome, Phase]] = {
    **{
        f"out of memory in {phase.value}": (
            out_of_memory("cuda:0", phase), Outcome.OOM_DEVICE, phase
        )
        for phase in Phase
    },
    "host memory": (out_of_memory("cpu", Phase.STEADY), Outcome.OOM_HOST, Phase.STEADY),
    "a kill": (Dies(-signal.SIGKILL), Outcome.OOM_HOST, Phase.LOAD),
    "a segmentation fault": (Dies(-signal.SIGSEGV), Outcome.CRASHED, Phase.LOAD),
    "an exception": (Raises("builtins.KeyError", "'x'"), Outcome.CRASHED, Phase.STEADY),
    "a refusal": (Raises("builtins.ValueError", "no", Phase.LOAD), Outcome.INVALID, Phase.LOAD),
    "a hang": (Hangs(), Outcome.TIMEOUT, Phase.LOAD),
    "a loss that diverges": (Diverges(step=3), Outcome.NON_FINITE, Phase.STEADY),
    "a peak above the device": (Spills(30 * GIB), Outcome.SPILLED, Phase.STEADY),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDINGS)
def test_every_ending_can_be_scripted(case: str) -> None:
    happening, outcome, phase = ENDINGS[case]
    ending = probe(happening).ending
    assert (outcome, phase) == (ending.outcome, ending.phase)


def test_a_larger_batch_and_less_checkpointing_need_more() -> None:
    def peak(**options: Any) -> int:
        measured = probe(**options).measurement
        assert measured is not None
        return measured.peaks.deciding_bytes or 0

    small, large = peak(per_device_train_batch_size=1), peak(per_device_train_batch_size=8)
    assert small < large < peak(per_device_train_batch_size=8, gradient_checkpointing=False)


def test_a_cap_below_the_need_is_an_allocator_without_memory() -> None:
    for device, outcome in (("cuda:0", Outcome.OOM_DEVICE), ("cpu", Outcome.OOM_HOST)):
        report = probe(device=device, cap_bytes=1200 * MIB, gradient_checkpointing=False)
        assert outcome is report.ending.outcome
        assert report.needed_bytes is not None
        assert report.needed_bytes >= 1200 * MIB
        assert report.measurement is None


def test_the_optimizer_is_where_a_tight_cap_breaks() -> None:
    machine = FakeMachine(token_bytes=1.0, context_bytes=0, reserved_ratio=1.0)
    report = probe(machine=machine, cap_bytes=800 * MIB)
    assert report.ending.phase is Phase.OPTIMIZER_STEP


def test_growing_memory_is_seen_step_by_step() -> None:
    # BC43
    measured = probe(Grows(300 * MIB)).measurement
    assert measured is not None
    peaks = [s.peak_bytes or 0 for s in measured.memory_steps]
    assert peaks == sorted(set(peaks))


def test_mixed_lengths_evaluation_and_saving_have_peaks_of_their_own() -> None:
    machine = FakeMachine(mixed_ratio=1.2, evaluation_bytes=8 * GIB, saving_bytes=6 * GIB)
    plain = probe(machine=machine).measurement
    assert plain is not None
    assert ["load", "memory", "timed"] == list(plain.stage_peaks)
    assert "timed" == plain.peak_stage, "what mixed lengths add"
    look = Verification(save=True, eval_rows_dir="rows", eval_rows=(0, 1))

    def verified(cap_bytes: int | None = None) -> ProbeReport:
        spec = spec_of(ROWS, device="cuda:0", cap_bytes=cap_bytes)
        asked = spec.model_copy(update={"verification": look})
        return FakeProber(machine, ROWS).probe(asked, name="0", deadline_s=60.0)

    measured = verified().measurement
    assert measured is not None
    assert ["load", "memory", "mixed", "save", "eval"] == list(measured.stage_peaks)
    assert "eval" == measured.peak_stage
    assert 20 == len(measured.update_peaks_bytes) == len(measured.update_reserved_bytes)
    short = verified(6 * GIB).ending
    assert (Outcome.OOM_DEVICE, Phase.SAVE) == (short.outcome, short.phase)


def test_a_scaler_that_settles_late_is_no_failure_and_one_that_never_does_is() -> None:
    late = probe(machine=FakeMachine(skipped_updates=5), fp16=True)
    assert late.measurement is not None
    assert 5 == late.measurement.skipped_updates
    assert 2 + 5 == len(late.measurement.memory_steps), "a micro-step each"
    assert Outcome.FITS is late.ending.outcome
    never = probe(machine=FakeMachine(skipped_updates=999), fp16=True)
    assert Outcome.NON_FINITE is never.ending.outcome
    assert probe(machine=FakeMachine(skipped_updates=5)).ending.outcome is Outcome.FITS


def test_a_polluted_device_is_not_the_candidates_fault() -> None:
    # BC21: the same request fits when the device is free again.
    machine = FakeMachine(total_bytes=4 * GIB)
    assert probe(Pollutes(3 * GIB), machine).ending.outcome is Outcome.POLLUTED
    assert probe(None, machine).ending.outcome is Outcome.FITS


def test_the_user_can_interrupt_any_probe() -> None:
    prober = FakeProber(FakeMachine(), ROWS, at({1: Interrupts()}))
    prober.probe(spec_of(ROWS), name="0", deadline_s=60.0)
    with pytest.raises(KeyboardInterrupt):
        prober.probe(spec_of(ROWS), name="1", deadline_s=60.0)


def test_noise_belongs_to_a_probe_and_its_seed() -> None:
    noisy = FakeMachine(noise_ratio=0.05)
    assert probe(machine=noisy) == probe(machine=noisy)
    assert probe(machine=noisy) != probe(machine=FakeMachine(noise_ratio=0.05, seed=1))


@pytest.mark.parametrize("trainer", list(PROBED_TRAINERS))
def test_every_offline_trainer_is_measured(trainer: Trainer) -> None:
    report = of_trainer(trainer)
    assert report.ending.outcome is Outcome.FITS, report.ending
    assert report.measurement is not None
    sides = 2 if trainer in (Trainer.DPO, Trainer.REWARD) else 1
    assert {8 * sides} == {s.rows for s in report.measurement.timed_steps}


def test_a_reference_costs_memory_and_time_and_precomputing_it_saves_both() -> None:
    def cost(trainer: Trainer, **options: Any) -> tuple[int, float]:
        measured = of_trainer(trainer, **options).measurement
        assert measured is not None
        step = max(measured.timed_steps, key=lambda s: s.padded_tokens)
        return measured.peaks.deciding_bytes or 0, step.seconds / step.padded_tokens

    plain, dpo = cost(Trainer.REWARD), cost(Trainer.DPO)
    assert plain[0] < dpo[0] and plain[1] < dpo[1]
    assert cost(Trainer.DPO, precompute_ref_log_probs=True) == pytest.approx(plain, rel=0.01)
    adapters = cost(Trainer.DPO, use_peft=True)
    assert adapters[0] < dpo[0] and adapters[1] == pytest.approx(dpo[1])
    assert cost(Trainer.KTO)[1] > dpo[1], "it runs the mismatched completions too"


def of_trainer(trainer: Trainer, **options: Any) -> ProbeReport:
    chosen = np.asarray(SKEWED)
    pairs = dataclasses.replace(
        ROWS, chosen=chosen, rejected=np.maximum(chosen - 5, 1), first_labels=chosen // 2
    )
    rows = pairs if trainer in (Trainer.DPO, Trainer.REWARD) else ROWS
    if trainer is Trainer.KTO:
        rows = dataclasses.replace(ROWS, first_labels=chosen // 2)
    spec = spec_of(rows, device="cuda:0", **options).model_copy(update={"trainer": trainer})
    return FakeProber(FakeMachine(), rows).probe(spec, name="0", deadline_s=600.0)

"""Searches that know what to expect: predictions lead, gate and are corrected on a made-up GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.candidate import Candidate
from autotune.core.outcome import Outcome
from autotune.core.prediction import Fit
from autotune.core.traced_step import TracedStep
from autotune.knobs.catalog import user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical
from autotune.predict.request import TraceRequest
from autotune.spaces.schema import Space
from autotune.study.foresight import Foresight, trace_candidates
from autotune.study.host_memory import host_remark
from autotune.study.limits import Limits
from autotune.study.search import Search
from autotune.study.storage import IN_MEMORY
from autotune.study.strategy import tracing_seconds
from autotune.study.traces import Traces, read_traces, write_traces
from autotune.testing.fake_machine import FakeMachine
from tests.support.facts import GIB, GPU, MIB, facts_of
from tests.support.search import SMALL_SPACE, search_of, space_of
from tests.support.work import FakeTracing, rates_of, shape_of_request, work

FACTS = facts_of(device=GPU)
OWN = canonical(user_candidate(FACTS), FACTS)
#: A probe of this machine is slow enough for traces to pay.
MACHINE = FakeMachine(load_s=60.0)


def traced(request: TraceRequest) -> TracedStep:
    """Return what `MACHINE` does, 10 % less of it everywhere: a good tracer with a bias."""
    tokens, _ = shape_of_request(request)
    options = request.options
    savers = MACHINE.checkpointing
    kwargs = options.get("gradient_checkpointing_kwargs") or {}
    name = "selective" if kwargs.get("selective") else "full"
    factors = savers[name if options.get("gradient_checkpointing", True) else "none"]
    held = MACHINE.weights_bytes + MACHINE.gradient_bytes + MACHINE.optimizer_bytes
    split = {
        "weights": int(0.9 * held),
        "activations": int(0.9 * tokens * MACHINE.token_bytes * factors.memory),
    }
    offloads = bool(options.get("activation_offloading"))
    hosted = split["activations"] // 2 if offloads else 0
    split["activations"] -= hosted
    seconds = 0.9 * (MACHINE.step_s + tokens * MACHINE.token_s * factors.time)
    return TracedStep(
        peak_bytes=sum(split.values()),
        offloaded_bytes=hosted,
        phase="backward",
        split=split,  # type: ignore[arg-type]
        held_bytes=split["weights"],
        micro_step=(work("matmul", flops=seconds * 1e11, launches=1),),
        optimizer_step=(work("elementwise", moved=MACHINE.optimizer_s * 1e10, launches=1),),
    )


VERSIONS = {"autotune": "1", "torch": "2"}


def predicted_search(
    folder: Path,
    *,
    memory_bytes: int = 12 * GIB,
    trials: int = 8,
    storage: str | None = IN_MEMORY,
    started: int = 0,
    facts: Facts = FACTS,
    space: Space = SMALL_SPACE,
) -> Search:
    search = search_of(
        folder,
        facts,
        space=space,
        machine=MACHINE,
        memory_bytes=memory_bytes,
        trials=trials,
        storage=storage,
        started=started,
    )

    def look_ahead(candidates: Sequence[Candidate], seconds: float) -> Foresight | None:
        before = read_traces(folder, VERSIONS)
        kept = {} if before is None else dict(before.steps)
        foreseen, _ = trace_candidates(
            candidates,
            facts,
            "model",
            FakeTracing(answer=traced),
            seconds=seconds,
            tick=lambda _: None,
            tell=lambda *_: None,
            kept=kept,
        )
        write_traces(folder, Traces(versions=VERSIONS, rates=rates_of(), steps=kept))
        return Foresight(facts, rates_of(), foreseen) if foreseen else None

    search.look_ahead = look_ahead
    return search


def scores(search: Search) -> dict[str, float]:
    return {t.candidate.key: t.estimate.score_seconds for t in search.trials if t.estimate}


def test_the_first_candidates_are_the_most_promising(tmp_path: Path) -> None:
    search = predicted_search(tmp_path)
    search.run()
    everything = search_of(tmp_path / "all", FACTS, machine=MACHINE, trials=200)
    everything.run()
    first = [t for t in search.trials if t.role == "search"][:3]
    best = min(scores(everything).values())
    assert any(
        t.estimate and t.estimate.score_seconds == pytest.approx(best, rel=0.02) for t in first
    )


def test_what_is_predicted_not_to_fit_is_never_probed_and_kept_with_its_peak(
    tmp_path: Path,
) -> None:
    search = predicted_search(tmp_path, memory_bytes=2 * GIB, trials=200)
    search.run()
    gated = search.gated()
    probed = {t.candidate.key for t in search.trials}
    assert gated
    assert not probed & set(gated)
    stored = {
        t.user_attrs["key"]: t.user_attrs["predicted_peak_bytes"]
        for t in search.store._study.get_trials(deepcopy=False)
        if t.state.name == "PRUNED"
    }
    assert {key: p.peak_bytes for key, p in gated.items()} == stored
    # Nothing that would have fitted was passed over.
    blind = search_of(tmp_path / "blind", FACTS, machine=MACHINE, memory_bytes=2 * GIB, trials=200)
    blind.run()
    assert not set(scores(blind)) & set(gated)
    assert min(scores(blind).values()) == min(scores(search).values())


def test_what_may_fit_is_probed(tmp_path: Path) -> None:
    search = predicted_search(tmp_path, memory_bytes=2 * GIB, trials=200)
    search.run()
    ends = {t.report.ending.outcome for t in search.trials if t.role == "search"}
    assert Outcome.FITS in ends
    unsure = [p for p in search.predictions() if p.fit(search.budget) is Fit.UNSURE]
    probed = {t.candidate.key for t in search.trials}
    assert {p.candidate.key for p in unsure} <= probed


def test_predictions_are_kept_beside_what_was_measured_and_get_better(tmp_path: Path) -> None:
    search = predicted_search(tmp_path)
    search.run()
    trials = [t for t in search.trials if t.role == "search" and t.estimate and t.prediction]

    def miss(index: int) -> float:
        trial = trials[index]
        assert trial.prediction and trial.estimate
        return abs(trial.prediction.score_seconds / trial.estimate.score_seconds - 1.0)

    assert trials[0].prediction and trials[0].prediction.calibrated_by >= 1
    assert miss(-1) < 0.05
    measured = scores(search)
    final = {p.candidate.key: p.score_seconds for p in search.predictions()}
    assert all(final[key] == pytest.approx(seconds, rel=0.1) for key, seconds in measured.items())


def test_nothing_fits_is_found_out_on_the_smallest_prediction(tmp_path: Path) -> None:
    search = predicted_search(tmp_path, memory_bytes=600 * MIB, trials=200)
    search.run()
    assert 2 == len(search.trials)
    least = min(search.predictions(), key=lambda p: p.peak_bytes)
    assert least.candidate.key == search.trials[1].candidate.key


def test_cheap_probes_are_not_preceded_by_traces(tmp_path: Path) -> None:
    cheap = search_of(tmp_path, FACTS, trials=8)
    cheap.run()
    assert tracing_seconds(cheap.trials, 16) is None
    assert {None} == {t.prediction for t in cheap.trials}
    slow = predicted_search(tmp_path / "slow")
    slow.run()
    seconds = tracing_seconds(slow.trials[:1], 16)
    assert seconds is not None and seconds <= 0.1 * 16 * slow.trials[0].report.wall_seconds


def test_what_is_predicted_slower_than_a_probe_that_did_not_end_is_skipped_and_said(
    tmp_path: Path,
) -> None:
    everything = predicted_search(tmp_path / "all", trials=200, memory_bytes=40 * GIB)
    everything.run()
    walls = sorted(t.report.wall_seconds for t in everything.trials if t.role == "search")
    search = predicted_search(tmp_path / "short", trials=200, memory_bytes=40 * GIB)
    search.limits = Limits(trials=200, search_s=None, probe_s=walls[len(walls) // 4])
    search.run()
    late = [t for t in search.trials if t.report.ending.outcome is Outcome.TIMEOUT]
    assert late and len(late) < sum(wall > walls[len(walls) // 4] for wall in walls)
    (line,) = [s for s in search.refused() if s.what.startswith("predicted to be slower")]
    assert line.count > 0
    assert "--probe-timeout" in line.reason
    assert any(t.estimate is not None for t in search.trials)


OFFLOADING = space_of(
    per_device_train_batch_size=[1, 2, 4, 8],
    gradient_checkpointing=["none", "full"],
    activation_offloading=[False, True],
)


@pytest.mark.parametrize("memory_bytes", [12 * GIB, 2 * GIB])
def test_what_would_pin_more_host_memory_than_is_free_is_not_probed(
    tmp_path: Path, memory_bytes: int
) -> None:
    def probed(name: str, host_free_bytes: int | None) -> tuple[Search, list[int]]:
        facts = replace(FACTS, host_free_bytes=host_free_bytes)
        search = predicted_search(
            tmp_path / name, memory_bytes=memory_bytes, trials=200, facts=facts, space=OFFLOADING
        )
        search.run()
        hosted = {p.candidate.key: p.offloaded_bytes for p in search.predictions()}
        return search, [hosted[t.candidate.key] for t in search.trials]

    _, unbounded = probed("unbounded", None)
    free = sorted(filter(None, unbounded))[0]
    search, pinned = probed("bounded", free)
    assert max(pinned) <= free < max(unbounded)
    (line,) = [s for s in search.refused() if "host memory" in s.what]
    assert line.count > 0
    assert "would pin" in line.reason and "is free" in line.reason


def test_a_prediction_says_what_offloading_asks_of_the_host(tmp_path: Path) -> None:
    search = predicted_search(tmp_path, space=OFFLOADING)
    search.run()
    (largest, *_) = sorted(search.predictions(), key=lambda p: -p.offloaded_bytes)
    size = largest.offloaded_bytes
    assert "it does not fit" in host_remark(largest, size - 1)
    assert "it may not fit" in host_remark(largest, size + 1)
    assert "" == host_remark(largest, 2 * size) == host_remark(largest, None)
    assert "" == host_remark(None, size)


def test_a_search_resumed_after_its_last_probe_has_its_predictions_and_what_they_gated(
    tmp_path: Path,
) -> None:
    whole = predicted_search(tmp_path, memory_bytes=2 * GIB, trials=4, storage=None)
    whole.run()
    whole.store.close()
    assert whole.gated() and tracing_seconds(whole.trials, 4) is None, "nothing is left to probe"
    resumed = predicted_search(
        tmp_path, memory_bytes=2 * GIB, trials=4, storage=None, started=len(whole.trials)
    )
    resumed.run()
    assert whole.predictions() == resumed.predictions()
    assert whole.gated() == resumed.gated()


def test_traces_of_other_versions_and_damaged_ones_are_not_read(tmp_path: Path) -> None:
    assert None is read_traces(tmp_path, VERSIONS)
    made = Traces(versions=VERSIONS, rates=rates_of(), steps={})
    write_traces(tmp_path, made)
    assert made == read_traces(tmp_path, VERSIONS)
    assert None is read_traces(tmp_path, {**VERSIONS, "torch": "3"})
    (tmp_path / "traces.json.gz").write_bytes(b"no gzip")
    assert None is read_traces(tmp_path, VERSIONS)
    write_traces(tmp_path / "nowhere", made)

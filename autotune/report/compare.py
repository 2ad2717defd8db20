"""Two results side by side: did anything get worse by more than is allowed and than the noise?

Pure functions over two documents. Never passes on what it could not compare: that is a refusal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from autotune.core.outcome import Outcome
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes
from autotune.report.clocks import clocks, state_of
from autotune.report.samples import Sample, paired, sample_of, steps_of
from autotune.report.thresholds import MEMORY_PARTS, METRICS, Threshold

#: ``too noisy``: the noise is as large as the quantity, so that only a change larger still, which
#: is a regression, could be seen.
Verdict = Literal["regression", "within noise", "too noisy", "ok", "not checked"]


@dataclass(frozen=True)
class Row:
    """One quantity in both results.

    Args:
        name: as in a threshold.
        baseline: value stored; None when it was not measured.
        current: value now; None when it was not measured.
        noise: what the two may differ by without a cause, same unit.
        limit: threshold as written; None when none was given.
        verdict: what follows.
    """

    name: str
    baseline: float | None
    current: float | None
    noise: float
    limit: str | None
    verdict: Verdict

    @property
    def change_ratio(self) -> float | None:
        """Change as a share of the baseline; positive means more."""
        if self.baseline is None or self.current is None or self.baseline == 0:
            return None
        return self.current / self.baseline - 1.0


@dataclass(frozen=True)
class Comparison:
    """What comparing two results found.

    Args:
        rows: every quantity, thresholds first.
        refusals: why the two cannot be compared, one sentence each; not empty means no verdict.
        differences: what else differs and was allowed to.
        failed: why the current configuration does not run at all; empty when it does.
    """

    rows: tuple[Row, ...]
    refusals: tuple[str, ...]
    differences: tuple[str, ...]
    failed: str = ""

    @property
    def regressions(self) -> tuple[Row, ...]:
        """Quantities that got worse by more than the threshold and the noise."""
        return tuple(row for row in self.rows if row.verdict == "regression")

    @property
    def passed(self) -> bool:
        """Whether everything asked for was compared and nothing got worse."""
        return not (self.refusals or self.regressions or self.failed)


def compare(
    baseline: Result,
    current: Result,
    thresholds: tuple[Threshold, ...],
    *,
    allow_different: bool = False,
    speed: Literal["absolute", "ratio"] = "absolute",
) -> Comparison:
    """Compare the chosen candidate of two results.

    Args:
        baseline: the stored result.
        current: the result measured now.
        thresholds: what may not get worse, and by how much.
        allow_different: compare although machine, versions, model or rows differ.
        speed: ``ratio`` takes throughput as the multiple of the reference candidate measured in
            the same run, for machines whose speed varies.
    """
    before, now = _chosen(baseline), _chosen(current)
    unlike = tuple(_differences(baseline, current, before, now))
    refusals = [] if allow_different else [text for text, serious in unlike if serious]
    differences = tuple(text for text, serious in unlike if allow_different or not serious)
    if before is None or before.report.measurement is None:
        refusals.append("the baseline holds no measured candidate")
        return Comparison((), tuple(refusals), differences)
    if now is None or now.report.measurement is None:
        reason = now.report.ending.reason if now else "nothing fits"
        return Comparison((), tuple(refusals), differences, failed=reason or "it did not run")
    rows: list[Row] = []
    for threshold in thresholds:
        pair = (
            sample_of(baseline, before, threshold.metric, threshold.part, speed),
            sample_of(current, now, threshold.metric, threshold.part, speed),
        )
        for whose, sample in zip(("baseline", "current result"), pair, strict=True):
            if sample is None:
                refusals.append(f"the {whose} holds no {threshold.name}")
        if threshold.metric == "step_time":
            pair = paired(pair, steps_of(baseline, before), steps_of(current, now))
        rows.append(_row(threshold.name, *pair, threshold))
    checked = {threshold.name for threshold in thresholds}
    for name in _all_names():
        metric, _, part = name.partition(".")
        if name not in checked:
            one = sample_of(baseline, before, metric, part or None, speed)
            two = sample_of(current, now, metric, part or None, speed)
            rows += [_row(name, one, two, None)] if one or two else []
    failed = "" if now.report.ending.outcome is Outcome.FITS else now.report.ending.reason
    return Comparison(tuple(rows), tuple(refusals), differences, failed)


def _all_names() -> list[str]:
    return [*METRICS, *(f"peak_memory.{part}" for part in MEMORY_PARTS)]


def _chosen(result: Result) -> TrialRecord | None:
    if result.best_trial is not None:
        return result.best_trial
    if any(t.role == "search" for t in result.trials[1:]):
        return None
    # One config was measured and does not run: what counts is how its last repeat ended.
    mine = [t for t in result.trials if t.candidate.key == result.trials[0].candidate.key]
    return mine[-1] if mine else None


def _row(name: str, before: Sample | None, now: Sample | None, threshold: Threshold | None) -> Row:
    noise = math.hypot(before.noise if before else 0.0, now.noise if now else 0.0)
    verdict: Verdict = "not checked"
    if threshold is not None and before is not None and now is not None:
        worse = (now.value - before.value) * (1 if METRICS[threshold.metric] == "+" else -1)
        allowed = threshold.allowed_change(before.value)
        if worse > max(allowed, noise):
            verdict = "regression"
        elif noise >= abs(before.value) > 0:
            verdict = "too noisy"
        else:
            verdict = "ok" if worse <= allowed else "within noise"
    return Row(
        name,
        before.value if before else None,
        now.value if now else None,
        noise,
        threshold.text if threshold else None,
        verdict,
    )


def _differences(
    baseline: Result, current: Result, before: TrialRecord | None, now: TrialRecord | None
) -> Iterator[tuple[str, bool]]:
    """Yield what is unlike, and whether it makes numbers incomparable."""
    pairs: dict[str, tuple[Any, Any]] = {
        "device": (baseline.device.name, current.device.name),
        "kind of device": (baseline.device.kind, current.device.kind),
        "cores": (baseline.device.cores, current.device.cores),
        "trainer": (baseline.job.trainer.value, current.job.trainer.value),
        "rows": (baseline.profile.fingerprint, current.profile.fingerprint),
        "vocabulary": (baseline.profile.vocabulary, current.profile.vocabulary),
        "Python": (baseline.environment.python, current.environment.python),
    }
    old, new = baseline.environment.versions, current.environment.versions
    pairs |= {name: (old.get(name), new.get(name)) for name in sorted({*old, *new})}
    parameters = (_parameters(before), _parameters(now))
    if None not in parameters:  # what did not run is judged by that, not as another model
        pairs["parameters"] = parameters
    for name, (one, two) in pairs.items():
        if one != two:
            yield f"{name}: {_shown(one)} in the baseline, {_shown(two)} now", True
    for name, was, value in (*_options(baseline, current), *_variables(baseline, current)):
        yield f"{name}: {_shown(was)} in the baseline, {_shown(value)} now", False
    for whose, trial in (("the baseline", before), ("the current result", now)):
        state = state_of(trial)
        if state is not None and state.held_back:
            yield f"clocks of {whose} were held back: {clocks(trial)}", False
    if before is not None and now is not None:
        for name, (was, value) in before.candidate.differences(now.candidate).items():
            yield f"{name}: {was} in the baseline, {value} now", False


def _options(baseline: Result, current: Result) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the jobs ask differently, knobs apart: those are named by their candidates."""
    old, new = baseline.job.options, current.job.options
    knobs = {name for t in (*baseline.trials, *current.trials) for name in t.candidate.knobs}
    for name in sorted({*old, *new} - knobs):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)
    for name in ("weights", "seed"):
        if getattr(baseline.job, name) != getattr(current.job, name):
            yield name, getattr(baseline.job, name), getattr(current.job, name)
    if baseline.budget.explicit and baseline.budget.total_bytes != current.budget.total_bytes:
        yield (
            "budget",
            show_bytes(baseline.budget.total_bytes),
            show_bytes(current.budget.total_bytes),
        )


def _variables(baseline: Result, current: Result) -> Iterator[tuple[str, Any, Any]]:
    """Yield environment variables that differ, where both documents recorded them."""
    old, new = baseline.environment.variables, current.environment.variables
    if old is not None and new is not None:
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield name, old.get(name), new.get(name)


def _parameters(trial: TrialRecord | None) -> Any:
    found = trial.report.measurement if trial else None
    return found.parameters.get("total") if found else None


def _shown(value: object) -> str:
    return "absent" if value is None else str(value)

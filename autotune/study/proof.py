"""Proves the candidate a search would choose: in turns with the reference, beside it, and for long.

What an ending means is decided in choose.py and guard.py; what is measured, in session.py.
"""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Phase
from autotune.core.result import TrialRecord
from autotune.probe.classify import is_transient
from autotune.probe.protocol import GuardSpec
from autotune.study.choose import (
    choice,
    may_recover,
    paired_ratio,
    ranking,
    reference,
    verification_of,
)
from autotune.study.guard import differs, guard_of, guard_spec, not_comparable
from autotune.study.limits import explained
from autotune.study.session import Session
from autotune.study.uninterrupted import uninterrupted

#: Rounds in which the reference and the winner are measured in turns.
CONFIRMATION_ROUNDS = 3
#: As many are added at most while the interval does not say which of the two is faster.
MOST_CONFIRMATION_ROUNDS = 6


class Proving(Session):
    """A session that has candidates to choose from; fields are the session's."""

    def verify(self) -> None:
        """Look at the chosen candidate for longer; one that fails gives way to the next.

        First that it trains what the reference trains, then that it is safe. When only evaluation
        runs out of memory its batch is halved until it fits. When the time for checks is over, the
        winner is left unverified and ``unchecked`` says so.
        """
        while True:
            chosen, _ = choice(self.trials, self.speedup, self.objective)
            if chosen is None:
                return
            if verification_of(self.trials, chosen) is None and self.left_s(checks=1.0) <= 0:
                self.unchecked = "the time after --timeout was over; raise it, or run --resume"
                return
            if not self._trains_the_same(chosen):
                self.speedup = None
                self.confirm()
                continue
            if verification_of(self.trials, chosen) is not None:
                return
            batch = int(self.facts.option("per_device_eval_batch_size") or 1)
            record = self.probe(chosen.candidate, "verification", eval_batch=batch)
            while _only_evaluation_failed(record) and batch > 1 and self.left_s(checks=1.0) > 0:
                batch //= 2
                record = self.probe(chosen.candidate, "verification", eval_batch=batch)
            left, _ = choice(self.trials, self.speedup, self.objective)
            if left is not None and left.candidate.key == chosen.candidate.key:
                return
            self.speedup = None
            self.confirm()

    def _trains_the_same(self, chosen: TrialRecord) -> bool:
        """Compare one update of the chosen candidate with the reference's, where that can be done.

        Returns:
            False when the two were seen to differ.
        """
        against = reference(self.trials)
        same = against is None or against.candidate.key == chosen.candidate.key
        if same or against is None or not_comparable(chosen, against, self.facts):
            return True
        done = guard_of(self.trials, chosen)
        if done is not None and not may_recover(done):
            return True
        spec = guard_spec(
            chosen,
            against,
            self.facts,
            model_dir=self.model_dir,
            rows_dir=self.rows_dir,
            weights=self.real_weights,
        )
        number = self.trials[-1].number + 1
        self.observer.started(chosen.candidate, "guard")
        report = self._compare(spec, chosen.candidate, f"{number:04d}")
        if is_transient(report):
            report = self._compare(spec, chosen.candidate, f"{number:04d}-again")
        record = chosen.model_copy(
            update={"number": number, "role": "guard", "report": report, "estimate": None}
        )
        with uninterrupted():
            self.trials.append(record)
            self.store.finish(None, record, None)
            self.observer.finished(record)
        return not differs(report)

    def _compare(self, spec: GuardSpec, candidate: Candidate, name: str) -> ProbeReport:
        deadline = self.deadline(candidate, "guard")
        report = self.prober.compare(
            spec, name=name, deadline_s=deadline.seconds, tick=self.observer.tick
        )
        ending = explained(report.ending, deadline)
        return report.model_copy(update={"ending": ending})

    def confirm(self) -> None:
        """Measure the best candidate and the reference in turns and set ``speedup``.

        One that fails on the way does not fit after all; the next best takes its place.
        """
        while True:
            order = ranking(self.trials, self.objective)
            against = reference(self.trials)
            if not order or against is None or order[0].candidate.key == against.candidate.key:
                return
            rounds = self._in_turns(against.candidate, order[0].candidate)
            if rounds is None:
                continue
            if len(rounds) >= 2:
                self.speedup = paired_ratio(
                    [r[0] for r in rounds], [r[1] for r in rounds], against.candidate.key
                )
            return

    def _in_turns(self, against: Candidate, best: Candidate) -> list[tuple[float, float]] | None:
        """Measure two candidates in turns; None when one of them fails.

        Turns a resumed search finds among its trials are not taken again.
        """
        wanted = [against, best] * MOST_CONFIRMATION_ROUNDS
        done = [t for t in self.trials if t.role == "confirmation"]
        done = done[len(done) - self._turns_taken(wanted) :]
        for candidate in wanted[len(done) :]:
            if _decided(done) or self.left_s(checks=0.5) <= 0:  # the rest is for verifying
                break
            record = self.probe(candidate, "confirmation")
            if record.estimate is None and not may_recover(record):
                return None
            done.append(record)
        return _pairs(done)

    def _turns_taken(self, wanted: list[Candidate]) -> int:
        """Return how many of the wanted turns the last trials are."""
        trials = [t for t in self.trials if t.role not in ("guard", "verification")]
        for count in range(min(len(wanted), len(trials)), 0, -1):
            last = trials[-count:]
            if all(t.role == "confirmation" for t in last) and [t.candidate.key for t in last] == [
                c.key for c in wanted[:count]
            ]:
                return count
        return 0


def _pairs(turns: list[TrialRecord]) -> list[tuple[float, float]]:
    """Return the scores of complete turns: (reference, candidate)."""
    return [
        (_seconds(a), _seconds(b))
        for a, b in zip(turns[::2], turns[1::2], strict=False)
        if a.estimate is not None and b.estimate is not None
    ]


def _decided(turns: list[TrialRecord]) -> bool:
    """Whether enough whole rounds were taken and their interval lies on one side of equal."""
    pairs = _pairs(turns)
    if len(turns) % 2 or len(pairs) < CONFIRMATION_ROUNDS:
        return False
    ratio = paired_ratio([p[0] for p in pairs], [p[1] for p in pairs], "")
    return ratio.low > 1.0 or ratio.high < 1.0


def _only_evaluation_failed(record: TrialRecord) -> bool:
    """Whether a verification trained, and ran out of memory while it evaluated."""
    ending = record.report.ending
    return ending.outcome.is_memory and ending.phase is Phase.EVAL


def _seconds(trial: TrialRecord) -> float:
    assert trial.estimate is not None
    return trial.estimate.score_seconds

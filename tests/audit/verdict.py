"""Decides whether TRL did what the rules said it would; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement, ProbeReport
from autotune.core.outcome import Outcome

Claim = Literal["accepted", "rejected", "merged", "policy"]

#: Allocated peaks of two probes that did the same are this close: what DESIGN.md asks of repeats.
SAME_PEAK_RATIO = 0.001


@dataclass(frozen=True)
class Tried:
    """One combination: what the rules claimed and what TRL did.

    Args:
        candidate: the combination as drawn.
        claim: ``accepted``, ``rejected`` by a rule about TRL, ``merged`` into another candidate
            that is said to do the same, or left aside by a ``policy`` of autotune's own.
        rule: the rule that rejected it; empty otherwise.
        agrees: whether TRL bears the claim out.
        found: what TRL did, in words.
    """

    candidate: Candidate
    claim: Claim
    rule: str
    agrees: bool
    found: str


def accepted(candidate: Candidate, report: ProbeReport) -> Tried:
    """Judge a combination the rules accept: it must construct and train two updates."""
    trained = report.ending.outcome is Outcome.FITS
    return Tried(candidate, "accepted", "", trained, _words(report))


def rejected(
    candidate: Candidate,
    rule: str,
    report: ProbeReport,
    without: ProbeReport | None,
) -> Tried:
    """Judge a combination a rule rejects: it must raise, warn, or change nothing.

    Args:
        candidate: the combination.
        rule: the rule's name.
        report: what the combination did, written as it is.
        without: what the nearest accepted combination did; None where there is none.
    """
    if report.ending.outcome is not Outcome.FITS:
        return Tried(candidate, "rejected", rule, True, _words(report))
    warned = _warning_about(candidate, report.measurement)
    if warned:
        return Tried(candidate, "rejected", rule, True, f"warns: {warned}")
    if without is not None and same(report, without):
        return Tried(candidate, "rejected", rule, True, "changes nothing")
    return Tried(candidate, "rejected", rule, False, _words(report))


def merged(candidate: Candidate, report: ProbeReport, into: ProbeReport) -> Tried:
    """Judge a combination that is searched as another: both must do the same.

    Args:
        candidate: the combination as drawn.
        report: what it did, written as it is.
        into: what the candidate did that stands for it.
    """
    if report.ending.outcome is not Outcome.FITS and into.ending.outcome is Outcome.FITS:
        # TRL refuses one spelling of what the other means: nothing is lost by searching that.
        return Tried(candidate, "merged", "", True, f"as written it {_words(report)}")
    return Tried(candidate, "merged", "", same(report, into), _difference(report, into))


def same(one: ProbeReport, other: ProbeReport) -> bool:
    """Whether two probes realised the same batches at the same allocated peak."""
    return not _difference(one, other)


def _difference(one: ProbeReport, other: ProbeReport) -> str:
    a, b = one.measurement, other.measurement
    if a is None or b is None:
        return "" if one.ending.outcome == other.ending.outcome else f"{_words(one)}"
    if _batches(a) != _batches(b):
        return f"batches are {_batches(a)[:2]} instead of {_batches(b)[:2]}"
    x, y = a.peaks.allocated_bytes, b.peaks.allocated_bytes
    if x is None or y is None or abs(x / y - 1.0) > SAME_PEAK_RATIO:
        return f"its allocated peak is {x} instead of {y} bytes"
    return ""


def _batches(measured: Measurement) -> list[tuple[int, int, int, int]]:
    return [(s.rows, s.width, s.useful_tokens, s.label_tokens) for s in measured.memory_steps]


def _words(report: ProbeReport) -> str:
    if report.ending.outcome is Outcome.FITS:
        return "trains"
    return f"{report.ending.outcome.value}: {report.ending.reason}"


def _warning_about(candidate: Candidate, measured: Measurement | None) -> str:
    """Return the first warning that names one of the candidate's knobs."""
    for warning in measured.warnings if measured is not None else ():
        if any(name in warning for name in candidate.knobs):
            return warning.splitlines()[0]
    return ""

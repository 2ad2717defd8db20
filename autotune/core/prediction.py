"""What is expected of a candidate without measuring it, with how far it may be off.

A document: it is stored in a result and written by ``autotune predict``. Holds no method.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from autotune.core.candidate import Candidate
from autotune.core.job import Budget, Frozen
from autotune.core.traced_step import Component, StepPhase


class Fit(StrEnum):
    """Say whether a candidate will fit a budget, as far as that is known."""

    FITS = "fits"
    UNSURE = "unsure"
    HOPELESS = "hopeless"


class Prediction(Frozen):
    """What one candidate is expected to need and to take.

    Args:
        candidate: its knobs.
        accumulation: micro-steps of one optimizer update.
        peak_bytes: what the process will be charged with at its peak.
        low_bytes: lower end of the 90 % band.
        high_bytes: upper end of it.
        traced_bytes: the traced peak before any correction.
        split: bytes by component at the traced peak.
        phase: when the peak is reached.
        offloaded_bytes: most bytes kept in host memory.
        micro_steps: micro-steps of one pass over the rows.
        micro_step_seconds: their mean duration.
        optimizer_seconds: one optimizer update.
        parts_seconds: seconds of the pass's micro-steps by kind of work.
        pass_seconds: one pass over the rows this candidate trains.
        precompute_seconds: the pass over the reference that is run once before training
            (``precompute_ref_log_probs``); 0 where there is none.
        score_seconds: what candidates are compared by: the pass with its share of what is run
            once, over the reference tokens.
        useful_tokens_per_s: tokens that are not padding, over the pass.
        time_band_ratio: half width of the 90 % band of times, relative: from ``1 / (1 + r)`` to
            ``1 + r`` times.
        calibrated_by: probes it was corrected from.
        notes: rules and approximations that went into it.
    """

    candidate: Candidate
    accumulation: int = Field(ge=1)
    peak_bytes: int = Field(ge=0)
    low_bytes: int = Field(ge=0)
    high_bytes: int = Field(ge=0)
    traced_bytes: int = Field(ge=0)
    split: dict[Component, int]
    phase: StepPhase
    offloaded_bytes: int = 0
    micro_steps: int = Field(ge=0)
    micro_step_seconds: float
    optimizer_seconds: float
    parts_seconds: dict[str, float]
    pass_seconds: float
    precompute_seconds: float = 0.0
    score_seconds: float
    useful_tokens_per_s: float
    time_band_ratio: float
    calibrated_by: int = 0
    notes: tuple[str, ...] = ()

    def fit(self, budget: Budget) -> Fit:
        """Return whether it fits the usable part of a budget."""
        if self.high_bytes <= budget.usable_bytes:
            return Fit.FITS
        return Fit.HOPELESS if self.low_bytes > budget.usable_bytes else Fit.UNSURE


class NotTraced(Frozen):
    """A candidate nothing can be said of.

    Args:
        candidate: its knobs.
        reason: what cannot be traced, one sentence.
    """

    candidate: Candidate
    reason: str


class Forecast(Frozen):
    """Everything ``autotune predict`` found out.

    Args:
        trainer: TRL trainer.
        model: as the user named it.
        device: the device it is for.
        rates_source: where its rates come from.
        budget: memory the job may use of it.
        predictions: one per candidate, fastest first.
        not_traced: candidates nothing can be said of.
        own: key of the user's own config.
        alone: the user's config was asked for, and the others are changes to it.
        notices: remarks for the reader, most important first.
    """

    schema_version: Literal[1] = 1
    trainer: str
    model: str
    device: str
    rates_source: str
    budget: Budget
    predictions: tuple[Prediction, ...]
    not_traced: tuple[NotTraced, ...] = ()
    own: str
    alone: bool = False
    notices: tuple[str, ...] = ()

    @property
    def own_prediction(self) -> Prediction | None:
        """The user's own config; None when it was not traced."""
        return next((p for p in self.predictions if p.candidate.key == self.own), None)

    @property
    def fastest(self) -> Prediction | None:
        """The fastest that is expected to fit, for sure before perhaps; None when nothing is."""
        for wanted in (Fit.FITS, Fit.UNSURE):
            found = [p for p in self.predictions if p.fit(self.budget) is wanted]
            if found:
                return min(found, key=lambda p: p.score_seconds)
        return None

    @property
    def nearest_miss(self) -> Prediction | None:
        """The prediction that needs least memory; None when nothing was traced."""
        return min(self.predictions, key=lambda p: p.peak_bytes, default=None)

    @property
    def front(self) -> tuple[Prediction, ...]:
        """Predictions no other beats in both memory and time, by memory."""
        found: list[Prediction] = []
        for one in sorted(self.predictions, key=lambda p: (p.peak_bytes, p.score_seconds)):
            if not found or one.score_seconds < found[-1].score_seconds:
                found.append(one)
        return tuple(found)

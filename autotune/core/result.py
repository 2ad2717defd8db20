"""The result: one versioned document from which everything shown or emitted is rendered."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import ValidationError

from autotune.core.candidate import Candidate
from autotune.core.environment import Device, Environment
from autotune.core.errors import BadInput
from autotune.core.job import Budget, Frozen, Job
from autotune.core.measurement import ProbeReport
from autotune.core.prediction import Prediction
from autotune.core.profile import DatasetProfile
from autotune.core.traced_step import TracedPeak

SCHEMA_VERSION = 1


class Estimate(Frozen):
    """What a candidate's measurement means for the whole data set.

    Args:
        pass_seconds: expected wall time of one pass over the rows this candidate trains.
        precompute_seconds: expected wall time of the pass over the reference that is run once
            before training (``precompute_ref_log_probs``); 0 where there is none.
        score_seconds: the objective: expected wall time for one pass over the reference tokens,
            i.e. pass_seconds and this pass's share of precompute_seconds, divided by the share of
            the reference's label tokens kept (of those trained, with ``--allow split``).
        retention_ratio: share of the reference's label tokens that are trained with all that comes
            before them, 0..1 (documents of older versions: with or without it).
        useful_tokens_per_s: tokens that are neither padding nor beyond the reference nor without
            what comes before them, over the whole pass.
        padded_tokens_per_s: computed positions, padding included, over the whole pass.
        label_tokens_per_s: tokens trained on, over the whole pass.
        padding_ratio: share of computed positions that are padding, 0..1.
        sequences_per_update: expected documents per optimizer update.
        updates_per_pass: optimizer updates in one pass.
        rows_cut: rows that lose tokens; of Reward rows, which lose none, those that are left out.
        rows_dropped: those of them that TRL leaves out, because no token to train on remains.
        emptying_seconds: what giving cached memory back every so many updates adds to the pass;
            None where it was not measured and is not in the times.
        rows_split: rows that continue in another packed row, without their beginning; None in
            documents of older versions.
        rows_unlabelled: rows that stay and have no token to train on before they are cut or split;
            None as above.
        tokens_dropped_ratio: share of all tokens of the rows, uncut, that are dropped, 0..1.
        first_use_seconds: expected wall time of what every shape of a whole run costs once (plans,
            compilations), in no other number; 0 where that is nothing or not known.
        shapes: different shapes of the micro-batches of one pass; None in documents without.
        spread_ratio: median absolute deviation of the timed steps around the time model,
            relative; what two equal candidates may differ by.
    """

    pass_seconds: float
    score_seconds: float
    retention_ratio: float
    useful_tokens_per_s: float
    padded_tokens_per_s: float
    label_tokens_per_s: float
    padding_ratio: float
    sequences_per_update: float
    updates_per_pass: int
    rows_cut: int
    tokens_dropped_ratio: float
    spread_ratio: float
    precompute_seconds: float = 0.0
    first_use_seconds: float = 0.0
    shapes: int | None = None
    rows_dropped: int = 0
    emptying_seconds: float | None = 0.0
    rows_split: int | None = None
    rows_unlabelled: int | None = None


#: Fields of `Estimate` in which measurements of one candidate differ.
_TIMED = (
    "pass_seconds",
    "precompute_seconds",
    "first_use_seconds",
    "score_seconds",
    "useful_tokens_per_s",
    "padded_tokens_per_s",
    "label_tokens_per_s",
)


class TrialRecord(Frozen):
    """One probed candidate.

    Args:
        number: order in which it was probed, from 0.
        candidate: its knobs.
        options: the TRL options it stands for, accumulation included, upstream spelling; these
            replace the user's own and nothing else changes.
        env: environment variables it stands for; never TRL options.
        pretruncate_tokens: length the rows must be cut to before TRL sees them (padding-free
            without packing does not cut by itself); None when no row has to be cut.
        changes: class of change against the reference (neutral, data, mixing, model).
        role: ``baseline`` (the user's own config), ``search``, ``confirmation`` (measured in turns
            with the reference), ``guard`` (one update beside the reference's) or ``verification``
            (the longer look before it is emitted).
        report: how the probe ended and what it measured.
        estimate: what that means for the whole data set; None when it did not fit.
        note: what should be known of it, e.g. that it mixes documents.
        prediction: what was expected of it before it was probed; None when nothing was.
    """

    number: int
    candidate: Candidate
    options: dict[str, Any]
    env: dict[str, str] = {}
    pretruncate_tokens: int | None = None
    changes: str
    role: Literal["baseline", "search", "confirmation", "guard", "verification"]
    report: ProbeReport
    estimate: Estimate | None = None
    note: str = ""
    prediction: Prediction | None = None


class Skipped(Frozen):
    """A knob value or a combination that was not tried, or only tried in vain, and why.

    Args:
        what: knob value(s) in words.
        reason: one sentence.
        count: candidates of the space it removed.
    """

    what: str
    reason: str
    count: int


class Ratio(Frozen):
    """A ratio of two candidates measured side by side, in turns.

    Args:
        reference: key of the candidate compared with.
        value: geometric mean of the paired ratios; above 1 means faster than the reference.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        pairs: how many pairs were measured.
    """

    reference: str
    value: float
    low: float
    high: float
    pairs: int


class Result(Frozen):
    """Everything a run found out.

    Args:
        job: what was asked.
        budget: memory the job may use.
        device: where it was measured.
        environment: machine and library versions.
        profile: the rows.
        eval_profile: the rows evaluation uses; None when the config does not evaluate.
        space: name, content hash and number of valid candidates of the searched space.
        trials: every probe, in order; of searched candidates those that turned out to be valid
            (the others are in ``skipped``).
        reference: key of the candidate ratios are made against.
        best: key of the chosen candidate; None when nothing fits.
        chosen_because: one sentence.
        verification: what the longer look at the chosen candidate showed; empty when there was
            none.
        equivalence: what one update of the chosen candidate beside the reference's showed, or why
            the two cannot be compared; empty when there was nothing to compare.
        speedup: best against reference.
        skipped: what was not tried and why.
        overrides: options of the user that probes replaced and the emitted files restore.
        notices: remarks for the reader, most important first.
        search_seconds: what the search cost.
        pays_back_seconds: training time after which it has paid for itself; None if never.
        out_dir: folder the run wrote to.
        interrupted: whether the search was stopped early.
        predictions: what is expected of every candidate that was traced, corrected by all probes,
            fastest first; empty when tracing would not have paid.
        gated: keys of candidates that were not probed because their prediction is beyond the
            budget, its error band included.
        traced: what the peak of the compared candidates is made of, by key; traced after the
            search, where no prediction had said it.
        lacks_weights: whether the model is a folder that holds a config and no weights, so that
            training has to take them from elsewhere.
    """

    schema_version: Literal[1] = 1
    created: str
    autotune_version: str
    job: Job
    budget: Budget
    device: Device
    environment: Environment
    profile: DatasetProfile
    space: dict[str, Any]
    trials: tuple[TrialRecord, ...]
    reference: str | None
    best: str | None
    chosen_because: str
    verification: str = ""
    equivalence: str = ""
    speedup: Ratio | None
    skipped: tuple[Skipped, ...] = ()
    overrides: dict[str, Any] = {}
    notices: tuple[str, ...] = ()
    search_seconds: float = 0.0
    pays_back_seconds: float | None = None
    out_dir: str
    interrupted: bool = False
    predictions: tuple[Prediction, ...] = ()
    gated: tuple[str, ...] = ()
    traced: dict[str, TracedPeak] = {}
    eval_profile: DatasetProfile | None = None
    lacks_weights: bool = False

    def trial_of(self, key: str | None) -> TrialRecord | None:
        """Return the first trial of a candidate that has an estimate, or None."""
        found = [t for t in self.trials if t.candidate.key == key]
        return next((t for t in found if t.estimate is not None), found[0] if found else None)

    @property
    def best_trial(self) -> TrialRecord | None:
        """The chosen candidate's trial."""
        return self.trial_of(self.best)

    @property
    def reference_trial(self) -> TrialRecord | None:
        """The trial ratios are made against."""
        return self.trial_of(self.reference)

    @property
    def searched(self) -> bool:
        """Whether candidates were searched; `autotune probe` measures the one it is given."""
        return any(trial.role == "search" for trial in self.trials) or len(self.trials) == 0

    def fits_of(self, key: str | None) -> tuple[TrialRecord, ...]:
        """Return every fitting trial of a candidate; its memory is read from any of them."""
        return tuple(t for t in self.trials if t.candidate.key == key and t.estimate is not None)

    def timed_of(self, key: str | None) -> tuple[TrialRecord, ...]:
        """Return the fitting trials of a candidate that its speed is read from.

        Measurements minutes apart differ by what else the machine did. So where a search took
        turns with the reference, the turns alone count, from which the speed-up was made too.
        """
        fits = self.fits_of(key)
        turns = tuple(t for t in fits if t.role == "confirmation")
        return turns if turns and self.searched else fits

    def estimate_of(self, key: str | None) -> Estimate | None:
        """Return a candidate's estimate with the medians of its timed trials; None when none fits.

        Every time and rate that is shown of a candidate as a whole is read here.
        """
        found = [t.estimate for t in self.timed_of(key) if t.estimate is not None]
        if not found:
            return None
        middle = {name: median(getattr(e, name) for e in found) for name in _TIMED}
        return found[0].model_copy(update=middle)

    @property
    def baseline_trial(self) -> TrialRecord | None:
        """The last trial of the user's own config; there are two when the first was disturbed."""
        return next((t for t in reversed(self.trials) if t.role == "baseline"), None)


def read_result(path: Path) -> Result:
    """Read a stored result.

    Args:
        path: a ``result.json``, or the folder of a run that holds one.

    Raises:
        BadInput: there is no such file, it is damaged, or its schema is of another version.
    """
    file = path / "result.json" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"no result at {file}.", "Give a run's folder or its result.json.")
    try:
        return Result.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        if where == "schema_version" and isinstance(first["input"], int):
            raise BadInput(
                f"{file} is a result of schema_version {first['input']}; this autotune reads "
                f"{SCHEMA_VERSION}.",
                "Read it with the autotune that wrote it, or run autotune again to make a new one.",
            ) from error
        raise BadInput(
            f"{file} is not a result of schema version {SCHEMA_VERSION}: {where}: {first['msg']}.",
            "Run autotune again to make a new one.",
        ) from error

"""The use case of ``autotune profile``: how long the rows are, and which ``max_length`` to take.

Prepares the rows in a measuring process, as a run does, and works out everything else from their
lengths; probes nothing and keeps nothing.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from autotune.core.about import __version__
from autotune.core.advice import advise
from autotune.core.cut_words import Setting
from autotune.core.errors import BadInput
from autotune.core.job import Job
from autotune.core.length_report import LengthReport
from autotune.core.length_table import histogram_of, length_at, marked, sensible_lengths
from autotune.core.lengths import Lengths
from autotune.core.profile import IMPLICIT_CUT, OWN_CUT
from autotune.intake.cache import cache_dir, home_cache_refused
from autotune.intake.job import Origin, build_job
from autotune.intake.request import Request
from autotune.probe.prepared import Prepared
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.use.preparation import STARTING, open_measuring, prepare
from autotune.use.watcher import Watcher


def profile_rows(
    request: Request, *, sample_rows: int | None = None, watcher: Watcher | None = None
) -> LengthReport:
    """Prepare the rows a request names and say what every sensible ``max_length`` does to them.

    Args:
        request: model, data set, trainer, config and options; the rest is not looked at.
        sample_rows: most rows to look at; None looks at all, of a stream at a bounded number.
        watcher: told of stations and of progress.

    Raises:
        BadInput: something asked for cannot be used.
        NotBuiltYet: rows for this trainer cannot be prepared.
        ToolFailure: the measuring process failed.
    """
    if sample_rows is not None and sample_rows < 1:
        raise BadInput(f"--sample is {sample_rows}, expected at least 1.")
    watch = watcher or Watcher()
    job, origin = build_job(request)
    with tempfile.TemporaryDirectory(prefix="autotune-profile-") as folder:
        home = Path(folder)
        prepared = _prepare(job, origin, home, sample_rows, watch)
        lengths = Lengths.read(home / "prepared" / "lengths.npz")
    limit = prepared.model.positions
    positions = None if limit is None else limit.most
    if origin.demo_model:
        # the demo model's limit says nothing of a model the user has not named
        job, positions = job.model_copy(update={"model": "the embedded demo model"}), None
    notices = _notices(origin, prepared)
    return report_of(job, prepared, lengths, positions, notices, watch)


def report_of(
    job: Job,
    prepared: Prepared,
    lengths: Lengths,
    positions: int | None,
    notices: tuple[str, ...] = (),
    watcher: Watcher | None = None,
) -> LengthReport:
    """Work out what every sensible ``max_length`` does, and which to take.

    Args:
        job: what was asked.
        prepared: what the measuring process made of it.
        lengths: the rows, uncut, at least one.
        positions: longest sequence the model takes in tokens, None when it has no limit.
        notices: remarks to pass on.
        watcher: told which length is being worked out.
    """
    watch = watcher or Watcher()
    options = prepared.options
    setting = Setting(
        given="max_length" in options,
        value=options.get("max_length"),
        default=_default_of(prepared),
        packing=_packing_of(prepared),
    )
    shards = int(options.get("dataset_num_proc") or 1)
    wanted = sensible_lengths(lengths, setting, positions, job.min_retention_ratio)
    watch.stage(f"working out padding and packing at {len(wanted)} lengths")
    table = []
    for number, length in enumerate(wanted):
        watch.progress(f"max_length {length}", number, len(wanted))
        table.append(length_at(lengths, length, job.trainer, shards=shards, seed=job.seed))
    advice = advise(table, lengths, setting, job.trainer, positions, job.min_retention_ratio)
    return LengthReport(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        autotune_version=__version__,
        trainer=job.trainer,
        model=job.model,
        dataset=job.dataset.path,
        profile=prepared.profile,
        min_retention_ratio=job.min_retention_ratio,
        histogram=histogram_of(lengths),
        lengths=marked(table, setting, advice.max_length, positions),
        advice=advice,
        notices=notices,
    )


def _default_of(prepared: Prepared) -> int | None:
    """Return what TRL takes when ``max_length`` is not set; None where the config sets it."""
    if "max_length" in prepared.options:
        return None
    default = prepared.defaults.get("max_length")
    return default if isinstance(default, int) else None


def _packing_of(prepared: Prepared) -> str:
    given = {**prepared.defaults, **prepared.options}
    return str(given.get("packing_strategy")) if given.get("packing") else "none"


def _prepare(
    job: Job, origin: Origin, home: Path, sample_rows: int | None, watch: Watcher
) -> Prepared:
    spec = PrepareSpec(
        job=job,
        device="cpu",
        out_dir=str(home / "prepared"),
        cache_dir=str(cache_dir()),
        demo_model=origin.demo_model,
        sample_rows=sample_rows,
        train_only=True,
    )
    watch.stage(STARTING)
    launcher, _ = open_measuring(job, origin, home, watch)
    with Runner(launcher, home) as runner:
        return prepare(spec, runner, watch)


def _notices(origin: Origin, prepared: Prepared) -> tuple[str, ...]:
    rows = prepared.profile
    found = [elsewhere] if (elsewhere := home_cache_refused()) else []
    if origin.demo_model:
        found.append(
            "Tokens are those of the embedded demo model's tokenizer; lengths depend on the "
            "tokenizer: name yours with --model."
        )
    if origin.demo_rows:
        found.append("These are the embedded demo rows; name yours with --dataset.")
    if rows.conversion is not None:
        found.append(f"Rows: {rows.conversion}.")
    # what the config's own length does is said by the advice, first
    silent = {IMPLICIT_CUT, OWN_CUT, *(("beyond-positions",) if origin.demo_model else ())}
    found += [n.message for n in rows.notices if n.code not in silent]
    return tuple(found)

"""What the command line and Python call to tune: plan a run, run it, measure one config."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, Interrupted
from autotune.core.result import Result
from autotune.emit import build_config, cpu_overrides, trainer_kwargs
from autotune.intake.folder import check_folder
from autotune.intake.job import build_job
from autotune.intake.objects import as_paths
from autotune.intake.request import Request, check_types, resumed_request
from autotune.study.storage import check_storage
from autotune.use.planned import Plan
from autotune.use.tuning import Tuning
from autotune.use.watcher import Watcher


def plan_run(request: Request, watcher: Watcher | None = None) -> Plan:
    """Prepare everything up to the first probe and keep nothing (``--dry-run``).

    Raises:
        BadInput: something asked for cannot be used.
        EnvironmentUnable: this machine cannot do it.
    """
    if request.resume and request.out is not None:
        request = resumed_request(request, Path(request.out).expanduser())
    check_folder(request, build_job(request)[0])
    if request.storage is not None:
        check_storage(request.storage)
    # A folder of its own: a plan neither needs, replaces nor removes the user's.
    with tempfile.TemporaryDirectory(prefix="autotune-plan-") as folder:
        out = str(Path(folder) / "plan")
        elsewhere = dataclasses.replace(request, out=out, resume=False, force=False)
        return Tuning(elsewhere, watcher or Watcher()).plan()


def run(request: Request, watcher: Watcher | None = None) -> Result:
    """Run the search a request asks for and write its folder.

    Raises:
        BadInput: something asked for cannot be used; nothing is left behind.
        NothingFits: no candidate fits; the result is in the folder.
        EnvironmentUnable: this machine cannot do it.
        Interrupted: it was asked to stop; what was finished is in the folder.
    """
    return Tuning(request, watcher or Watcher()).run()


def probe(request: Request, *, repeats: int = 3, watcher: Watcher | None = None) -> Result:
    """Measure exactly one config, the user's own, and return its document; writes no folder.

    Args:
        request: the job; what it says of a search is not looked at.
        repeats: how often the config is measured; from 2 on in turns with its reference, so that
            speed is also known as a ratio.
        watcher: told of every event.

    Raises:
        BadInput: something asked for cannot be used.
        EnvironmentUnable: this machine cannot do it.
        Interrupted: it was asked to stop; nothing is left.
    """
    if repeats < 1:
        raise BadInput(f"--repeats is {repeats}, expected at least 1.")
    with tempfile.TemporaryDirectory(prefix="autotune-probe-") as folder:
        out = str(Path(folder) / "probe")
        elsewhere = dataclasses.replace(request, out=out, resume=False, force=False, storage=None)
        try:
            return Tuning(elsewhere, watcher or Watcher(), repeats=repeats).run()
        except Interrupted as error:
            text = "stopped; a config is measured as a whole, so nothing was written."
            raise Interrupted(text) from error.__cause__


class Tuned:
    """A finished search as Python sees it: the result document and what can be made of it."""

    def __init__(self, result: Result) -> None:
        """Wrap a result document."""
        self.result = result

    @property
    def config(self) -> Any:
        """The chosen configuration as the trainer's ready ``SFTConfig``, ``DPOConfig``, ..."""
        return build_config(self.result, **cpu_overrides(self.result))

    @property
    def trainer_kwargs(self) -> dict[str, Any]:
        """Keywords such that TRL's trainer, ``SFTTrainer(**kwargs)``, is ready to train."""
        return trainer_kwargs(self.result, **cpu_overrides(self.result))


def tune(
    model: Any = None,
    dataset: Any = None,
    *,
    tokenizer: Any = None,
    config: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    **options: Any,
) -> Tuned:
    """Find the fastest configuration that fits and return it.

    Args:
        model: hub id, folder, or a transformers config; None takes the YAML's, ``demo`` is
            the embedded one.
        dataset: hub id, file, folder, ``datasets.Dataset``, data frame or list of rows; None as
            for ``model``.
        tokenizer: tokenizer object or path, needed with a config object that names none.
        config: TRL YAML file.
        out: the run's folder; None makes one below ``autotune-runs/``.
        watcher: told of every event.
        options: the other fields of `Request` (``trainer``, ``memory``, ``trials``, ...), named
            as on the command line.

    Raises:
        BadInput: something cannot be used.
        NothingFits: no candidate fits.
        EnvironmentUnable: this machine cannot do it.
    """
    with as_paths(model, dataset, tokenizer) as (model_path, dataset_path, inputs):
        request = Request(
            model=model_path,
            dataset=dataset_path,
            config=None if config is None else os.fspath(config),
            out=None if out is None else os.fspath(out),
            inputs=inputs if any(Path(inputs).iterdir()) else None,
            given=tuple(options),
            **options,
        )
        check_types(request)
        return Tuned(run(request, watcher))

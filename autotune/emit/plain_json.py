"""The winner as a small JSON object, for programs that want its numbers."""

from __future__ import annotations

import json
from typing import Any

from autotune.core.result import Result
from autotune.core.secrets import SECRET_OPTIONS
from autotune.emit.settings import settings_of


def render(result: Result) -> str:
    """Write knobs, options, environment, peaks and estimate of the winner; secrets left out.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    settings = settings_of(result)
    trial = settings.trial
    measurement = trial.report.measurement
    document: dict[str, Any] = {
        "autotune_version": result.autotune_version,
        "trainer": result.job.trainer.value,
        "device": result.device.label,
        "device_name": result.device.name,
        "not_for_gpu": result.device.kind == "cpu",
        "budget_bytes": result.budget.total_bytes,
        "model": settings.model,
        "rows": settings.location.options,
        "key": trial.candidate.key,
        "knobs": trial.candidate.knobs,
        "changes": trial.changes,
        "options": {k: v for k, v in settings.options.items() if k not in SECRET_OPTIONS},
        "env": settings.env,
        "peaks": measurement.peaks.model_dump() if measurement else None,
        "estimate": trial.estimate.model_dump() if trial.estimate else None,
        "speedup": result.speedup.model_dump() if result.speedup else None,
        "chosen_because": result.chosen_because,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

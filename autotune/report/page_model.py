"""The values the report page's template fills in, so that the template only lays out."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePath
from typing import Any

from autotune.core.command import train_command, weights_remark
from autotune.core.result import Result, TrialRecord
from autotune.core.secrets import HIDDEN
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.report import summary
from autotune.report.anatomy import traced_peak
from autotune.report.chart_predicted import absent
from autotune.report.clocks import clocks
from autotune.report.side_by_side import nearest_miss
from autotune.report.trial_rows import KNOB, trial_rows


def page_values(result: Result) -> dict[str, Any]:
    """Return everything the template shows but the charts.

    Args:
        result: a result without secrets (`privacy.public`).
    """
    best = result.best_trial
    return {
        "result": result,
        "searched": result.searched,
        "title": f"autotune: {short_name(result.job.model)}",
        "where": (short_name(result.job.model), short_name(result.job.dataset.path)),
        "headline": summary.headline(result),
        "under": _under(result),
        "best": best,
        "on_cpu": result.device.kind == "cpu",
        "cpu_remark": summary.CPU_REMARK,
        "sentences": [*summary.sentences(result), *summary.notices(result)],
        "facts": [f for f in summary.facts(result) if f.label != "Peak memory"],
        "bar": _bar(result),
        "absent": absent(result),
        "settings": summary.settings(result),
        "reference_name": summary.reference_name(result),
        "nearest": _nearest(result),
        "counts": summary.outcome_counts(result),
        "trials": _trials(result),
        "job": _job(result),
        "rows": _rows(result),
        "machine": _machine(result),
        "command": train_command(result, "best.yaml"),
        "weights_remark": weights_remark(result),
        "again": again_command(result),
    }


def _under(result: Result) -> list[str]:
    """The line under the headline: how sure, of how many, on what."""
    speed = result.speedup
    fitting = sum(1 for t in result.trials if t.estimate is not None and t.role != "confirmation")
    parts = []
    if speed is not None and result.best != result.reference:
        parts.append(f"95 % interval {speed.low:.2f} to {speed.high:.2f}")
    parts.append(f"{len(result.trials)} probes, {fitting} candidates fit")
    parts.append(f"{result.job.trainer.value} on {result.device.name}")
    return [*parts, f"budget {show_bytes(result.budget.total_bytes)}"]


def short_name(name: str) -> str:
    """Return the last part of an absolute path, anything else as it is."""
    return PurePath(name).name if PurePath(name).is_absolute() else name


def again_command(result: Result) -> str:
    """Return the command line that asks for the same again."""
    job, budget, source = result.job, result.budget, result.job.dataset
    verb = "run" if result.searched else "probe"
    words = ["autotune", verb, "--model", job.model]
    if source.blocks is None:  # else the rows are those YOUR.yaml names
        words += ["--dataset", source.path]
    if source.config is not None:
        words += ["--dataset-config", source.config]
    if source.train_split != "train":
        words += ["--dataset-train-split", source.train_split]
    if source.test_split != "test":
        words += ["--dataset-test-split", source.test_split]
    words += ["--trainer", job.trainer.value]
    if job.config_text:
        words += ["--config", "YOUR.yaml"]
    for name, value in _set_apart(result).items():
        words += ["--set", f"{name}={value}"]
    words += ["--device", result.device.label]
    if budget.explicit:
        words += ["--memory", f"{budget.total_bytes / 2**20:.0f}MiB"]
    words += ["--headroom", f"{budget.headroom_ratio * 100:g}%"]
    if verb == "probe":
        return shlex.join([*words, "--weights", job.weights, "--seed", str(job.seed)])
    words += ["--space", str(result.space.get("name"))]
    tried = sum(t.role in ("baseline", "search") for t in result.trials)
    words += ["--trials", str(max(1, tried)), "--objective", job.objective]
    words += ["--min-retention", f"{job.min_retention_ratio * 100:g}%"]
    if job.effective_batch_sequences is not None:
        words += ["--effective-batch", str(job.effective_batch_sequences)]
    if job.allow:
        words += ["--allow", ",".join(sorted(job.allow))]
    words += ["--weights", job.weights, "--seed", str(job.seed)]
    return shlex.join(words)


def _set_apart(result: Result) -> dict[str, str]:
    """Options that do not stand in the user's file as they are, secrets left out."""
    text = result.job.config_text or ""
    found = {}
    for name, value in result.job.options.items():
        line = re.search(rf"^{re.escape(name)}\s*:[ \t]*([^#\n]*)", text, re.MULTILINE)
        if line is not None and _reads_as(line[1].strip(" '\""), value):
            continue
        if HIDDEN not in str(value):
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _reads_as(text: str, value: Any) -> bool:
    """Whether a line of YAML may hold a value; of lists and mappings only that they are there."""
    if isinstance(value, bool):
        return text.lower() in (("true", "yes", "on") if value else ("false", "no", "off"))
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return isinstance(value, dict | list) or text == ("null" if value is None else value)


def _bar(result: Result) -> dict[str, Any] | None:
    """Peak against budget, as shares of the longer of the two."""
    best, other = _peak(result.best_trial), _peak(result.reference_trial)
    if best is None:
        return None
    total, usable = result.budget.total_bytes, result.budget.usable_bytes
    scale = max(total, best, other or 0) / 100.0
    return {
        "best": best / scale,
        "other": other / scale if other is not None and result.best != result.reference else None,
        "usable": usable / scale,
        "total": total / scale,
        "best_text": show_bytes(best),
        "other_text": show_bytes(other) if other is not None else "",
        "usable_text": show_bytes(usable),
        "total_text": show_bytes(total),
        "share": show_ratio(best / total),
        "headroom": show_ratio(result.budget.headroom_ratio),
    }


def _peak(trial: TrialRecord | None) -> int | None:
    measurement = trial.report.measurement if trial else None
    return measurement.peaks.deciding_bytes if measurement else None


def _nearest(result: Result) -> dict[str, str] | None:
    trial = nearest_miss(result)
    if result.best is not None or trial is None or trial.report.needed_bytes is None:
        return None
    needed, usable = trial.report.needed_bytes, result.budget.usable_bytes
    # A cap only shows that it was not enough.
    needs = f"at least {show_bytes(needed)}" if needed > usable else "more than that"
    traced = traced_peak(result, trial)
    return {
        "what": summary.knob_text(trial, result),
        "usable": show_bytes(usable),
        "needs": needs,
        "traced": show_bytes(traced.peak_bytes) if traced is not None else "",
        "reason": trial.report.ending.reason,
    }


def _trials(result: Result) -> list[dict[str, Any]]:
    """One table row a trial: what is shown, and what it is sorted by."""
    made = []
    for trial, row in zip(result.trials, trial_rows(result), strict=True):
        peak, seconds, rate = row["peak_bytes"], row["score_seconds"], row["useful_tokens_per_s"]
        kept, needed = row["retention_ratio"], row["needed_bytes"]
        made.append(
            {
                "number": trial.number,
                "role": trial.role,
                "best": row["is_best"] and trial.role in ("baseline", "search"),
                "outcome": row["outcome"],
                "what": summary.knob_text(trial, result),
                "knobs": {k.removeprefix(KNOB): v for k, v in row.items() if k.startswith(KNOB)},
                "reason": trial.report.ending.reason,
                "detail": trial.report.ending.detail,
                "phase": row["phase"],
                "changes": trial.changes,
                "peak": show_bytes(peak) if peak is not None else "",
                "peak_key": peak if peak is not None else needed,
                "needed": f"at least {show_bytes(needed)}" if needed is not None else "",
                "seconds": show_duration(seconds) if seconds is not None else "",
                "seconds_key": seconds,
                "rate": f"{rate:,.0f}" if rate is not None else "",
                "rate_key": rate,
                "kept": show_ratio(kept) if kept is not None else "",
                "kept_key": kept,
            }
        )
    return made


def _job(result: Result) -> dict[str, str]:
    job, budget = result.job, result.budget
    source = job.dataset
    split = f" ({source.train_split})" if source.train_split != "train" else ""
    return {
        "Model": job.model,
        "Data": f"{source.path}{split}",
        "Trainer": job.trainer.value,
        "Device": f"{result.device.name} ({result.device.label})",
        "Budget": f"{show_bytes(budget.total_bytes)}"
        + ("" if budget.explicit else ", what was free at the start"),
        "Objective": f"{job.objective}, keeping at least {show_ratio(job.min_retention_ratio)}",
        "Measured": result.created,
    }


def _rows(result: Result) -> dict[str, str]:
    profile = result.profile
    lengths = ", ".join(f"{float(q):.0%} {n:,}" for q, n in profile.quantiles.items())
    found = {
        "Layout": profile.layout,
        "Converted": profile.conversion or "no",
        "Rows": profile.rows_words,
        "Tokens": f"{profile.tokens:,}, of which {profile.label_tokens:,} are trained on",
        "Length at": lengths,
        "Padding token": profile.pad_token,
        "Fingerprint": profile.fingerprint,
    }
    positions = profile.model_positions
    return found | {"Model takes": f"{positions:,} tokens" if positions else "any length"}


def _machine(result: Result) -> dict[str, str]:
    found = result.environment
    devices = "; ".join(f"{d.label} {d.name}, {show_bytes(d.total_bytes)}" for d in found.devices)
    libraries = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    seen = clocks(result.best_trial or result.baseline_trial)
    variables = ", ".join(f"{k}={v}" for k, v in (found.variables or {}).items())
    return {
        "Devices": devices,
        **({"Clocks while timed": seen} if seen else {}),
        "Libraries": libraries,
        "Python": found.python,
        "System": found.platform,
        **({"Variables": variables} if variables else {}),
        "autotune": result.autotune_version,
        "Search space": ", ".join(f"{k} {v}" for k, v in result.space.items()),
    }

"""The file that ``trl <trainer> --config`` reads: the user's own, with the winner's options put in.

Comments, order and spelling of everything that does not change stay as they are. What is written
is read back as TRL reads it before it is given away.
"""

from __future__ import annotations

from typing import Any

import yaml

from autotune.core.errors import ToolFailure
from autotune.core.result import Result
from autotune.emit import header
from autotune.emit.settings import Settings, settings_of
from autotune.emit.values import yaml_block, yaml_text
from autotune.emit.yaml_editor import YamlEditor

#: Order of a new file's training options; the rest follows by name.
_ORDER = (
    "output_dir",
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "optim",
    "bf16",
    "fp16",
    "max_length",
)


def render(result: Result) -> str:
    """Write the YAML of a result's best trial.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    settings = settings_of(result)
    expected = _expected(settings)
    own = _without_header(result.job.config_text or "").lstrip("\ufeff")
    body = _edited(own, settings) if settings.own else None
    if body is None or not _means(body, expected):
        body = _fresh(settings, expected)
    if not _means(body, expected):
        raise ToolFailure(
            "The emitted YAML does not read back as the configuration it was made from.",
            "Please report it with the result.json.",
        )
    remarks = "\n".join(f"# {line}" for line in header.header_lines(result, settings))
    return f"{remarks}\n\n{body}"


def _expected(settings: Settings) -> dict[str, Any]:
    """What the file has to mean to PyYAML, key by key."""
    expected = dict(settings.own)
    for change in settings.changes:
        if change.name.startswith("env."):
            continue
        expected.pop(change.was or change.name, None)
        if change.kept:
            expected[change.name] = change.new
    if any(change.name.startswith("env.") for change in settings.changes):
        expected["env"] = {**(settings.own.get("env") or {}), **_changed_env(settings)}
    return expected


def _changed_env(settings: Settings) -> dict[str, str]:
    return {
        change.name.removeprefix("env."): change.new
        for change in settings.changes
        if change.name.startswith("env.")
    }


def _means(text: str, expected: dict[str, Any]) -> bool:
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    # repr tells 1 from True and 1 from 1.0, == does not.
    return isinstance(loaded, dict) and (
        {k: repr(_lists(v)) for k, v in loaded.items()}
        == {k: repr(_lists(v)) for k, v in expected.items()}
    )


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _lists(v) for k, v in value.items()}
    return [_lists(v) for v in value] if isinstance(value, list | tuple) else value


def _edited(text: str, settings: Settings) -> str | None:
    """Return the user's text with the changes made, or None when it cannot be edited."""
    try:
        editor = YamlEditor(text)
        for change in settings.changes:
            name = change.name.removeprefix("env.")
            if change.was:
                editor.rename(change.was, name)
            if name == change.name and change.kept:
                editor.set(change.was or name, yaml_block(name, change.new))
            elif name == change.name:
                editor.remove(name)
            elif settings.own.get("env"):
                editor.set_within("env", name, yaml_text(change.new))
        if not settings.own.get("env") and _changed_env(settings):
            editor.set("env", _env_block(_changed_env(settings)))
    except (ValueError, yaml.YAMLError):
        return None
    return editor.render("added by autotune")


def _fresh(settings: Settings, expected: dict[str, Any]) -> str:
    """Write a new file in a sensible order: model, rows, training, what was tuned, environment."""
    tuned = [n for n in settings.trial.options if n in expected]
    rows = [n for n in settings.location.options if n in expected]
    model = ["model_name_or_path", *(n for n in settings.model_options if n not in tuned)]
    placed = {*tuned, *rows, *model, "env"}
    rest = [n for n in expected if n not in placed]
    rest.sort(key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n))
    sections = (("model", model), ("rows", rows), ("training", rest), ("chosen by autotune", tuned))
    lines: list[str] = []
    for title, names in sections:
        body = [line for n in names for line in yaml_block(n, expected[n])]
        lines += ["", f"# {title}", *body] if body else []
    if expected.get("env"):
        lines += ["", "# environment", *_env_block(expected["env"])]
    return "\n".join(lines[1:]) + "\n"


def _env_block(env: dict[str, Any]) -> list[str]:
    return ["env:", *(f"  {yaml_text(name)}: {yaml_text(value)}" for name, value in env.items())]


def _without_header(text: str) -> str:
    """Drop the remarks an earlier run of autotune put on top."""
    lines = text.splitlines(keepends=True)
    last = f"# {header.LAST_LINE}"
    if lines and lines[0].startswith(f"# {header.FIRST_LINE}"):
        end = next((n for n, line in enumerate(lines) if line.strip() == last), None)
        if end is not None:
            return "".join(lines[end + 1 :]).lstrip("\n")
    return text

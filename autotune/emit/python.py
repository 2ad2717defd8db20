"""A complete script that trains the winner, doing what ``trl <trainer> --config best.yaml`` does.

Plain Python without a dependency on autotune, to be read, kept and changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.core.result import Result
from autotune.core.secrets import SECRET_OPTIONS
from autotune.emit import header
from autotune.emit.settings import Settings, settings_of
from autotune.emit.values import quoted
from autotune.knobs.versions import at_least

#: Line length of the script; a longer line is a string that cannot be broken.
_WIDTH = 100


def render(result: Result) -> str:
    """Write the script of a result's best trial.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    settings = settings_of(result)
    parts = [
        _docstring(result, settings),
        _imports(settings),
        f"MODEL = {literal(settings.model)}",
        _options(settings),
        _rows(settings),
        _main(settings, result),
        'if __name__ == "__main__":\n    main()',
    ]
    # Two blank lines around functions, one around constants, as ruff format has it.
    text = "\n\n".join(parts[:4]) + "\n\n\n" + "\n\n\n".join(parts[4:]) + "\n"
    return "\n".join(_exempt(line) for line in text.splitlines()) + "\n"


def literal(value: Any) -> str:
    """Write a value as Python source."""
    if isinstance(value, str):
        # Single quotes where they save escapes, as formatters have it.
        if value.count('"') <= value.count("'"):
            return quoted(value)
        inner = quoted(value)[1:-1].replace('\\"', '"').replace("'", "\\'")
        return f"'{inner}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(literal(v) for v in value) + "]"
    return repr(value)


def _exempt(line: str) -> str:
    return f"{line}  # noqa: E501" if len(line) > _WIDTH and '"""' not in line else line


def _docstring(result: Result, settings: Settings) -> str:
    lines = []
    for line in header.header_lines(result, settings):
        text = line.replace("\\", "/").replace('"""', "'''")
        while len(text) > _WIDTH:
            cut = text.rfind(" ", 20, _WIDTH)
            cut = cut if cut > 0 else _WIDTH
            lines.append(text[:cut])
            text = "      " + text[cut:].strip()
        lines.append(text)
    body = "\n".join(lines)
    return (
        f'"""Train the configuration autotune chose; best.yaml says the same to trl.\n\n{body}\n"""'
    )


def _imports(settings: Settings) -> str:
    names = {settings.classes.config, settings.classes.trainer}
    blocks = settings.location.blocks is not None
    third = ["from datasets import load_dataset"] if not blocks else []
    names |= {"DatasetMixtureConfig", "get_dataset"} if blocks else set()
    if _uses_peft(settings):
        third.append("from peft import LoraConfig")
    if _quantization(settings) is not None:
        third.append("from transformers import BitsAndBytesConfig")
    # isort's order: constants, classes, functions.
    ordered = sorted(names, key=lambda n: (not n[0].isupper(), n.lower()))
    third.append(f"from trl import {', '.join(ordered)}")
    needs_os = bool(settings.env) or any(s in settings.config_options for s in SECRET_OPTIONS)
    lines = ["import argparse", *(["import os"] if needs_os else []), "from typing import Any", ""]
    if settings.env:
        lines.append("# Read when the libraries load, so set before they are imported.")
        lines += [f"os.environ[{literal(k)}] = {literal(v)}" for k, v in settings.env.items()]
        lines.append("")
    return "\n".join(lines + third)


def _options(settings: Settings) -> str:
    lines = [f"# Explicit options of {settings.classes.config}; what is not here is TRL's default."]
    lines.append("OPTIONS: dict[str, Any] = {")
    for name, value in settings.config_options.items():
        if name == "model_init_kwargs":
            continue
        text = 'os.environ.get("HF_TOKEN")' if name in SECRET_OPTIONS else literal(value)
        lines.append(f"    {literal(name)}: {text},")
    lines.append('    "model_init_kwargs": {')
    lines += [f"        {literal(k)}: {literal(v)}," for k, v in _model_kwargs(settings).items()]
    return "\n".join([*lines, "    },", "}"])


def _model_kwargs(settings: Settings) -> dict[str, Any]:
    """As TRL's own script makes them; what the user wrote in model_init_kwargs wins."""
    options = settings.model_options
    made = {
        "revision": options.get("model_revision", "main"),
        "trust_remote_code": settings.config_options.get("trust_remote_code", False),
        "attn_implementation": options.get("attn_implementation"),
        "dtype": options.get("dtype", "float32"),
    }
    return {**made, **(settings.config_options.get("model_init_kwargs") or {})}


def _rows(settings: Settings) -> str:
    lines = ["def load_rows() -> Any:", '    """Return the rows by split."""']
    if settings.location.blocks is not None:
        lines += [
            "    return get_dataset(",
            "        DatasetMixtureConfig(",
            "            datasets=[",
        ]
        for block in settings.location.blocks:
            lines.append("                {")
            lines += [f"                    {literal(k)}: {literal(v)}," for k, v in block.items()]
            lines.append("                },")
        lines.append("            ],")
        for name in ("streaming", "test_split_size"):
            if name in settings.options:
                lines.append(f"            {name}={literal(settings.options[name])},")
        lines += ["        )", "    )"]
    else:
        options = settings.location.options
        lines += ["    return load_dataset(", f"        {literal(options['dataset_name'])},"]
        if "dataset_config" in options:
            lines.append(f"        name={literal(options['dataset_config'])},")
        if "dataset_streaming" in settings.options:
            lines.append(f"        streaming={literal(settings.options['dataset_streaming'])},")
        lines.append("    )")
    return "\n".join(lines)


def _main(settings: Settings, result: Result) -> str:
    train, test = literal(settings.location.train_split), literal(settings.location.test_split)
    lines = [
        "def main() -> None:",
        '    """Train and save."""',
        "    parser = argparse.ArgumentParser()",
        '    parser.add_argument("--max_steps", type=int, help="stop after this many updates")',
        '    parser.add_argument("--output_dir", help="write here instead")',
        '    parser.add_argument("--use_cpu", action="store_true", help="train on the CPU")',
        "    given = parser.parse_args()",
        "    options = dict(OPTIONS)",
        "    if given.max_steps is not None:",
        '        options["max_steps"] = given.max_steps',
        "    if given.output_dir is not None:",
        '        options["output_dir"] = given.output_dir',
        "    if given.use_cpu:",
        '        options |= {"use_cpu": True, "bf16": False, "fp16": False}',
        f"    config = {settings.classes.config}(**options)",
        "    rows = load_rows()",
        f"    trainer = {settings.classes.trainer}(",
        "        model=MODEL,",
        "        args=config,",
        f"        train_dataset=rows[{train}],",
        f'        eval_dataset=rows[{test}] if config.eval_strategy != "no" else None,',
    ]
    if (quantization := _quantization(settings)) is not None:
        lines += _call("quantization_config", "BitsAndBytesConfig", quantization)
    if _uses_peft(settings):
        lines += _call("peft_config", "LoraConfig", _lora(settings))
    lines += [
        "    )",
        "    trainer.train(resume_from_checkpoint=config.resume_from_checkpoint)",
        "    trainer.save_model(config.output_dir)",
    ]
    if settings.config_options.get("push_to_hub"):
        name = settings.location.options.get("dataset_name")
        lines.append(f"    trainer.push_to_hub(dataset_name={literal(name)})")
    if at_least(result.environment.versions, "transformers", "5.18"):
        lines.append("    trainer.end()")
    return "\n".join(lines)


def _call(argument: str, function: str, values: dict[str, Any]) -> list[str]:
    inner = [f"            {k}={literal(v)}," for k, v in values.items()]
    return [f"        {argument}={function}(", *inner, "        ),"]


def _uses_peft(settings: Settings) -> bool:
    return bool(settings.model_options.get("use_peft"))


def _lora(settings: Settings) -> dict[str, Any]:
    """As ``trl.get_peft_config`` makes it, with TRL's defaults (trl/trainer/model_config.py)."""
    options = settings.model_options
    targets = options.get("lora_target_modules")
    if isinstance(targets, list) and len(targets) == 1:
        targets = targets[0]
    made = {
        "task_type": options.get("lora_task_type", "CAUSAL_LM"),
        "r": options.get("lora_r", 16),
        "target_modules": targets,
        "lora_alpha": options.get("lora_alpha", 32),
        "lora_dropout": options.get("lora_dropout", 0.05),
        "bias": "none",
        "use_rslora": options.get("use_rslora", False),
        "use_dora": options.get("use_dora", False),
        "modules_to_save": options.get("lora_modules_to_save"),
    }
    if options.get("lora_target_parameters") is not None:
        made["target_parameters"] = options["lora_target_parameters"]
    return made


def _quantization(settings: Settings) -> dict[str, Any] | None:
    """As ``trl.get_quantization_config`` makes it, with TRL's defaults."""
    options = settings.model_options
    if options.get("load_in_4bit"):
        return {
            "load_in_4bit": True,
            "bnb_4bit_compute_dtype": options.get("dtype", "float32"),
            "bnb_4bit_quant_type": options.get("bnb_4bit_quant_type", "nf4"),
            "bnb_4bit_use_double_quant": options.get("use_bnb_nested_quant", False),
            "bnb_4bit_quant_storage": options.get("bnb_4bit_quant_storage"),
        }
    return {"load_in_8bit": True} if options.get("load_in_8bit") else None

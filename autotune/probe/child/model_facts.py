"""Puts the model a job names where probes find it, and reads from its config what rules ask.

Loads no weights; whether a model is one this version measures is decided here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, EnvironmentUnable, NotBuiltYet, nearest
from autotune.core.job import Job
from autotune.probe.child.capabilities import traits_of
from autotune.probe.prepared import ModelFacts


def model_facts(job: Job, options: dict[str, Any], out_dir: Path) -> tuple[ModelFacts, Any, Any]:
    """Put the model's config and tokenizer below the run's folder and read its facts.

    Returns:
        The facts, transformers' config and the tokenizer.

    Raises:
        BadInput: the model is missing, or is not one that can be built.
        NotBuiltYet: it reads more than text.
        EnvironmentUnable: its code needs a package that is not installed.
    """
    from transformers import AutoTokenizer

    from autotune.training.model import read_config

    trust = bool(options.get("trust_remote_code", False))
    revision = options.get("model_revision", "main")
    named = Path(job.model).expanduser()
    local = named.parent if named.name == "config.json" else named
    looks_local = named.exists() or job.model.startswith((".", "/", "~"))
    if looks_local and not (local / "config.json").is_file():
        if local.is_dir():
            raise BadInput(
                f"no config.json in the model folder {local}.",
                "Give a folder written by save_pretrained, or a hub id.",
            )
        if local.is_file():
            raise BadInput(
                f"the model {job.model} is a file, expected a folder.",
                "Give the folder with config.json and a tokenizer, or a hub id.",
            )
        siblings = [p.name for p in local.parent.iterdir()] if local.parent.is_dir() else []
        raise BadInput(
            f"there is no model at {job.model}{nearest(local.name, siblings)}.",
            "Give a folder with config.json and a tokenizer, or a hub id.",
        )
    source = str(local) if looks_local else job.model
    try:
        place = {"trust_remote_code": trust, "revision": revision}
        config, _ = read_config(source, {**(options.get("model_init_kwargs") or {}), **place})
        tokenizer = AutoTokenizer.from_pretrained(
            source, trust_remote_code=trust, revision=revision
        )
    except ImportError as error:
        raise EnvironmentUnable(
            f"the model {job.model!r} needs a package that is not installed: {_said(error)}",
            "Install it, or choose another model.",
        ) from error
    except Exception as error:  # config classes and remote code may raise anything
        where = "" if looks_local else " It is not a local folder, and the hub did not give it."
        raise BadInput(
            f"the model {job.model!r} cannot be read: {_said(error)}{where}",
            "Give a folder with config.json and a tokenizer, or a hub id that can be reached.",
        ) from error
    text = config.get_text_config()
    if text is not config:
        raise NotBuiltYet(
            f"the model {job.model!r} ({config.model_type}) reads more than text; models of images "
            "or sound are not measured by this version.",
            "Its language model alone can be tuned, from a folder of its own.",
        )
    _check_unquantized(job, options, config)
    has_weights = looks_local and any(
        next(local.glob(p), None) is not None for p in ("*.safetensors", "pytorch_model*.bin")
    )
    model_dir = local.resolve() if looks_local else out_dir / "model"
    if not looks_local:
        config.save_pretrained(model_dir)
        tokenizer.save_pretrained(model_dir)
    facts = text.to_dict()
    return (
        ModelFacts(
            model_dir=str(model_dir),
            name=job.model,
            model_type=config.model_type,
            positions=facts.get("max_position_embeddings"),
            vocabulary=int(facts.get("vocab_size", 0)),
            moe=any(k in facts for k in ("num_experts", "num_local_experts", "n_routed_experts")),
            has_weights=has_weights,
            traits=traits_of(config),
            dtype=str(config.dtype or "float32").removeprefix("torch."),
        ),
        config,
        tokenizer,
    )


def _check_unquantized(job: Job, options: dict[str, Any], config: Any) -> None:
    """Stop at weights that are quantised otherwise than by TRL's own options: none are at random.

    Raises:
        BadInput: the config asks for it by a keyword of transformers'.
        NotBuiltYet: the model's weights are stored quantised, and are not to be loaded.
    """
    if (options.get("model_init_kwargs") or {}).get("quantization_config"):
        raise BadInput(
            "model_init_kwargs.quantization_config is not measured.",
            "Set load_in_4bit or load_in_8bit, which are TRL's own options for it.",
        )
    stored = config.to_dict().get("quantization_config")
    if stored and job.weights == "random":
        method = stored.get("quant_method", "quantised") if isinstance(stored, dict) else stored
        raise NotBuiltYet(
            f"the weights of {job.model!r} are stored quantised ({method}), and random weights "
            "would not be.",
            "Use --weights real with its weights at hand, or the unquantised model with "
            "--set load_in_4bit=true.",
        )


def _said(error: Exception) -> str:
    """Return the first line of an error, and the next where that only leads to it."""
    lines = [*map(str.strip, str(error).strip().splitlines()), type(error).__name__]
    return f"{lines[0]} {lines[1]}" if lines[0].endswith(":") else lines[0]

"""Puts the model a job names where probes find it, and reads from its config what rules ask.

Loads no weights; whether a model is one this version measures is decided here.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from autotune.core.errors import AutotuneError, BadInput, EnvironmentUnable, NotBuiltYet, nearest
from autotune.core.job import Job
from autotune.core.positions import positions_of
from autotune.probe.child.capabilities import traits_of
from autotune.probe.prepared import ModelFacts

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin*")


def model_facts(job: Job, options: dict[str, Any], out_dir: Path) -> tuple[ModelFacts, Any, Any]:
    """Put the model's config and tokenizer below the run's folder and read its facts.

    Returns:
        The facts, transformers' config and the tokenizer.

    Raises:
        BadInput: the model is missing, is not one the trainer trains, or cannot be built.
        NotBuiltYet: it reads more than text.
        EnvironmentUnable: its code needs a package that is not installed.
    """
    from transformers import AutoTokenizer

    from autotune.training.architecture import check_architecture
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
        config, _ = read_config(source, place)
        check_architecture(job.trainer, config, job.model)
        tokenizer = AutoTokenizer.from_pretrained(
            source, trust_remote_code=trust, revision=revision
        )
    except AutotuneError:
        raise
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
    if keywords := options.get("model_init_kwargs"):
        config = _with_keywords(source, place, keywords)
    text = config.get_text_config()
    if text is not config:
        raise NotBuiltYet(
            f"the model {job.model!r} ({config.model_type}) reads more than text; models of images "
            "or sound are not measured by this version.",
            "Its language model alone can be tuned, from a folder of its own.",
        )
    _check_stored_plain(job.model, config)
    weights = [p for pattern in _WEIGHTS for p in local.glob(pattern)] if looks_local else []
    has_weights = any(path.suffix != ".json" for path in weights)
    if job.weights == "real" and not has_weights:
        raise BadInput(
            f"--weights is real, and there are no weights in {local if looks_local else job.model}"
            f"{'' if looks_local else ', which is not a local folder'}.",
            "Give a folder with the weights, or leave --weights out: random ones need the same "
            "memory and time.",
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
            positions=positions_of(text),
            vocabulary=int(facts.get("vocab_size", 0)),
            moe=any(k in facts for k in ("num_experts", "num_local_experts", "n_routed_experts")),
            has_weights=has_weights,
            traits=traits_of(config),
        ),
        config,
        tokenizer,
    )


def _with_keywords(source: str, place: dict[str, Any], keywords: dict[str, Any]) -> Any:
    """Return the config as the loader's keywords make it.

    Raises:
        BadInput: they make it one that contradicts itself.
    """
    from autotune.training.model import read_config

    try:
        config, _ = read_config(source, {**keywords, **place})
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder)  # transformers holds a config together when it is saved
        return config
    except Exception as error:  # config classes may raise anything
        raise BadInput(
            f"model_init_kwargs {keywords} do not fit the model's config: {_said(error)}"
        ) from error


def _check_stored_plain(name: str, config: Any) -> None:
    """Stop at weights that are stored quantized: random and predicted ones would be in full.

    Raises:
        NotBuiltYet: names the method.
    """
    stored = config.to_dict().get("quantization_config")
    if stored:
        method = stored.get("quant_method", "quantized") if isinstance(stored, dict) else stored
        raise NotBuiltYet(
            f"the weights of the model {name!r} are stored quantized ({method}), which is not "
            "measured by this version.",
            "Name the model they were made from, with load_in_4bit or load_in_8bit.",
        )


def _said(error: Exception) -> str:
    """Return the first line of an error, and the next where that only leads to it."""
    lines = [*map(str.strip, str(error).strip().splitlines()), type(error).__name__]
    return f"{lines[0]} {lines[1]}" if lines[0].endswith(":") else lines[0]

"""Resolves a job inside a measuring process: options through TRL's parser, model facts, rows.

Everything a later probe needs is written below the run's folder, so that probes reach no hub.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from autotune.core.environment import Device
from autotune.core.errors import BadInput, EnvironmentUnable, NotBuiltYet, nearest
from autotune.core.job import Job
from autotune.knobs.isolation import LAUNCH_FIELDS
from autotune.knobs.needs import missing_package
from autotune.knobs.versions import canonical_options, deprecated
from autotune.probe.child.capabilities import lacking_here, traits_of
from autotune.probe.child.inspect import choose_device, inspect_environment
from autotune.probe.prepared import ModelFacts, Prepared
from autotune.probe.progress import ProgressFile
from autotune.probe.protocol import PrepareSpec

#: Options whose TRL default autotune has to know when the user left them out.
_DEFAULTS = (
    "max_length",
    "packing",
    "packing_strategy",
    "padding_free",
    "pad_to_multiple_of",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "activation_offloading",
    "bf16",
    "fp16",
    "max_steps",
    "num_train_epochs",
    "warmup_steps",
    "save_steps",
    "eval_steps",
    "eval_packing",
    "load_best_model_at_end",
    "save_strategy",
    "logging_steps",
    "train_sampling_strategy",
    "dataset_num_proc",
    "dataset_kwargs",
    "truncation_mode",
    "loss_type",
    "optim",
    "torch_empty_cache_steps",
    "dataloader_num_workers",
    "use_liger_kernel",
    "torch_compile",
    "precompute_ref_log_probs",
    "sync_ref_model",
    "router_aux_loss_coef",
    "model_init_kwargs",
    "dtype",
    "attn_implementation",
    "use_peft",
    "use_dora",
    "use_rslora",
    "lora_r",
    "lora_target_modules",
    "lora_target_parameters",
    "lora_modules_to_save",
    "lora_task_type",
    "load_in_4bit",
    "load_in_8bit",
)


_POSITIVE = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "max_length",
)


def run_prepare(spec: PrepareSpec) -> Prepared:
    """Resolve the job.

    Raises:
        BadInput: the options, the model or the rows cannot be used; says what and what to do.
        EnvironmentUnable: the device asked for is not there.
    """
    job = spec.job
    if spec.demo_model:
        from autotune.demo.model import materialise_model

        materialise_model(Path(job.model))
    environment = inspect_environment()
    here = choose_device(environment, spec.device)
    device = spec.target or here
    # TRL asks the machine it runs on: precision of another device is not refused as the CPU's.
    on_cpu = all(found.kind == "cpu" for found in environment.devices) or device.kind == "cpu"
    notices: list[str] = []
    lacking = lacking_here(here)
    options = _resolve_options(job, device, notices, environment.versions, lacking, on_cpu=on_cpu)
    out_dir = Path(spec.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    model, config = _model_facts(job, options, out_dir)
    from autotune.dataset.both_splits import prepare_job
    from autotune.training.arguments import build_arguments

    extra = {"use_cpu": True} if on_cpu else {}
    defaults_of = build_arguments(job.trainer, {**options, **extra, "output_dir": str(out_dir)})
    defaults = _defaults(defaults_of.training) | _defaults(defaults_of.model)
    progress = ProgressFile(out_dir)
    profile, eval_profile = prepare_job(
        job.dataset,
        trainer=job.trainer,
        tokenizer_dir=Path(model.model_dir),
        model_config=config,
        options=options,
        out_dir=out_dir,
        cache_dir=Path(spec.cache_dir),
        progress=progress.tell,
        sample_rows=spec.sample_rows,
        train_only=spec.train_only,
    )
    progress.close()
    return Prepared(
        environment=environment,
        device=device,
        options=options,
        defaults=defaults,
        model=model,
        profile=profile,
        eval_profile=eval_profile,
        notices=tuple(notices),
        lacking=lacking,
    )


def _defaults(arguments: Any) -> dict[str, Any]:
    known = {f.name for f in dataclasses.fields(arguments)}
    return {n: getattr(arguments, n) for n in _DEFAULTS if n in known}


def _resolve_options(
    job: Job,
    device: Device,
    notices: list[str],
    versions: dict[str, str],
    lacking: dict[str, str],
    *,
    on_cpu: bool,
) -> dict[str, Any]:
    """Parse the user's options with TRL and resolve precision once for the device.

    Raises:
        BadInput: TRL or the arithmetic of a search cannot use them.
        EnvironmentUnable: they ask for what this machine or this version cannot do.
    """
    from autotune.training.arguments import parse_options

    options = canonical_options(job.options)
    options = {k: v for k, v in options.items() if k not in LAUNCH_FIELDS}
    # TRL's default (bf16) is refused on a CPU unless it is told that the CPU is meant, and on a
    # GPU without bf16; precision is resolved here so that no probe fails for it.
    machine = {"use_cpu": True} if on_cpu else {}
    if "bf16" not in options and "fp16" not in options:
        if device.bf16:
            options["bf16"] = True
        else:
            half = device.kind == "cuda"
            options.update({"bf16": False, "fp16": half})
            notices.append(
                f"{device.name} (compute capability {device.capability}) has no bf16: "
                f"{'fp16' if half else 'float32'} is used and written into the config."
            )
    parsed = parse_options(job.trainer, {**options, **machine})
    for name in machine:
        if name not in options:
            parsed.pop(name)
    _check_packages(parsed, lacking)
    _check_values(parsed)
    _check_device_map(parsed, notices)
    notices += deprecated(job.trainer, parsed, versions)
    return parsed


def _check_device_map(options: dict[str, Any], notices: list[str]) -> None:
    """Say that spreading a model over GPUs is not what is measured: probes see one."""
    kwargs = options.get("model_init_kwargs") or {}
    if kwargs.get("device_map") is not None:
        notices.append(
            f"model_init_kwargs.device_map {kwargs['device_map']!r} is not measured: a probe sees "
            "one device and the whole model is on it."
        )


def _check_values(options: dict[str, Any]) -> None:
    """Check what TRL's parser lets through and the arithmetic of a search cannot use.

    Raises:
        BadInput: a batch, an accumulation or a length is not a whole number above zero.
        EnvironmentUnable: the option is one this version cannot measure.
    """
    for name in _POSITIVE:
        value = options.get(name, 1)
        if name == "max_length" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadInput(f"{name} is {value!r}, expected a whole number above zero.")
    if options.get("truncation_mode") == "keep_end":
        raise NotBuiltYet(
            "truncation_mode keep_end is not measured by this version (TRL has deprecated it).",
            "Use keep_start, or max_length null.",
        )


def _check_packages(options: dict[str, Any], lacking: dict[str, str]) -> None:
    """Stop before the first probe when an option needs a package that is not there or not usable.

    Raises:
        EnvironmentUnable: names the option, the package and how to install it.
    """
    missing = missing_package(options, lacking)
    if missing is not None:
        need, option = missing
        raise EnvironmentUnable(
            f"{option} needs the package {need.package}: {lacking[need.package]}.",
            f"Install it with: pip install 'autotune[{need.package}]'",
        )


def _model_facts(job: Job, options: dict[str, Any], out_dir: Path) -> tuple[ModelFacts, Any]:
    """Put the model's config and tokenizer below the run's folder and read its facts.

    Raises:
        BadInput: the model is missing, or is not one that can be built.
        NotBuiltYet: it reads more than text.
    """
    from transformers import AutoConfig, AutoTokenizer

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
        siblings = [p.name for p in local.parent.iterdir()] if local.parent.is_dir() else []
        raise BadInput(
            f"there is no model at {job.model}{nearest(local.name, siblings)}.",
            "Give a folder with config.json and a tokenizer, or a hub id.",
        )
    source = str(local) if looks_local else job.model
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=trust, revision=revision)
        tokenizer = AutoTokenizer.from_pretrained(
            source, trust_remote_code=trust, revision=revision
        )
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        where = "" if looks_local else " It is not a local folder, and the hub did not give it."
        raise BadInput(
            f"the model {job.model!r} cannot be read: {first}{where}",
            "Give a folder with config.json and a tokenizer, or a hub id that can be reached.",
        ) from error
    text = config.get_text_config()
    if text is not config:
        raise NotBuiltYet(
            f"the model {job.model!r} ({config.model_type}) reads more than text; models of images "
            "or sound are not measured by this version.",
            "Its language model alone can be tuned, from a folder of its own.",
        )
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
        ),
        config,
    )

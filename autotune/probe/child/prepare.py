"""Resolves a job inside a measuring process: options through TRL's parser, model facts, rows.

Everything a later probe needs is written below the run's folder, so that probes reach no hub.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from autotune.core.environment import Environment
from autotune.core.job import Job, Trainer
from autotune.knobs.catalog import BY_NAME
from autotune.probe.child.capabilities import lacking_here, to_install
from autotune.probe.child.dtype import settle_dtype
from autotune.probe.child.hub_kernels import fetch_attention, fetch_layers
from autotune.probe.child.inspect import choose_device, inspect_environment
from autotune.probe.child.model_facts import model_facts
from autotune.probe.child.resolve import check_has_end, resolve_options
from autotune.probe.prepared import Prepared
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
    "dataloader_drop_last",
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
    "lora_alpha",
    "lora_target_modules",
    "lora_target_parameters",
    "lora_modules_to_save",
    "lora_dropout",
    "lora_task_type",
    "load_in_4bit",
    "load_in_8bit",
)
#: Tokens of the model a step is tried with.
_SMALL_VOCABULARY = 8


def run_prepare(spec: PrepareSpec, machine: Environment | None = None) -> Prepared:
    """Resolve the job.

    Args:
        spec: the job, and what it is resolved for.
        machine: as it was looked at before this process chose what it sees; None looks now.

    Raises:
        BadInput: the options, the model or the rows cannot be used; says what and what to do.
        EnvironmentUnable: the device asked for is not there.
    """
    job = spec.job
    if spec.demo_model:
        from autotune.demo.model import materialise_model

        materialise_model(Path(job.model))
    environment = machine or inspect_environment()
    # A device that is not here is resolved for wherever this runs, whatever ails a GPU of this one.
    elsewhere = spec.target is not None and environment.gpu_fault
    here = choose_device(environment, "cpu" if elsewhere else spec.asked_device)
    device = spec.target or here
    # TRL asks the machine it runs on: precision of another device is not refused as the CPU's.
    on_cpu = all(found.kind == "cpu" for found in environment.devices) or device.kind == "cpu"
    notices: list[str] = []
    seen_alone = machine is not None and here.index is not None
    seen = here.model_copy(update={"index": 0}) if seen_alone else here
    # A device that is not here has packages of its own: what is installed here says nothing of it.
    lacking = lacking_here(seen) if spec.target is None else {}
    fetches = here.kind == "cuda" and spec.target is None and "kernels" not in lacking
    if fetches:
        lacking |= fetch_attention(job.options, spec.attention_kernels)
    options = resolve_options(job, device, notices, environment.versions, lacking, on_cpu=on_cpu)
    if spec.target is not None:
        notices += to_install(options)
    if not spec.train_only:
        check_has_end(options)
    out_dir = Path(spec.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    model, config, tokenizer = model_facts(job, options, out_dir)
    settle_dtype(options, config, notices)
    if fetches:
        lacking |= fetch_layers(
            Path(model.model_dir), options, notices, searched=spec.layer_kernels
        )
    from autotune.dataset.both_splits import prepare_job
    from autotune.dataset.trl_rows import stand_in
    from autotune.probe.child.fitting import check_fitting
    from autotune.training.anatomy import anatomy_of
    from autotune.training.arguments import build_arguments
    from autotune.training.constructs import check_constructs

    keywords = {**(options.get("model_init_kwargs") or {}), **_trust(options)}
    anatomy = anatomy_of(job.trainer, Path(model.model_dir), keywords, model.positions)
    if anatomy is not None:
        model = model.model_copy(update={"positions": anatomy.positions})
        notices += check_fitting(anatomy, tokenizer, options)
    check_constructs(
        job.trainer,
        options,
        model_dir=Path(model.model_dir),
        tokenizer=tokenizer,
        small=stand_in(_SMALL_VOCABULARY, scores=job.trainer is Trainer.REWARD),
        folder=out_dir,
    )

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
        positions=model.positions,
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
        unfit_adapters=_unfit_adapters(job, options, Path(model.model_dir), out_dir),
    )


def _unfit_adapters(
    job: Job, options: dict[str, Any], model_dir: Path, folder: Path
) -> dict[str, str]:
    """Try adapters on the model where some may be searched; the user's own layers are among them.

    Their own adapters as they wrote them have been built before.
    """
    if not options.get("use_peft") and "peft" not in job.allow:
        return {}
    from autotune.training.adapters import unfit_adapters

    layers = options.get("lora_target_modules")
    own = ",".join(layers) if isinstance(layers, list | tuple) else layers
    choices = (*(BY_NAME["lora_target_modules"].choices or ()), own)
    return unfit_adapters(job.trainer, options, choices, model_dir=model_dir, folder=folder)


def _trust(options: dict[str, Any]) -> dict[str, Any]:
    return {"trust_remote_code": True} if options.get("trust_remote_code") else {}


def _defaults(arguments: Any) -> dict[str, Any]:
    known = {f.name for f in dataclasses.fields(arguments)}
    return {n: getattr(arguments, n) for n in _DEFAULTS if n in known}

"""Checks of precisions and of a large model: FlashAttention, fp16, 7B by LoRA and in 4 bits."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from autotune.predict.request import Documents, TraceRequest
from autotune.probe.child.stages import accumulation_of
from autotune.probe.protocol import ProbeSpec, TraceSpec
from tests.gpu.found import Found
from tests.gpu.lab import LORA, Lab, fits, numbers, peak

#: How far a traced peak of live bytes may be from the allocator's own.
_APART = 0.05


def flash(lab: Lab, found: Found) -> None:
    """Train fp32 weights under bf16 with FlashAttention, where it is installed, else with SDPA."""
    there = find_spec("flash_attn") is not None and lab.on_gpu
    found.keep("flash-attn is installed", there)
    with_it: dict[str, Any] = {"attn_implementation": "flash_attention_2"} if there else {}
    flat = {"padding_free": True, "max_length": None, "per_device_train_batch_size": 4}
    for dtype in ("float32", "bfloat16") if lab.on_gpu else ("float32",):
        report = lab.probe(lab.spec("0.5B", dtype=dtype, **flat, **with_it), f"flat-{dtype}")
        found.keep(f"{dtype} weights, padding-free", numbers(report))
        found.expect(fits(report), f"{dtype} weights ended as {report.ending}")
        if report.measurement is not None and there:
            found.expect(not report.measurement.documents_mix, "documents see each other")


def fp16(lab: Lab, found: Found) -> None:
    """Train under fp16 with its gradient scaler, and compare an update with the same one."""
    half: dict[str, Any] = {"bf16": False, "fp16": True} if lab.on_gpu else {}
    spec = lab.spec("0.5B", **half)
    report = lab.probe(spec, "fp16")
    found.keep("probe", numbers(report))
    found.expect(fits(report), f"under fp16 it ended as {report.ending}")
    same = lab.guard(spec, {"gradient_checkpointing": False}, "fp16-guard")
    found.keep("compared", same.model_dump(mode="json"))
    found.expect(fits(same), f"the updates are not equivalent: {same.ending.reason}")


def seven_billion(lab: Lab, found: Found) -> None:
    """Measure a 7B shape by LoRA on bf16 and on 4-bit weights, against its traced peaks."""
    four = {**LORA, "per_device_train_batch_size": 4}
    candidates: dict[str, dict[str, Any]] = {"LoRA": four}
    if find_spec("bitsandbytes") is not None:
        candidates["4-bit LoRA"] = {**four, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    if not lab.on_gpu:
        candidates = {"LoRA": {**LORA, "dtype": "float32"}}
    specs = {name: lab.spec("7B", **options) for name, options in candidates.items()}
    for name, traced in zip(specs, _traced(lab, list(specs.values())), strict=True):
        found.keep(f"{name}, traced", traced.model_dump(mode="json", exclude={"step": _WORK}))
        found.expect(traced.step is not None, f"{name} cannot be traced: {traced.refusal}")
        report = lab.probe(specs[name].model_copy(update={"memory_only": True}), name)
        found.keep(f"{name}, measured", numbers(report))
        found.expect(fits(report), f"{name} ended as {report.ending}")
        if traced.step is None or not fits(report):
            continue
        ratio = traced.step.peak_bytes / peak(report)
        found.keep(f"{name}, traced to measured", ratio)
        if lab.on_gpu:
            found.expect(abs(ratio - 1.0) <= _APART, f"{name}: traced / measured is {ratio:.3f}")


#: Parts of a traced step that say nothing of its peak.
_WORK = {"micro_step", "optimizer_step"}


def _traced(lab: Lab, specs: list[ProbeSpec]) -> Any:
    requests = tuple(
        TraceRequest(
            trainer=spec.trainer,
            model_dir=spec.model_dir,
            options=spec.options,
            rows=tuple(Documents(tokens=(lab.tokens[row],)) for row in spec.plan.worst[0]),
            accumulates=accumulation_of(spec) > 1,
            target="cuda" if lab.on_gpu else "cpu",
            capability=lab.capability,
        ).model_dump(mode="json")
        for spec in specs
    )
    return lab.runner.trace(
        TraceSpec(requests=requests, seconds=60.0),
        deadline_s=80.0,
        tick=lambda _: None,
        tell=lambda *_: None,
    )

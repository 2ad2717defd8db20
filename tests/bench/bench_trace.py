"""What tracing costs, whether shallow models stand for deep ones, and published peaks beside it.

Run with ``make bench-predict`` (this part: 2 minutes); writes reports/predict-trace.{json,md}.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.core.job import Trainer
from autotune.core.traced_step import TracedStep
from autotune.predict.request import Documents, Judged, Pair, Row, TraceRequest
from autotune.predict.traced import trace, trace_all
from autotune.probe.launch import WarmServer
from autotune.probe.runner import Runner
from autotune.spaces.enumerate import enumerate_space
from autotune.spaces.load import find_space, read_space
from autotune.study.foresight import trace_candidates
from tests.bench.session import REPORTS, write_evidence
from tests.support.facts import GPU, facts_of

pytestmark = pytest.mark.bench
_COMMAND = "make bench-predict"
_POINTS = 20
_GIB = 1024**3
_PUBLISHED = REPORTS.parents[1] / "shared" / "published" / "memory_open.jsonl"

_LLAMA_LIKE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-3-8B": {**_LLAMA_LIKE, "model_type": "llama", "vocab_size": 128256},
    "Mistral-7B": {
        **_LLAMA_LIKE, "model_type": "mistral", "vocab_size": 32000, "sliding_window": None,
    },
    "0.5B": {
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    },
    "sliding 4B": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 36, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "vocab_size": 262208, "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 6,
    },
    "experts": {
        "model_type": "qwen3_moe", "hidden_size": 1024, "intermediate_size": 2048,
        "moe_intermediate_size": 512, "num_hidden_layers": 16, "num_experts": 16,
        "num_experts_per_tok": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 128, "vocab_size": 32000,
    },
}  # fmt: skip
#: Source rows whose step is the one TRL runs today: a fused head, or a peak where no logits are.
_MODELS = {"meta-llama/Meta-Llama-3-8B": "Llama-3-8B", "mistralai/Mistral-7B-v0.1": "Mistral-7B"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, config in CONFIGS.items():
        made[name] = tmp_path_factory.mktemp("models") / name
        made[name].mkdir()
        (made[name] / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return made


def test_tracing_is_quick_and_shallow_models_stand_for_deep_ones(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    speed = {name: _speed(folders[name]) for name in ("Llama-3-8B", "0.5B")}
    space = _default_space(folders["Llama-3-8B"], tmp_path / "space")
    points = [_point(folders, random.Random(seed)) for seed in range(_POINTS)]
    fits = _fitted(folders["Llama-3-8B"])
    published = _published(folders)
    worst = max(abs(p["error"]) for p in (*points, *fits))
    goals = {
        "first candidate of an 8B model under 3 s": speed["Llama-3-8B"]["first_s"] < 3.0,
        "each further shape of an 8B model under 1 s": speed["Llama-3-8B"]["further_s"] < 1.0,
        "each further shape of a 0.5B model under 0.6 s": speed["0.5B"]["further_s"] < 0.6,
        "the default space of an 8B model under 90 s of two cores": space["seconds"] < 90.0,
        "20 extended and 20 fitted peaks within 0.5 % of whole traces": worst <= 0.005,
    }
    body = {
        "goals": goals,
        "speed": speed,
        "default_space": space,
        "extended": points,
        "fitted": fits,
        "published": published,
    }
    write_evidence("predict-trace", _COMMAND, body)
    (REPORTS / "predict-trace.md").write_text(
        _page(speed, space, points, fits, published), encoding="utf-8"
    )
    assert worst <= 0.005


def _speed(folder: Path) -> dict[str, float]:
    """Return seconds of one core for the first candidate and for each of twelve further shapes."""

    def lora(batch: int, tokens: int) -> TraceRequest:
        rows = (Documents(tokens=(tokens,)),) * batch
        options = {"use_peft": True, "dtype": "bfloat16"}
        return TraceRequest(trainer=Trainer.SFT, model_dir=str(folder), options=options, rows=rows)

    shapes = [lora(batch, tokens) for batch in (1, 2, 4) for tokens in (512, 1024, 2048, 4096)]
    first = _seconds(lambda: trace(lora(1, 300)))
    return {"first_s": first, "further_s": _seconds(lambda: trace_all(shapes)) / len(shapes)}


def _default_space(folder: Path, work: Path) -> dict[str, Any]:
    """Have the whole default space of a model traced as ``predict`` does, from a warm process.

    The rows are of 100 to 4096 tokens. ``core_s`` is the time of all cores together: what two
    cores need at least, where others use them too.
    """
    draw = random.Random(0)
    tokens = [min(4096, int(100 * draw.paretovariate(0.9))) for _ in range(5000)]
    facts = facts_of(tokens, device=GPU, positions=8192, options={"dtype": "bfloat16"})
    space = enumerate_space(read_space(find_space("sft")), facts, {})
    (work / "logs").mkdir(parents=True)
    server = WarmServer(work / "logs")
    with Runner(server, work) as runner:
        server.wait_ready()
        server.preload("llama")
        process, here = psutil.Process(server.pid), time.process_time()
        start, core = time.perf_counter(), process.cpu_times().children_user
        foreseen, refused = trace_candidates(
            space.candidates,
            facts,
            str(folder),
            runner,
            seconds=600.0,
            tick=lambda _: None,
            tell=lambda *_: None,
        )
        return {
            "candidates": len(foreseen),
            "refused": len(refused),
            "cores": len(os.sched_getaffinity(0)),
            "seconds": time.perf_counter() - start,
            "core_s": process.cpu_times().children_user - core + time.process_time() - here,
        }


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _fitted(folder: Path) -> list[dict[str, Any]]:
    """Trace 20 of many batches of some candidates alone, and fit them with the others."""
    grid = [(b, n) for b in (1, 2, 3, 4, 6, 8, 16, 32) for n in (128, 300, 512, 1024, 2048, 4096)]
    draw = random.Random(1)
    found: list[dict[str, Any]] = []
    for options in ({}, {"gradient_checkpointing": False}, {"use_peft": True}, {"packing": True}):
        requests = [
            TraceRequest(
                trainer=Trainer.SFT,
                model_dir=str(folder),
                options={"dtype": "bfloat16", **options},
                rows=(*(_ragged(n, draw) for _ in range(b - 1)), _row(Trainer.SFT, n)),
            )
            for b, n in grid
        ]
        together = trace_all(requests)
        for number in draw.sample(range(len(grid)), 5):
            alone = trace(requests[number])
            error = together[number].peak_bytes / alone.peak_bytes - 1.0
            found.append({"options": options, "shape": grid[number], "error": error})
    return found


def _ragged(tokens: int, draw: random.Random) -> Row:
    kept = draw.randint(tokens // 4, tokens)
    return Documents(tokens=(kept,), label_tokens=draw.randint(1, kept))


def _point(folders: dict[str, Path], draw: random.Random) -> dict[str, Any]:
    """Trace one random candidate extended and whole."""
    trainer = draw.choice((Trainer.SFT, Trainer.SFT, Trainer.DPO, Trainer.REWARD, Trainer.KTO))
    options: dict[str, Any] = {
        "gradient_checkpointing": draw.choice((True, False)),
        "dtype": draw.choice((None, "bfloat16")),
        "use_peft": draw.choice((True, False)),
    }
    if options["use_peft"] and trainer is Trainer.REWARD:
        options["lora_task_type"] = "SEQ_CLS"
    model = draw.choice(list(CONFIGS))
    tokens, batch = draw.choice((256, 700, 2048)), draw.choice((2, 3, 8))
    request = TraceRequest(
        trainer=trainer,
        model_dir=str(folders[model]),
        options=options,
        rows=(_row(trainer, tokens),) * batch,
        accumulates=draw.choice((True, False)),
        target=draw.choice(("cpu", "cuda")),
    )
    extended, whole = trace(request), trace(request, whole=True)
    return {
        "trainer": trainer.value,
        "model": model,
        "options": options,
        "batch": batch,
        "tokens": tokens,
        "target": request.target,
        "extended_bytes": extended.peak_bytes,
        "whole_bytes": whole.peak_bytes,
        "error": extended.peak_bytes / whole.peak_bytes - 1.0,
    }


def _row(trainer: Trainer, tokens: int) -> Row:
    if trainer is Trainer.SFT:
        return Documents(tokens=(tokens,), label_tokens=tokens // 2)
    if trainer is Trainer.KTO:
        return Judged(prompt=tokens // 4, completion=tokens - tokens // 4)
    prompt = 0 if trainer is Trainer.REWARD else tokens // 4
    return Pair(prompt=prompt, chosen=tokens - prompt, rejected=tokens // 2)


def _published(folders: dict[str, Path]) -> list[dict[str, Any]]:
    """Return published single-GPU peaks of today's kind of step beside traced ones."""
    if not _PUBLISHED.is_file():
        return []
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in _PUBLISHED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        fused = "fused linear" in str(row.get("loss_impl"))
        known = row.get("source") == "fms-acceleration" and row.get("model") in _MODELS
        alone = row.get("status") == "ok" and row.get("n_gpus") == 1
        wanted = row.get("method") == "full" or (fused and row.get("method") in ("lora", "qlora"))
        if not (known and alone and wanted and row.get("micro_batch")):
            continue
        key = (row["model"], row["method"], row["micro_batch"])
        if key not in found:
            step = _traced(folders[_MODELS[row["model"]]], row)
            found[key] = {
                "id": row["id"],
                "model": _MODELS[row["model"]],
                "method": row["method"],
                "batch": row["micro_batch"],
                "tokens": row["seq_len"],
                "published_gib": row["peak_gib"],
                "traced_gib": step.peak_bytes / _GIB,
                "error": step.peak_bytes / _GIB / row["peak_gib"] - 1.0,
            }
    return list(found.values())


def _traced(folder: Path, row: dict[str, Any]) -> TracedStep:
    options: dict[str, Any] = {
        "packing": True,
        "dtype": "bfloat16",
        "optim": "adamw_torch",
        "attn_implementation": "flash_attention_2",
    }
    if row["method"] != "full":
        targets = [name for name in row["lora_targets"] if name != "c_attn"]
        options |= {"use_peft": True, "lora_r": row["lora_r"], "lora_target_modules": targets}
    if row["method"] == "qlora":
        options["load_in_4bit"] = True
    rows = (Documents(tokens=(row["seq_len"],)),) * row["micro_batch"]
    return trace(
        TraceRequest(
            trainer=Trainer.SFT,
            model_dir=str(folder),
            options=options,
            rows=rows,
            accumulates=(row.get("grad_accum") or 1) > 1,
        )
    )


def _page(
    speed: dict[str, dict[str, float]],
    space: dict[str, Any],
    points: list[dict[str, Any]],
    fits: list[dict[str, Any]],
    published: list[dict[str, Any]],
) -> str:
    lines = [
        "# What tracing costs, and what it was held against",
        "",
        f"`{_COMMAND}` makes this file. Seconds are of one core, imports not counted.",
        "",
        "| model | first candidate | each further shape |",
        "|---|---|---|",
        *(
            f"| {name} | {s['first_s']:.2f} s | {s['further_s']:.2f} s |"
            for name, s in speed.items()
        ),
        "",
        f"The whole default space of the 8B model, {space['candidates']} candidates on rows of 100 "
        f"to 4096 tokens: {space['seconds']:.0f} s on {space['cores']} cores, traced as "
        f"`autotune predict` does; {space['core_s']:.0f} s of processor time together.",
        "",
        f"## Two small depths against the whole model: {len(points)} random candidates",
        "",
        "| model | trainer | batch x tokens | target | whole, GiB | error of the extended peak |",
        "|---|---|---|---|---|---|",
        *(
            f"| {p['model']} | {p['trainer']} | {p['batch']} x {p['tokens']} | {p['target']} "
            f"| {p['whole_bytes'] / _GIB:.2f} | {100 * p['error']:+.3f} % |"
            for p in points
        ),
        "",
        "## Batches of many sizes fitted to fifteen that were traced",
        "",
        f"{len(fits)} of 192 batches of the 8B model (1 to 32 rows of 128 to 4096 tokens, padded, "
        "without checkpointing, LoRA, packed), each also traced alone: worst error of the peak "
        f"{100 * max(abs(f['error']) for f in fits):.2f} %.",
        "",
        "## Published peaks of one A100 (fms-acceleration, torch's allocator)",
        "",
        "Rows whose step is of today's kind: a fused head (theirs with Triton norms and rotary "
        "embeddings, which TRL does not use), or a full fine-tuning whose peak is the optimizer's. "
        "Their libraries are of 2024.",
        "",
        "| model | method | batch x tokens | published, GiB | traced, GiB | error |",
        "|---|---|---|---|---|---|",
        *(
            f"| {p['model']} | {p['method']} | {p['batch']} x {p['tokens']} "
            f"| {p['published_gib']:.2f} | {p['traced_gib']:.2f} | {100 * p['error']:+.1f} % |"
            for p in published
        ),
    ]
    return "\n".join(lines) + "\n"

"""What people see: tables that fit the terminal, words that are short, plain when asked."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from autotune.cli.answer import print_result
from autotune.cli.live import LiveView, trials_table
from autotune.cli.measured import MeasuringView
from autotune.cli.row_progress import RowsView
from autotune.cli.words import describe, pass_of, peak_of, speed_of
from autotune.core.command import WEIGHTS, train_command
from autotune.core.outcome import Outcome
from autotune.emit import EMITTERS
from autotune.report import REPORTERS, compare
from tests.support.facts import GIB, MIB, candidate_of, trial_of
from tests.support.results import cpu_result, gpu_result

TRIALS = [
    trial_of(0, candidate_of(), role="baseline"),
    trial_of(1, candidate_of(packing="bfd_split", gradient_checkpointing="selective"), seconds=3.0),
    trial_of(
        2, candidate_of(padding_free=True), seconds=None, outcome=Outcome.OOM_DEVICE,
        needed_bytes=12 * GIB, reason="the device ran out of memory",
    ),
    trial_of(3, candidate_of(), seconds=None, outcome=Outcome.INTERRUPTED),
    trial_of(12, candidate_of(pad_to_multiple_of=64), role="confirmation", seconds=7000.0),
]  # fmt: skip


def drawn(thing: Any, width: int, **options: Any) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, **options).print(thing)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_fits_the_terminal_and_keeps_its_numbers(width: int) -> None:
    lines = drawn(trials_table(TRIALS, width), width)
    assert max(len(line) for line in lines) <= width
    text = " ".join(lines)
    for word in (
        "outcome",
        "peak",
        "pass",
        "oom_device",
        "interrupted",
        "> 12.00 GiB",
        "100.0 MiB",
    ):
        assert word in text, lines
    assert "…" not in text


def test_a_table_without_trials_is_only_its_head() -> None:
    assert len(drawn(trials_table([], 80), 80)) == 1


def test_no_color_is_honoured_on_a_terminal() -> None:
    # What rich makes of NO_COLOR when it is imported; a suite cannot set it afterwards.
    terminal = {"force_terminal": True, "color_system": "standard"}
    coloured = drawn(trials_table(TRIALS, 80), 80, no_color=False, **terminal)
    assert "\x1b[32m" in "".join(coloured)
    plain = drawn(trials_table(TRIALS, 80), 80, no_color=True, **terminal)
    assert "\x1b[3" not in "".join(plain)


def test_a_candidate_is_described_in_a_few_words() -> None:
    plain = describe(candidate_of(per_device_train_batch_size=4, max_length=512), 2)
    assert plain == "4x2 · len 512 · ckpt"
    full = candidate_of(
        padding_free=True, pad_to_multiple_of=8, gradient_checkpointing="none",
        activation_offloading=True,
    )  # fmt: skip
    assert describe(full) == "batch 8 · len 1024 · padding-free · pad 8 · no ckpt · offload"


def test_what_did_not_fit_shows_its_bound_and_no_speed() -> None:
    out = TRIALS[2]
    assert (peak_of(out), pass_of(out), speed_of(out)) == ("> 12.00 GiB", "-", "-")
    assert peak_of(TRIALS[0]) == "100.0 MiB"
    assert peak_of(trial_of(0, candidate_of(), peak_bytes=3 * MIB)) == "3.0 MiB"


def test_without_a_terminal_every_probe_is_a_plain_line() -> None:
    file = io.StringIO()
    view = LiveView(Console(file=file, width=60, soft_wrap=True))
    with view:
        view.stage("preparing")
        view.started(TRIALS[0].candidate, "baseline")
        view.tick(1.0)
        for trial in TRIALS:
            view.finished(trial)
    text = file.getvalue()
    assert "\x1b" not in text
    assert "preparing ..." in text
    assert "oom_device" in text
    assert "the device ran out of memory" in text
    assert "your config" in text


@pytest.mark.parametrize("result", [cpu_result(), gpu_result()], ids=["cpu", "gpu"])
@pytest.mark.parametrize("width", [60, 120])
def test_the_answers_last_line_is_the_command_that_trains(result: Any, width: int) -> None:
    file = io.StringIO()
    print_result(result, Console(file=file, width=width, highlight=False))
    lines = file.getvalue().rstrip().splitlines()
    assert lines[-1] == train_command(result, f"{result.out_dir}/best.yaml")
    assert lines[-1].startswith("trl sft --config ")
    assert ("--use_cpu true" in lines[-1]) == (result.device.kind == "cpu")
    assert any(line.startswith("best: ") for line in lines)


def test_a_model_without_weights_leaves_their_place_open_in_the_command() -> None:
    file = io.StringIO()
    result = gpu_result().model_copy(update={"lacks_weights": True})
    print_result(result, Console(file=file, width=200, highlight=False))
    before, last = file.getvalue().rstrip().splitlines()[-2:]
    assert "holds a config and no weights" in before
    assert last.endswith(f"--model_name_or_path {WEIGHTS}")


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        ({"trainable": 9}, "weights: 4.0 MiB in float32"),
        (
            {"trainable": 3, "dtype": "nf4+float32"},
            "weights: 4.0 MiB in nf4+float32 (3 of 9 are trained)",
        ),
        (  # BC08
            {"trainable": 9, "reference_bytes": 2 * MIB, "reference_dtype": "bfloat16"},
            "weights: policy 4.0 MiB in float32, reference model 2.0 MiB in bfloat16",
        ),
    ],
)
def test_the_answer_says_which_weights_are_held_and_trained(
    counted: dict[str, Any], said: str
) -> None:
    result = cpu_result()
    best = result.best_trial
    assert best is not None and best.report.measurement is not None
    held = {"total": 9, "bytes": 4 * MIB, "dtype": "float32", **counted}
    measured = best.report.measurement.model_copy(update={"parameters": held})
    report = best.report.model_copy(update={"measurement": measured})
    trials = [
        t if t is not best else best.model_copy(update={"report": report}) for t in result.trials
    ]
    file = io.StringIO()
    shown = result.model_copy(update={"trials": tuple(trials)})
    print_result(shown, Console(file=file, width=120, highlight=False))
    assert said in [line.strip() for line in file.getvalue().splitlines()]


def test_candidates_that_differ_in_the_reference_or_the_weights_read_differently() -> None:
    said = describe(
        candidate_of(
            precompute_ref_log_probs=True, peft="lora", quantization="4bit", dtype="bfloat16"
        )
    )
    assert said.endswith("ref precomputed · lora · 4bit · bfloat16")
    assert "ref" not in describe(candidate_of(dtype="float32"))
    some = candidate_of(peft="dora", lora_r=8, lora_target_modules="all-linear")
    assert describe(some).endswith("dora r8 all-linear")
    assert "r8" not in describe(candidate_of(peft="none", lora_r=8))


def test_the_answer_the_reports_and_the_emitted_file_say_one_speed() -> None:
    # 7,420 at first, 7,405 when winner and reference took turns
    result = gpu_result()
    file = io.StringIO()
    print_result(result, Console(file=file, width=200, highlight=False))
    answer = file.getvalue().partition("best: ")[2]
    comparison = compare(result, result, ())
    rate = next(row for row in comparison.rows if row.name == "throughput")
    assert 7405.0 == rate.baseline
    for text in (
        answer,
        REPORTERS["markdown"].render(result).partition("<details>")[0],
        REPORTERS["html"].render(result).partition("<table")[0],
        EMITTERS["trl-yaml"].render(result),
    ):
        assert "7,405" in text
        assert "7,420" not in text


def test_a_verification_shows_its_peak_and_claims_no_speed() -> None:
    # a longer look is not timed
    fits = trial_of(5, candidate_of(), role="search", peak_bytes=3 * MIB)
    looked = fits.model_copy(update={"role": "verification", "estimate": None})
    assert ("3.0 MiB", "-", "-") == (peak_of(looked), pass_of(looked), speed_of(looked))
    file = io.StringIO()
    LiveView(Console(file=file, width=200)).finished(looked)
    assert "peak 3.0 MiB" in file.getvalue()
    assert "tok/s" not in file.getvalue()


@pytest.mark.parametrize("view_of", [LiveView, MeasuringView, RowsView])
def test_on_a_terminal_what_runs_now_is_shown_and_what_is_over_is_not(view_of: Any) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with view_of(console) as view:
        view.stage("preparing")
        view.progress("read", 30, 60)
        assert "preparing" in shown(view)
        assert "reading rows 30 of 60" in shown(view)
        view.stage("tracing")
        view.started(candidate_of(max_length=512), "baseline")
        assert "reading rows" not in shown(view)
        assert ("len 512" in shown(view)) == (view_of is LiveView)
        assert ("measuring the config" in shown(view)) == (view_of is MeasuringView)


def shown(view: Any) -> str:
    return " ".join(drawn(view, 100))

"""DPO, Reward and KTO on real rows: tuned, emitted, trained by TRL; and what their probes find."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import DatasetSource, Job, Trainer
from autotune.core.measurement import Measurement, ProbeReport
from autotune.core.outcome import Outcome
from autotune.core.result import read_result
from autotune.probe.prepared import Prepared
from autotune.probe.protocol import PrepareSpec, ProbeSpec, RowPlan, Verification
from autotune.probe.runner import Runner
from tests.support.cli import DATA
from tests.support.models import tiny_model, with_code
from tests.support.warm import Shared, command_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder is not beside the clone"),
]

FILES = {
    Trainer.SFT: "alpaca_en_demo.json",
    Trainer.DPO: "dpo_en_demo.json",
    Trainer.REWARD: "dpo_en_demo.json",
    Trainer.KTO: "kto_en_demo.json",
}
PREFERENCE = (Trainer.DPO, Trainer.REWARD, Trainer.KTO)
#: Rows shorter than this are what Reward keeps; the others are cut to it.
LENGTH = 200
#: bitsandbytes' CPU kernels want whole blocks of 64 weights.
BLOCKS = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64}
PLAN = RowPlan(worst=((0, 1), (2, 3)), paired=tuple(range(64)), block=tuple(range(64)), batch=2)


class Bench:
    """Probe candidates of one small model, rows prepared once for each trainer."""

    def __init__(self, runner: Runner, folder: Path) -> None:
        self._runner, self._folder = runner, folder
        self._prepared: dict[Trainer, Prepared] = {}
        self.model = tiny_model(folder / "model", **BLOCKS)

    def prepared(self, trainer: Trainer) -> Prepared:
        if trainer not in self._prepared:
            job = Job(
                trainer=trainer,
                model=str(self.model),
                dataset=DatasetSource(path=str(DATA / FILES[trainer])),
                options={"per_device_train_batch_size": 2, "max_length": LENGTH, "bf16": False},
            )
            spec = PrepareSpec(
                job=job,
                device="cpu",
                out_dir=str(self._folder / trainer.value),
                cache_dir=str(self._folder / "cache"),
            )
            self._prepared[trainer] = self._runner.prepare(spec, deadline_s=300)
        return self._prepared[trainer]

    def probe(self, trainer: Trainer, model: Path | None = None, **options: Any) -> ProbeReport:
        return self._run(trainer, options, model_dir=str(model or self.model), memory_only=True)

    def verify(self, trainer: Trainer, **options: Any) -> ProbeReport:
        rows_dir = self.prepared(trainer).profile.rows_dir
        look = Verification(updates=12, save=True, eval_rows_dir=rows_dir, eval_rows=(0, 1, 2, 3))
        return self._run(trainer, options, verification=look)

    def _run(self, trainer: Trainer, options: dict[str, Any], **more: Any) -> ProbeReport:
        prepared = self.prepared(trainer)
        spec = ProbeSpec(
            trainer=trainer,
            model_dir=str(self.model),
            weights="random",
            options={**prepared.options, **options},
            device="cpu",
            rows_dir=prepared.profile.rows_dir,
            plan=PLAN,
        )
        spec = spec.model_copy(update=more)
        return self._runner.probe(spec, name="probe", deadline_s=300)


@pytest.fixture(scope="module")
def bench(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with Runner(shared, folder) as runner:
        yield Bench(runner, folder)


def fitting(report: ProbeReport) -> Measurement:
    assert report.ending.outcome is Outcome.FITS, report.ending.detail or report.ending.reason
    assert report.measurement is not None
    return report.measurement


@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.KTO])
def test_keywords_of_transformers_checkpointing_do_not_outlive_a_pass_over_the_reference(
    bench: Bench, trainer: Trainer
) -> None:
    # the claim of a rule (knobs/rules_own.py)
    every_other = {"gradient_checkpointing_kwargs": {"every_n_layers": 2}}
    refused = bench.probe(trainer, **every_other).ending
    assert Outcome.INVALID is refused.outcome
    assert "every_n_layers" in refused.reason
    fitting(bench.probe(trainer, **every_other, precompute_ref_log_probs=True))


#: Reward leaves out rows that are longer, and the shortest has 92 tokens.
CUT = {Trainer.DPO: 48, Trainer.REWARD: 128, Trainer.KTO: 48}
#: Adapters as people's configs have them, over weights of one and of another width.
ADAPTERS = {
    Trainer.DPO: (),
    Trainer.REWARD: (
        *("use_peft=true", "dtype=bfloat16", "load_in_4bit=true"),
        *("bnb_4bit_quant_type=fp4", "use_bnb_nested_quant=true"),
    ),
    Trainer.KTO: (
        *("use_peft=true", "dtype=bfloat16", "load_in_8bit=true", "use_rslora=true"),
        *("lora_r=4", "lora_target_modules=all-linear", "lora_dropout=0.0"),
    ),
}
#: What `trl` runs for these trainers, one after the other in one process: importing takes longest.
TRAINS = """
import json, runpy, sys
import transformers
from autotune.training.parameters import count_parameters

train, counted = transformers.Trainer.train, []
def counting(self, *args, **kwargs):
    counted.append(count_parameters(self.model, getattr(self, "ref_model", None)))
    return train(self, *args, **kwargs)
transformers.Trainer.train = counting

config = transformers.AutoConfig.from_pretrained("model")
transformers.AutoModelForCausalLM.from_config(config).save_pretrained("model")
for trainer in sys.argv[1:]:
    sys.argv = ["trl", "--config", f"{trainer}/best.yaml", "--use_cpu", "true", "--bf16", "false",
                "--max_steps", "1", "--output_dir", f"trained-{trainer}", "--report_to", "none"]
    runpy.run_module(f"trl.scripts.{trainer}", run_name="__main__")
print("counted", json.dumps(counted))
"""


def test_real_rows_are_tuned_and_what_was_measured_is_what_the_emitted_yaml_trains(
    shared: Shared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny_model(tmp_path / "model", **BLOCKS)
    command = command_of(shared, monkeypatch, capsys, tmp_path)
    measured = []
    for trainer in PREFERENCE:
        own = (f"max_length={CUT[trainer]}", "per_device_train_batch_size=2", *ADAPTERS[trainer])
        said = command(
            *("run", "--trainer", trainer.value, "--model", "model", "--out", trainer.value),
            *("--dataset", str(DATA / FILES[trainer]), "--memory", "2GiB"),
            *("--trials", "2" if trainer is Trainer.DPO else "1"),  # one search of the three
            *(word for option in ("bf16=false", *own) for word in ("--set", option)),
        )
        assert said.code == 0, said.err[-3000:]
        best = read_result(tmp_path / trainer.value).best_trial
        assert best is not None and best.estimate is not None
        assert best.estimate.label_tokens_per_s > 0
        assert best.report.measurement is not None
        measured.append(best.report.measurement.parameters)
    trained = subprocess.run(
        [sys.executable, "-c", TRAINS, *(trainer.value for trainer in PREFERENCE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert trained.returncode == 0, trained.stdout[-2000:] + trained.stderr[-3000:]
    assert measured == json.loads(trained.stdout.rpartition("counted ")[2])
    for trainer in PREFERENCE:
        weights = "adapter_model" if ADAPTERS[trainer] else "model"
        assert (tmp_path / f"trained-{trainer.value}" / f"{weights}.safetensors").is_file()
    emitted = (tmp_path / "reward" / "best.yaml").read_text("utf-8")
    assert "(not set) -> SEQ_CLS   [what adapters of a reward model need]" in emitted


@pytest.mark.parametrize("trainer", PREFERENCE)
def test_a_verification_saves_and_evaluates(trainer: Trainer, bench: Bench) -> None:
    measured = fitting(bench.verify(trainer))
    assert (True, True) == (measured.saved, measured.evaluated)


def test_dpo_holds_a_reference_of_the_same_dtype(bench: Bench) -> None:
    measured = fitting(bench.probe(Trainer.DPO, dtype="bfloat16"))
    found = measured.parameters
    assert found["bytes"] == found["reference_bytes"] == 2 * found["total"]
    assert ("bfloat16", "bfloat16") == (found["dtype"], found["reference_dtype"])
    assert measured.effective["reference_model"]
    assert measured.precompute is None


@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.KTO])
def test_precomputing_is_run_and_counted_apart(trainer: Trainer, bench: Bench) -> None:
    measured = fitting(bench.verify(trainer, precompute_ref_log_probs=True))
    assert measured.evaluated
    assert 0 == measured.parameters["reference_bytes"]
    assert measured.precompute is not None and measured.precompute.rows > 0
    assert measured.precompute.seconds > 0 < (measured.precompute.peaks.process_bytes or 0)
    with_reference = fitting(bench.probe(trainer))
    without = fitting(bench.probe(trainer, precompute_ref_log_probs=True))
    saved = (with_reference.peaks.allocated_bytes or 0) - (without.peaks.allocated_bytes or 0)
    assert saved >= with_reference.parameters["reference_bytes"]


def test_dpo_with_lora_holds_no_reference(bench: Bench) -> None:
    measured = fitting(bench.probe(Trainer.DPO, use_peft=True))
    assert 0 == measured.parameters["reference_bytes"]
    assert not measured.effective["reference_model"]


def test_an_option_trl_ignores_is_read_back_as_off_and_its_warning_forwarded(bench: Bench) -> None:
    measured = fitting(bench.probe(Trainer.DPO, padding_free=True))
    assert measured.effective["padding_free"] is False
    assert any("`padding_free=True` is temporarily unavailable" in w for w in measured.warnings)


def test_shapes_are_those_of_the_batches_trl_made(bench: Bench) -> None:
    pairs = fitting(bench.probe(Trainer.DPO)).memory_steps[0]
    assert (4, LENGTH, 2) == (pairs.rows, pairs.width, pairs.sequences)
    assert 0 < pairs.label_tokens < pairs.useful_tokens <= pairs.padded_tokens
    single = fitting(bench.probe(Trainer.KTO)).memory_steps[0]
    assert (2, 2) == (single.rows, single.sequences)
    reward = fitting(bench.probe(Trainer.REWARD))
    assert max(reward.worst_tokens) <= LENGTH, "longer rows are left out, not cut"
    assert reward.memory_steps[0].label_tokens == reward.memory_steps[0].useful_tokens


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, "float32"),
        ({"use_dora": True}, "float32"),
        ({"use_rslora": True}, "float32"),
        ({"load_in_4bit": True}, "nf4"),
        ({"load_in_8bit": True}, "int8"),
    ],
)
def test_adapters_and_quantised_bases_train(
    options: dict[str, Any], dtype: str, bench: Bench
) -> None:
    measured = fitting(bench.verify(Trainer.SFT, use_peft=True, **options))
    assert dtype in measured.parameters["dtype"]
    assert measured.parameters["trainable"] < measured.parameters["total"] / 20
    assert measured.trained_modules and not measured.unreached_modules


@pytest.mark.parametrize("kwargs", [None, {"use_reentrant": True}, {"use_reentrant": False}])
def test_every_kind_of_checkpointing_reaches_the_adapter(
    kwargs: dict[str, bool] | None, bench: Bench
) -> None:
    measured = fitting(
        bench.probe(Trainer.SFT, use_peft=True, gradient_checkpointing_kwargs=kwargs)
    )
    assert bool((kwargs or {}).get("use_reentrant")) == measured.effective["use_reentrant"]
    assert not measured.unreached_modules


#: A model that does nothing where transformers asks for gradients of its inputs.
DEAF = """
from transformers import Qwen3ForCausalLM

class DeafForCausalLM(Qwen3ForCausalLM):
    def enable_input_require_grads(self):
        pass
"""


def test_an_adapter_no_gradient_reaches_is_invalid(bench: Bench, tmp_path: Path) -> None:
    report = bench.probe(
        Trainer.SFT,
        with_code(tiny_model(tmp_path / "deaf", **BLOCKS), DEAF, "DeafForCausalLM"),
        use_peft=True,
        trust_remote_code=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
    )
    assert report.ending.outcome is Outcome.INVALID
    assert "no gradient reached the adapter" in report.ending.reason
    assert "use_reentrant" in report.ending.reason

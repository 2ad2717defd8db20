"""No driver is touched before the fork, and a process sees its device before it imports anything.

On machines whose torch is made to look like a build for GPUs, with packages that ask every device
they see when they are imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.core.job import DatasetSource, Job, Trainer
from autotune.core.outcome import Outcome
from autotune.probe.cold import ColdLauncher
from autotune.probe.finished import Finished
from autotune.probe.launch import open_launcher
from autotune.probe.protocol import PrepareSpec, ProbeSpec, Request, RowPlan, TraceSpec
from autotune.probe.runner import Runner
from autotune.probe.warm import WarmServer
from autotune.testing.fake_torch_build import ASKS_EVERY_DEVICE, calls_of, environment_of
from tests.support.facts import lengths_of, spec_of
from tests.support.rows import write_job

pytestmark = pytest.mark.integration

BITSANDBYTES = {"bitsandbytes": ASKS_EVERY_DEVICE}
TOKENS = [10 + 7 * (row % 3) for row in range(6)]
SECOND = "GPU-bbbbbbbb-0000"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    return folder


def probed(
    launcher: Any, folder: Path, device: str = "cuda:1", uuid: str | None = None
) -> Finished:
    with Runner(launcher, folder) as runner:
        spec = spec_of(lengths_of([3]), device=device).model_copy(update={"device_uuid": uuid})
        return runner.run(Request(spec=spec), name="0000", deadline_s=120.0)


def seen(folder: Path, name: str = "CUDA_VISIBLE_DEVICES") -> set[str | None]:
    """Return what was visible whenever a device was asked."""
    calls = calls_of(folder)
    assert "init" in [call["call"] for call in calls]
    return {call["visible"].get(name) for call in calls}


def test_the_server_stays_warm_and_a_probe_opens_the_one_right_device(
    machine: Path, tmp_path: Path
) -> None:
    # xlstm is imported by the code of the model of that name, which a server imports in advance.
    packages = {"bitsandbytes": ASKS_EVERY_DEVICE, "xlstm": ASKS_EVERY_DEVICE}
    launcher, why = open_launcher(tmp_path, environment_of(machine, packages=packages))
    assert why == ""
    assert isinstance(launcher, WarmServer)
    launcher.preload("xlstm")
    launcher.preload("llama")
    assert calls_of(machine) == [], "nothing is opened before the fork"
    probed(launcher, tmp_path, uuid=SECOND)
    assert seen(machine) == {SECOND}
    assert launcher.pid not in [call["pid"] for call in calls_of(machine)]


def test_a_cold_probe_chooses_its_device_before_anything_is_imported(
    machine: Path, tmp_path: Path
) -> None:
    probed(ColdLauncher(environment_of(machine, packages=BITSANDBYTES)), tmp_path)
    assert "properties of 0" in [call["call"] for call in calls_of(machine)], "as it is imported"
    assert seen(machine) == {"1"}


def test_a_probe_on_the_cpu_and_a_tracer_open_no_device(machine: Path, tmp_path: Path) -> None:
    launcher = WarmServer(tmp_path, environment_of(machine, packages=BITSANDBYTES))
    with Runner(launcher, tmp_path) as runner:
        cpu = spec_of(lengths_of([3]), device="cpu")
        for spec in (cpu, TraceSpec(requests=(), seconds=1.0)):
            runner.run(Request(spec=spec), name="0000", deadline_s=120.0)
    assert calls_of(machine) == []


def test_preparation_looks_at_all_devices_from_a_copy_and_then_sees_the_one_asked_for(
    machine: Path, tmp_path: Path
) -> None:
    job = Job(model="nowhere", dataset=DatasetSource(path="nowhere"), trainer=Trainer.SFT)
    spec = PrepareSpec(job=job, device="cuda:1", out_dir=str(tmp_path), cache_dir=str(tmp_path))
    with Runner(ColdLauncher(environment_of(machine, packages=BITSANDBYTES)), tmp_path) as runner:
        runner.run(Request(spec=spec), name="prepare", deadline_s=120.0)
    by_process: dict[int, set[str | None]] = {}
    for call in calls_of(machine):
        seen_there = by_process.setdefault(call["pid"], set())
        seen_there.add(call["visible"].get("CUDA_VISIBLE_DEVICES"))
    assert list(by_process.values()) == [{None}, {SECOND}]


@pytest.mark.parametrize("launch", ["warm", "cold"])
def test_on_rocm_the_list_hip_reads_names_the_device_by_its_place(
    launch: str, machine: Path, tmp_path: Path
) -> None:
    # Without amdsmi torch counts devices through the runtime, which opens them all.
    four = ("a", "b", "c", "d")
    environment = environment_of(
        machine, uuids=four, build="hip", counted=False, packages=BITSANDBYTES
    )
    environment |= {"HIP_VISIBLE_DEVICES": "3,2"}
    launcher: Any = (
        WarmServer(tmp_path, environment) if launch == "warm" else ColdLauncher(environment)
    )
    if isinstance(launcher, WarmServer):
        assert launcher.wait_ready() == ""
        assert calls_of(machine) == []
    probed(launcher, tmp_path, uuid="GPU-as-torch-shows-it")
    assert seen(machine, "HIP_VISIBLE_DEVICES") == {"2"}


@pytest.mark.parametrize("caught", [False, True], ids=["raised", "caught"])
def test_an_optional_package_nobody_knows_is_left_to_the_children(
    caught: bool, machine: Path, tmp_path: Path
) -> None:
    # wandb stands for any package that libraries import because it is there.
    asks = "import torch\ntorch.cuda.get_device_capability()\n"
    if caught:
        asks = "import torch\ntry:\n    torch.cuda.init()\nexcept BaseException:\n    pass\n"
    environment = environment_of(machine, packages={"wandb": asks})
    launcher, why = open_launcher(tmp_path, environment)
    with Runner(launcher, tmp_path):
        assert why == ""
        assert isinstance(launcher, WarmServer)
        assert psutil.Process(launcher.pid).cmdline()[-1] == "wandb", "it started without it"
        assert calls_of(machine) == []


#: What needs bitsandbytes, and through which library it gets there.
QUANTISED: dict[str, dict[str, Any]] = {
    "4-bit weights (transformers, peft)": {
        **{"load_in_4bit": True, "use_peft": True, "lora_target_modules": "all-linear"},
        "gradient_checkpointing": False,
    },
    "an 8-bit optimizer (transformers)": {"optim": "adamw_8bit"},
}


def test_a_warm_child_has_what_its_server_left_out(machine: Path, tmp_path: Path) -> None:
    # A build for GPUs on a machine without one: bitsandbytes computes on the CPU.
    launcher, why = open_launcher(tmp_path, environment_of(machine, uuids=()))
    assert why == ""
    model_dir, rows_dir = write_job(tmp_path, TOKENS)
    rows = tuple(range(len(TOKENS)))
    plain = {"per_device_train_batch_size": 2, "bf16": False, "max_length": 64}
    with Runner(launcher, tmp_path) as runner:
        for name, options in QUANTISED.items():
            spec = ProbeSpec(
                trainer=Trainer.SFT,
                model_dir=model_dir,
                weights="random",
                options={**plain, **options},
                device="cpu",
                rows_dir=rows_dir,
                plan=RowPlan(worst=((0, 1),), paired=rows, block=rows),
                memory_only=True,
            )
            report = runner.probe(spec, name="probe", deadline_s=120.0)
            assert report.ending.outcome is Outcome.FITS, (name, report.ending)
            assert report.measurement is not None
    assert calls_of(machine) == []


def test_rates_are_timed_by_waiting_for_the_device_they_are_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from autotune.probe.child.rates import _Clock

    waited: list[Any] = []
    monkeypatch.setattr("torch.cuda.synchronize", lambda device=None: waited.append(device))
    _Clock("cuda:1").seconds(lambda: None)
    assert set(waited) == {"cuda:1"}

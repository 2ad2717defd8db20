"""A driver that refuses is said by every command and never becomes a silent CPU run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import autotune
from tests.support.nvml import library_folder

pytestmark = pytest.mark.integration

WORDS = "NVML: RM has detected an NVML/RM version mismatch."
REMEDY = "reboot, or load the driver anew"


@pytest.fixture(scope="module")
def mismatch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = library_folder(tmp_path_factory.mktemp("library"))
    # No card is hidden, and none is there: torch sees none whatever it was built for.
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_INIT": "18"}


def test_a_run_stops_with_the_drivers_words_and_the_remedy(
    tmp_path: Path, mismatch: dict[str, str]
) -> None:
    """https://github.com/mozilla/translations/issues/1167"""
    done = autotune("run", "--out", "out", cwd=tmp_path, env=mismatch)
    said = " ".join(done.stderr.split())
    assert 4 == done.returncode, done.stderr
    assert WORDS.rstrip(".") in said
    assert REMEDY in said
    assert "--device cpu" in said
    assert not list(tmp_path.glob("out/best*"))


def test_the_cpu_asked_for_is_measured_and_the_refusal_is_said(
    tmp_path: Path, mismatch: dict[str, str]
) -> None:
    done = autotune("run", "--device", "cpu", "--dry-run", cwd=tmp_path, env=mismatch)
    assert 0 == done.returncode, done.stderr
    said = " ".join(done.stdout.split())
    assert "the NVIDIA driver refuses: NVML: RM has detected" in said
    assert REMEDY in said


def test_a_prediction_for_another_device_asks_nothing_of_this_one(
    tmp_path: Path, mismatch: dict[str, str]
) -> None:
    done = autotune("predict", "--gpu", "rtx-4090", "--timeout", "5s", cwd=tmp_path, env=mismatch)
    assert done.returncode in (0, 4), done.stderr
    assert WORDS.rstrip(".") not in " ".join(done.stderr.split())


def test_the_doctor_says_it_and_still_examines_the_rest(
    tmp_path: Path, mismatch: dict[str, str]
) -> None:
    done = autotune("doctor", cwd=tmp_path, env=mismatch)
    assert 0 == done.returncode, done.stderr
    said = " ".join(done.stdout.split())
    assert f"no NVIDIA driver: {WORDS.rstrip('.')}. The driver was updated" in said
    assert "ok warm probes" in said


def test_a_gpu_that_a_torch_without_cuda_cannot_see_is_said(
    tmp_path: Path, mismatch: dict[str, str]
) -> None:
    if not _without_cuda():
        pytest.skip("torch was built for CUDA here")
    done = autotune("run", "--dry-run", cwd=tmp_path, env={**mismatch, "FAKE_NVML_INIT": ""})
    assert 0 == done.returncode, done.stderr
    said = " ".join(done.stdout.split())
    assert "The driver has 1 GPU and torch sees none: this torch was installed without CUDA" in said
    assert "Measuring on the CPU instead." in said


def _without_cuda() -> bool:
    import torch

    return torch.version.cuda is None

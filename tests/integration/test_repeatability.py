"""Measuring again gives the same number and leaves nothing behind; the long form is a bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.core.job import Trainer
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome
from autotune.probe.protocol import ProbeSpec, RowPlan
from autotune.probe.runner import Runner
from tests.support.leftovers import Leftovers
from tests.support.rows import write_job
from tests.support.warm import Shared

pytestmark = pytest.mark.integration
MIB = 2**20
TOKENS = [10 + 7 * (row % 9) for row in range(16)]


@dataclass
class Place:
    """A runner, and what its processes may leave something in."""

    runner: Runner
    folder: Path
    temporary: Path
    model_dir: str
    rows_dir: str

    def probe(self, **options: object) -> ProbeReport:
        cap = options.pop("cap_bytes", None)
        plain = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "bf16": False}
        rows = tuple(range(len(TOKENS)))
        spec = ProbeSpec(
            trainer=Trainer.SFT,
            model_dir=self.model_dir,
            weights="random",
            options={**plain, "max_length": 64, **options},
            device="cpu",
            rows_dir=self.rows_dir,
            plan=RowPlan(worst=((8, 7),), paired=rows, block=rows),
            cap_bytes=cap,  # type: ignore[arg-type]
            memory_only=True,
        )
        return self.runner.probe(spec, name="probe", deadline_s=600.0)

    def left(self) -> Leftovers:
        return Leftovers.look(self.temporary, self.folder)


@pytest.fixture(scope="module")
def place(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("repeat")
    return Place(Runner(shared, folder), folder, shared.temporary, *write_job(folder, TOKENS))


@pytest.mark.parametrize(
    "options",
    [{"gradient_checkpointing": False}, {"packing": True}],
    ids=["no checkpointing", "packed"],
)
def test_the_allocated_peak_of_three_repeats_agrees_to_a_thousandth(
    place: Place, options: dict[str, object]
) -> None:
    peaks = []
    for _ in range(3):
        report = place.probe(**options)
        assert report.measurement is not None, report.ending
        assert report.measurement.peaks.allocated_bytes is not None
        peaks.append(report.measurement.peaks.allocated_bytes)
    assert max(peaks) - min(peaks) <= 1e-3 * min(peaks)


def test_ten_probes_leave_no_process_no_descriptor_and_no_file(place: Place) -> None:
    place.probe()  # what is opened once and kept is opened now
    before = place.left()
    # Every third runs out of memory and every third is refused: those end differently.
    changes: list[dict[str, object]] = [{}, {"cap_bytes": MIB}, {"padding_free": True}]
    seen = [place.probe(**changes[probe % 3]).ending.outcome for probe in range(10)]
    assert [Outcome.FITS, Outcome.OOM_HOST, Outcome.INVALID] * 3 + [Outcome.FITS] == seen
    assert before == place.left()

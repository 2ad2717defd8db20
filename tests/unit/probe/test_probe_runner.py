"""What the parent adds to a child's answer: the device's state before it, the phase it was in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.core.outcome import Outcome, Phase
from autotune.probe.documents import REPLY_FILE, write_document
from autotune.probe.phase_file import PhaseFile
from autotune.probe.protocol import Failure, Reply
from autotune.probe.runner import Runner
from autotune.testing.fake_nvml import UUID, normal
from tests.support.facts import GIB, GPU, lengths_of, spec_of

#: Beyond the largest process id of Linux, so that no signal reaches anybody.
NOBODY = 2**22 + 1


class Ended:
    """A process that has ended."""

    pid = NOBODY

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self, wait_s: float) -> int | None:
        return self.code


class Playing:
    """A launcher whose processes tell a phase, leave this answer and end."""

    def __init__(self, reply: Reply | None, code: int = 1) -> None:
        self.reply, self.code = reply, code

    def launch(self, request: Path, env: Mapping[str, str] | None = None) -> Ended:
        PhaseFile(request.parent).tell(Phase.SAVE, 40)
        if self.reply is not None:
            write_document(request.parent / REPLY_FILE, self.reply)
        return Ended(self.code)

    def preload(self, model_type: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


FULL = Reply(
    failure=Failure(type_name="torch.OutOfMemoryError", message="full", phase=Phase.STEADY)
)
FOUND = GPU.model_copy(update={"uuid": UUID, "free_bytes": 15 * GIB})
SPEC = spec_of(lengths_of([3]), device="cuda:0", cap_bytes=12 * GIB)


def test_memory_others_took_since_the_search_began_is_not_the_candidates_fault(
    tmp_path: Path,
) -> None:
    # BC21: 8 GiB more than before the search never come back.
    driver = normal(held={1: GIB})
    with Runner(Playing(FULL), tmp_path, driver=driver) as runner:
        runner.watch(FOUND, wait=lambda _: None)
        quiet = runner.probe(SPEC, name="quiet", deadline_s=60.0)
        driver.devices[f"GPU-{UUID}"].held[2] = 8 * GIB
        crowded = runner.probe(SPEC, name="crowded", deadline_s=60.0)
    assert quiet.ending.outcome is Outcome.OOM_DEVICE
    assert crowded.ending.outcome is Outcome.POLLUTED
    assert "8.00 GiB of the device were still held" in crowded.ending.reason


def test_a_killed_process_is_placed_by_what_it_told_last(tmp_path: Path) -> None:
    with Runner(Playing(None, -9), tmp_path, driver=normal()) as runner:
        ending = runner.probe(SPEC, name="killed", deadline_s=60.0).ending
    assert (Outcome.OOM_HOST, Phase.SAVE) == (ending.outcome, ending.phase)
    assert "after 40 micro-steps" in ending.reason

"""What a measuring process could leave behind: processes, open files, temporary files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Leftovers:
    """One look at this process, everything it started, and a folder for temporary files.

    Args:
        processes: processes started from here that still live, zombies included.
        files: open file descriptors of this process and of those.
        temporary: entries below the folder for temporary files.
        probes: folders of finished probes.
    """

    processes: int
    files: int
    temporary: int
    probes: int

    @classmethod
    def look(cls, temporary: Path, work_dir: Path) -> Leftovers:
        """Count now.

        Args:
            temporary: ``TMPDIR`` of the measuring processes.
            work_dir: the runner's folder.
        """
        me = psutil.Process()
        family = me.children(recursive=True)
        return cls(
            processes=len(family),
            files=sum(p.num_fds() for p in (me, *family)),
            temporary=sum(1 for _ in temporary.rglob("*")),
            probes=sum(1 for _ in (work_dir / "probes").glob("*")),
        )

"""Chooses how measuring processes are started here: forked from a warm server, or from scratch.

What happens to a started process (deadline, kill, reply) is the runner's business.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.probe.cold import ColdLauncher
from autotune.probe.launcher import Launcher
from autotune.probe.warm import WarmServer


def open_launcher(
    log_dir: Path, env: Mapping[str, str] | None, tick: Callable[[float], None] | None = None
) -> tuple[Launcher, str]:
    """Start the fastest way of launching that is safe here.

    Args:
        log_dir: folder of the server's log.
        env: variables beside the user's own environment.
        tick: called while waiting, with the seconds passed.

    Returns:
        The launcher, and why it is not a warm server (empty when it is).
    """
    if not sys.platform.startswith("linux"):
        return ColdLauncher(env), "warm probes need Linux; every probe starts from scratch"
    server = WarmServer(log_dir, env)
    try:
        unsafe = server.wait_ready(tick=tick)
    except BaseException:
        server.close()
        raise
    if not unsafe:
        return server, ""
    server.close()
    return ColdLauncher(env), f"every probe starts from scratch, since {unsafe}"

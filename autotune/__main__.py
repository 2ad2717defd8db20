"""``python -m autotune`` and the installed ``autotune`` are the command line.

Loads it with Ctrl-C already answered, so that one pressed at once shows no traceback.
"""

from __future__ import annotations

from autotune.cli.signals import end_at_ctrl_c


def main() -> None:
    """Load the command line, run it and exit with the right code."""
    end_at_ctrl_c()
    from autotune.cli.app import main as command_line

    try:
        command_line()
    finally:
        end_at_ctrl_c()


if __name__ == "__main__":
    main()

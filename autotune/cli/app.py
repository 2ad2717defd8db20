"""The command line: one file per verb, one outermost frame that turns errors into exit codes.

Imports nothing heavy: ``autotune --help`` must answer at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from autotune.core.about import __version__
from autotune.core.errors import AutotuneError, disk_full
from autotune.core.secrets import hide_text

app = typer.Typer(
    name="autotune",
    help="Find the fastest TRL training configuration that is safe for the whole run.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _register() -> None:
    from autotune.cli.commands import (
        compare,
        doctor,
        emit,
        predict,
        probe,
        profile,
        report,
        run,
        spaces,
    )

    run.register(app)
    doctor.register(app)
    emit.register(app)
    report.register(app)
    compare.register(app)
    predict.register(app)
    probe.register(app)
    profile.register(app)
    spaces.register(app)


_register()


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_say_version
        ),
    ] = False,
) -> None:
    """Declare what concerns no command; the option answers by itself."""


def main() -> None:
    """Run the command line and exit with the right code."""
    from autotune.cli.arguments import check_arguments
    from autotune.cli.console import fill_closed_streams, say_error, to_nobody
    from autotune.cli.signals import (
        SIGINT_EXIT_CODE,
        SIGPIPE_EXIT_CODE,
        SIGTERM_EXIT_CODE,
        Terminated,
        interrupt_at_ctrl_c,
    )

    try:
        interrupt_at_ctrl_c()
        fill_closed_streams()
        check_arguments(sys.argv[1:], os.environ)
        _call(sys.argv[1:] or ["--help"])
        code = 0
    except AutotuneError as error:
        say_error(error.message, error.hint)
        code = error.exit_code
    except KeyboardInterrupt as error:
        say_error("stopped.", None)
        code = SIGTERM_EXIT_CODE if isinstance(error, Terminated) else SIGINT_EXIT_CODE
    except BrokenPipeError:
        to_nobody()
        code = SIGPIPE_EXIT_CODE
    except Exception as error:  # noqa: BLE001  (outermost frame of the command line)
        code = _usage_or_failure(error)
    sys.exit(code)


def _call(arguments: list[str]) -> None:
    """Run a command; unlike calling the app, this lets Ctrl-C and SIGTERM through as they are."""
    command = typer.main.get_command(app)
    with command.make_context("autotune", arguments) as context:
        command.invoke(context)


def _usage_or_failure(error: Exception) -> int:
    """Return the exit code of what typer or a bug raised, after saying it in one line."""
    import traceback

    from typer.exceptions import Abort, Exit, TyperException

    from autotune.cli.console import say_error

    if isinstance(error, Exit):
        return error.exit_code
    if isinstance(error, TyperException):
        text = error.format_message().rstrip(".")
        say_error(f"{text}.", "`autotune --help` and `autotune COMMAND --help` list the options.")
        return 2
    if isinstance(error, Abort):
        say_error("stopped.", None)
        return 130
    full = disk_full(error)
    if full is not None:
        say_error(full.message, full.hint)
        return full.exit_code
    if os.environ.get("AUTOTUNE_DEBUG"):
        traceback.print_exc()
    say_error(
        hide_text(f"autotune failed: {type(error).__name__}: {error}"),
        "This is a bug in autotune; AUTOTUNE_DEBUG=1 shows the traceback.",
    )
    return 5


if __name__ == "__main__":
    main()

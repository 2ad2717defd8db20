"""The length report in a terminal, a narrow one, and a pipe."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from autotune.cli.lengths_view import print_lengths
from autotune.cli.row_progress import RowProgress, RowsView
from autotune.core.job import Trainer
from autotune.core.length_report import LengthReport
from tests.support.lengths import length_report


def shown(report: LengthReport, width: int, **console: bool) -> str:
    text = StringIO()
    print_lengths(report, Console(file=text, width=width, highlight=False, **console))  # type: ignore[arg-type]
    return text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_nothing_is_cut_off_or_wrapped_in_the_tables(width: int) -> None:
    text = shown(length_report(), width)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    for heading in ("kept after a cut", "padding among", "packed", "tokens in a row"):
        assert heading in text


def test_every_number_of_the_report_is_there() -> None:
    report = length_report()
    text = shown(report, 100)
    for row in report.lengths:
        assert f"{row.max_length} " in text
        assert f"{row.rows_cut:,}" in text
        for packed in row.packing:
            assert f"{packed.rows:,}" in text
    assert "TRL" in text and "advised" in text
    assert f"longest {report.profile.quantiles['1.0']:,}" in text


def test_what_trl_does_now_is_said_before_the_advice_and_both_before_the_numbers() -> None:
    text = shown(length_report(), 200)
    places = [text.index(word) for word in ("TRL's default of 1024", "Take max_length", "rows  ")]
    assert places == sorted(places)


def test_a_pipe_and_no_color_get_no_colours() -> None:
    assert "\x1b[" not in shown(length_report(), 80)
    # What rich makes of NO_COLOR when it is imported; a suite cannot set it afterwards.
    coloured = shown(length_report(), 80, force_terminal=True, no_color=True)
    assert "\x1b[3" not in coloured.replace("\x1b[3m", "")  # italic is no colour


def test_trainers_that_do_not_pack_get_no_table_of_packing() -> None:
    assert "strategy" not in shown(length_report(Trainer.DPO), 80)


def test_rows_done_are_a_bar_on_a_terminal_and_at_most_a_line_now_and_then_elsewhere() -> None:
    text = StringIO()
    console = Console(file=text, width=80)
    rows = RowProgress(console)
    assert [] == rows.drawn()
    rows.note("tokenise", 5, 10, said=True)
    assert "" == text.getvalue()  # nothing has lasted long enough to be worth a line
    console.print(*rows.drawn())
    assert "tokenising rows 5 of 10" in text.getvalue()
    with RowsView(console) as view:
        view.stage("preparing")
        view.progress("tokenise", 1, 10)
    assert text.getvalue().endswith("preparing ...\n")

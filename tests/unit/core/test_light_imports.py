from __future__ import annotations

import subprocess
import sys


def test_the_api_and_the_command_line_import_no_heavy_library() -> None:
    # One fresh interpreter for all: this process may have imported anything by now.
    code = (
        "import sys; import autotune.api, autotune.cli.app, autotune.testing, autotune.doctor;"
        "heavy = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'optuna', 'pandas'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"


def test_help_answers_without_a_heavy_library() -> None:
    code = (
        "import sys; sys.argv = ['autotune', '--help'];"
        "import autotune.cli.app as app\n"
        "try: app.main()\n"
        "except SystemExit as end: code = end.code\n"
        "heavy = {'torch', 'transformers', 'trl', 'optuna', 'rich', 'numpy'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stderr.strip().splitlines()[-1] == "0 []"
    assert "run" in done.stdout

"""Print the oldest versions pyproject.toml admits, as constraints for pip; ``make test-oldest``.

    python tests/oldest.py [--torch VERSION]

torch is the exception: its older wheels on the package index are builds for CUDA of several GB, so
it stays at the version of constraints.txt unless one is named. What was not tried is said.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BOUND = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")


def declared() -> dict[str, str]:
    """Return the lower bound of every run-time dependency, by distribution name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {}
    for line in project["dependencies"]:
        match = _BOUND.fullmatch(line)
        if match is None:
            raise SystemExit(f"pyproject.toml: {line!r} has no plain lower bound (name>=version).")
        found[match[1]] = match[2]
    return found


def pinned(name: str) -> str:
    """Return the version of a distribution in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{name}=="))


def constraints(torch: str) -> list[str]:
    """Return pip constraints that install every dependency in its oldest version.

    Args:
        torch: the version of torch.
    """
    return [f"{name}=={torch if name == 'torch' else bound}" for name, bound in declared().items()]


def main() -> None:
    """Print the constraints; on stderr what they leave out."""
    parser = argparse.ArgumentParser(prog="python tests/oldest.py")
    parser.add_argument("--torch", default=pinned("torch"))
    torch = parser.parse_args().torch
    oldest = declared()["torch"]
    if torch != oldest:
        print(
            f"torch {torch} is used; {oldest}, the oldest admitted, is not tried", file=sys.stderr
        )
    print("\n".join(constraints(torch)))


if __name__ == "__main__":
    main()

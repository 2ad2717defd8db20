"""``autotune doctor``: what this machine can measure, and how; what is missing for which knob."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from autotune.cli.console import say, stderr, stdout
from autotune.cli.options import OutputFormat, check_format

if TYPE_CHECKING:
    from autotune.core.rates import Rates
    from autotune.doctor import Diagnosis


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor", help="Show what this machine can measure, and how.")(doctor)


def doctor(output_format: OutputFormat = "table") -> None:
    """Examine the machine and print what was found."""
    check_format(output_format, ("table", "json"))
    from autotune.doctor import diagnose

    with stderr().status("examining this machine (imports torch, transformers and trl)"):
        diagnosis = diagnose()
    if output_format == "json":
        say(diagnosis.model_dump_json(indent=1))
        return
    for line in _lines(diagnosis):
        stdout().print(line, markup=False)


def _lines(diagnosis: Diagnosis) -> list[str]:
    from autotune.core.units import show_bytes

    environment = diagnosis.environment
    lines = [f"python    {environment.python} on {environment.platform}"]
    versions = [f"{n} {v}" for n, v in environment.versions.items()]
    lines += [f"versions  {', '.join(versions)}"]
    for device in environment.devices:
        extra = f", compute capability {device.capability}" if device.capability else ""
        cores = f", {device.cores} cores" if device.cores else ""
        lines.append(
            f"device    {device.label}: {device.name}, {show_bytes(device.free_bytes)} free of "
            f"{show_bytes(device.total_bytes)}{cores}{extra}, "
            f"bf16 {'yes' if device.bf16 else 'no'}"
        )
    lines += [f"rates     {line}" for one in diagnosis.rates for line in _rates_lines(one)]
    for check in diagnosis.checks:
        lines.append(f"{'ok' if check.works else 'no':<9} {check.name}: {check.detail}")
    lines += [f"missing   {m}" for m in diagnosis.missing]
    lines += [f"note      {n}" for n in environment.notices]
    lines.append(f"cache     {_home(diagnosis.cache_dir)}")
    return lines


def _rates_lines(rates: Rates) -> list[str]:
    from autotune.core.rates import ANY

    products = ", ".join(
        f"{dtype} {max(curve.per_s) / 1e9:,.0f} GFLOP/s"
        for dtype, curve in rates.flops["matmul"].items()
    )
    memory = rates.moved["elementwise"]["float32"].per_s[-1]
    lines = [
        f"{rates.device}: matrix products {products}; memory {memory / 1e9:,.0f} GB/s; "
        f"{(rates.launch_seconds + rates.dispatch_seconds) * 1e6:.1f} us per operation"
    ]
    if "host_copy" in rates.moved:
        link = rates.moved["host_copy"][ANY].per_s[0]
        lines.append(f"{rates.device}: host link {link / 1e9:,.1f} GB/s")
    return lines


def _home(path: str) -> str:
    home = str(Path.home())
    return "~" + path[len(home) :] if path.startswith(home) else path

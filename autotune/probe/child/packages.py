"""Finds out whether an optional package can be used here: installed, new enough, and importable.

What a package is needed for is the business of ``autotune.knobs.needs``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from packaging.version import InvalidVersion, Version

from autotune.core.errors import first_line
from autotune.knobs.needs import Package

#: Packages whose import opens CUDA or takes seconds; they are imported by what needs them.
_LEFT_ALONE = ("deepspeed", "vllm")


def unusable(name: str, package: Package) -> str:
    """Return why a package cannot be used, in words; empty when it can.

    Args:
        name: of the distribution.
        package: its module and oldest version.
    """
    own_module = package.module.replace("_", "-") == name
    found = _version(name)
    if (found is None and not own_module) or find_spec(package.module) is None:
        return f"the package {name} is not installed"
    if found is not None and package.least is not None and not _at_least(found, package.least):
        return f"{name} {found} is installed, and at least {package.least} is needed"
    if name in _LEFT_ALONE:
        return ""
    try:
        import_module(package.module)
    except Exception as error:  # noqa: BLE001  (a package may raise anything when it is imported)
        return f"{name} is installed and cannot be imported: {first_line(error)}"
    return ""


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _at_least(found: str, least: str) -> bool:
    try:
        return Version(Version(found).base_version) >= Version(least)
    except InvalidVersion:
        return True

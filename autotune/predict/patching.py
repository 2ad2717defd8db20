"""Replaces an attribute, or an operator's kernel, for as long as a block runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

_MISSING = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let a module or class have another attribute, and then its own again.

    Args:
        owner: module or class.
        name: attribute; one that is missing is removed again.
        value: what it is meanwhile.
    """
    original = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if original is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextmanager
def kernels(key: str, by_name: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Give operators of torch other kernels, whoever calls them: Python, C++ or a formula.

    Args:
        key: dispatch key they are for, such as ``AutocastCPU``.
        by_name: kernels by name and overload of the operator, such as ``softmax.int``.
    """
    made: Any = torch.library.Library
    library = made("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of each kernel that was there before
            for name, kernel in by_name.items():
                library.impl(name, kernel, key)
        yield
    finally:
        library._destroy()

"""How many rows may be held out of a file for evaluation."""

from __future__ import annotations

import pytest

from autotune.core.errors import BadInput
from autotune.dataset.both_splits import _check_share


@pytest.mark.parametrize("size", [0.1, 0.999, 1, 23])
def test_a_share_or_a_number_of_rows_that_leaves_some_is_taken(size: float) -> None:
    _check_share(size, 24)


@pytest.mark.parametrize("size", [0, 0.0, 1.0, 1.5, -0.1, 24, 99, -3])
def test_one_that_leaves_a_side_without_rows_is_bad_input(size: float) -> None:
    with pytest.raises(BadInput, match="fewer rows than the 24 there are"):
        _check_share(size, 24)

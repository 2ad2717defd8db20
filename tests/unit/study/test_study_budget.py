"""What a job may use of a device: never what others hold, never zero, more where it is shared."""

from __future__ import annotations

import pytest

from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.study.budget import budget_of, budget_remark
from tests.support.facts import GIB, GPU

#: BC12: 12 GB of which another process holds 2.9.
SHARED_CARD = GPU.model_copy(update={"total_bytes": 12 * GIB, "free_bytes": int(9.1 * GIB)})


def test_the_default_budget_is_what_others_leave() -> None:
    # BC12
    budget = budget_of(None, None, SHARED_CARD)
    assert budget.total_bytes == int(9.1 * GIB)
    assert budget.usable_bytes == int(int(9.1 * GIB) * 0.95)
    assert not budget.explicit


def test_memory_shared_with_the_system_keeps_more_headroom_unless_the_user_says_how_much() -> None:
    # BC47
    shared = GPU.model_copy(update={"unified": True})
    assert budget_of(None, None, shared).headroom_ratio == 0.15
    assert budget_of(None, 0.05, shared).headroom_ratio == 0.05
    assert budget_of(None, None, GPU).headroom_ratio == 0.05


def test_a_budget_above_what_is_free_is_the_users_word_and_is_remarked() -> None:
    budget = budget_of(11 * GIB, None, SHARED_CARD)
    assert budget.total_bytes == 11 * GIB
    assert "others hold 2.90 GiB" in budget_remark(budget, SHARED_CARD)
    assert budget_remark(budget_of(9 * GIB, None, SHARED_CARD), SHARED_CARD) == ""
    assert budget_remark(budget_of(None, None, SHARED_CARD), SHARED_CARD) == ""


def test_a_budget_above_the_device_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"13\.00 GiB"):
        budget_of(13 * GIB, None, SHARED_CARD)


def test_a_device_others_hold_whole_is_said_to_be_full() -> None:
    with pytest.raises(EnvironmentUnable, match="nothing is free"):
        budget_of(None, None, GPU.model_copy(update={"free_bytes": 0}))

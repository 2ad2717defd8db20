"""Uneven ratings are remarked with the weight that makes up for them, as TRL computes it."""

from __future__ import annotations

from autotune.dataset.ratings import uneven_ratings


def test_uneven_ratings_name_the_weight_that_suits_them() -> None:
    (notice,) = uneven_ratings(20, 100, {})
    assert "20 of 100 rows are rated desirable" in notice.message
    assert (
        "desirable_weight between 4.00 and 5.32 (it is 1, undesirable_weight 1)" in notice.message
    )


def test_weights_that_make_up_for_uneven_ratings_need_no_remark() -> None:
    assert () == uneven_ratings(20, 100, {"desirable_weight": 4.5})
    assert () == uneven_ratings(80, 100, {"undesirable_weight": 3.5})
    assert () == uneven_ratings(55, 100, {}), "1.22 desirable ones to every other"
    assert 1 == len(uneven_ratings(20, 100, {"desirable_weight": 0.2}))
    assert 1 == len(uneven_ratings(20, 100, {"desirable_weight": 0.0})), "one half learns nothing"


def test_even_ratings_and_those_all_alike_need_no_remark() -> None:
    assert () == uneven_ratings(50, 100, {})
    assert () == uneven_ratings(50, 100, {"desirable_weight": 2.0}), "TRL advises only when uneven"
    assert () == uneven_ratings(0, 100, {}) == uneven_ratings(100, 100, {})

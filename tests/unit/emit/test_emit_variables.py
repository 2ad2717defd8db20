from __future__ import annotations

from autotune.emit import variables
from autotune.emit.variables import merge_env


def test_an_allocator_option_joins_the_users_own() -> None:
    own = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}
    tuned = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True"} == merge_env(
        own, tuned
    )


def test_the_users_name_of_the_allocator_variable_is_kept_and_no_second_one_is_set() -> None:
    own = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False, backend:native"}
    tuned = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,backend:native"} == merge_env(
        own, tuned
    )


def test_commas_inside_brackets_do_not_split_an_allocator_option() -> None:
    own = {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2]"}
    tuned = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert {
        "PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],expandable_segments:True"
    } == merge_env(own, tuned)


def test_other_variables_are_replaced_and_the_rest_is_kept_in_order() -> None:
    assert [("A", "1"), ("B", "3"), ("C", "4")] == list(
        merge_env({"A": "1", "B": "2"}, {"B": "3", "C": "4"}).items()
    )


def test_both_names_of_torchs_allocator_are_known() -> None:
    assert ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") == variables.ALLOCATOR_VARIABLES

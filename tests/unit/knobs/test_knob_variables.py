from __future__ import annotations

from autotune.knobs.variables import allocator_entries, allocator_variable, merge_env


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


def test_the_name_written_is_the_one_the_installed_torch_reads() -> None:
    # BC54: the newer name is silently ignored before PyTorch 2.10.
    assert "PYTORCH_ALLOC_CONF" == allocator_variable({"torch": "2.13.0+cpu"})
    assert "PYTORCH_ALLOC_CONF" == allocator_variable({"torch": "2.10.0"})
    assert "PYTORCH_CUDA_ALLOC_CONF" == allocator_variable({"torch": "2.9.1"})


def test_a_setting_under_a_name_torch_does_not_read_is_not_joined() -> None:
    own = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}
    tuned = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert {**own, **tuned} == merge_env(own, tuned)
    assert {} == allocator_entries(own, {"torch": "2.9.1"})
    assert {"max_split_size_mb": "128"} == allocator_entries(own, {"torch": "2.10.0"})

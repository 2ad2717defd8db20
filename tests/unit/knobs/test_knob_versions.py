"""What the installed versions want written, and what they are not given."""

from __future__ import annotations

from autotune.core.job import Trainer
from autotune.knobs.versions import (
    at_least,
    canonical_options,
    deprecated,
    spelled,
    spelled_name,
    unavailable,
    untrainable,
)

#: The first versions that spell and offer things as the newest do, and the last that did not.
NEWEST = {"trl": "1.15.0", "transformers": "5.23.0"}
OLDER = {"trl": "1.14.2", "transformers": "5.22.2"}


def test_versions_are_compared_as_versions() -> None:
    assert at_least({"torch": "2.10.0"}, "torch", "2.9")
    assert at_least({"torch": "2.13.0+cpu"}, "torch", "2.13")
    assert at_least({"transformers": "5.24.0.dev0"}, "transformers", "5.24")
    assert not at_least({"torch": "2.9.1"}, "torch", "2.10")
    assert at_least({}, "torch", "9"), "what is not listed counts as the newest"


def test_checkpointing_is_spelled_as_the_installed_transformers_wants_it() -> None:
    options = {
        "gradient_checkpointing": False,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "learning_rate": 1e-4,
    }
    assert options == spelled(options, OLDER)
    assert {
        "activation_checkpointing": False,
        "activation_checkpointing_kwargs": {"use_reentrant": False},
        "learning_rate": 1e-4,
    } == spelled(options, NEWEST)
    assert options == canonical_options(spelled(options, NEWEST))


def test_values_by_an_older_name_become_canonical() -> None:
    asked = {"packing_strategy": "bfd-requeue"}
    assert {"packing_strategy": "bfd_split"} == canonical_options(asked)
    assert {"packing_strategy": "bfd-requeue"} == asked, "what the user gave is left as it was"


def test_a_name_that_trl_leaves_no_effect_is_not_written() -> None:
    # TRL always gives the loader a dtype, beside which torch_dtype does nothing but warn
    kwargs = {"torch_dtype": "bfloat16", "revision": "main"}
    written = spelled({"model_init_kwargs": kwargs}, NEWEST)
    assert {"model_init_kwargs": {"revision": "main"}} == written
    only = {"model_init_kwargs": {"torch_dtype": "bfloat16"}}
    assert {"model_init_kwargs": None} == spelled(only, NEWEST)


def test_an_option_by_any_of_its_names_is_written_by_the_one_the_versions_want() -> None:
    for name in ("gradient_checkpointing", "activation_checkpointing"):
        assert "activation_checkpointing" == spelled_name(name, NEWEST)
        assert "gradient_checkpointing" == spelled_name(name, OLDER)
        assert {spelled_name(name, OLDER): True} == spelled({name: True}, OLDER)
    assert "seed" == spelled_name("seed", NEWEST)


def test_a_loss_that_trl_has_renamed_is_written_by_its_name() -> None:
    assert {"loss_type": "nll"} == spelled({"loss_type": "chunked_nll"}, NEWEST)
    assert {"loss_type": "chunked_nll"} == spelled({"loss_type": "chunked_nll"}, OLDER)


def test_liger_is_offered_only_where_trl_still_wants_it() -> None:
    # BC39: TRL 1.15 deprecates the flag in these trainers.
    for trainer in (Trainer.SFT, Trainer.DPO, Trainer.KTO):
        assert "use_kernels" in str(unavailable("use_liger_kernel", True, trainer, NEWEST))
        assert unavailable("use_liger_kernel", True, trainer, OLDER) is None
        assert unavailable("use_liger_kernel", False, trainer, NEWEST) is None
    assert unavailable("use_liger_kernel", True, Trainer.REWARD, NEWEST) is None


def test_a_deprecated_option_of_the_users_is_said_once() -> None:
    options = {"use_liger_kernel": True, "loss_type": "chunked_nll"}
    assert 2 == len(deprecated(Trainer.SFT, options, NEWEST))
    assert () == deprecated(Trainer.SFT, options, OLDER)
    assert () == deprecated(Trainer.SFT, {"loss_type": "nll"}, NEWEST)


def test_a_dtype_by_its_old_name_does_nothing_and_that_is_said() -> None:
    (said,) = deprecated(Trainer.DPO, {"model_init_kwargs": {"torch_dtype": "bfloat16"}}, OLDER)
    assert "does nothing beside the dtype trl gives (float32): set dtype" in said
    both = {"model_init_kwargs": {"torch_dtype": "auto", "dtype": "auto"}}
    assert () == deprecated(Trainer.DPO, both, NEWEST)


def test_an_option_on_its_way_out_that_has_no_new_name_is_said() -> None:
    smooth = {"label_smoothing_factor": 0.1}
    assert "for sft since 1.15" in deprecated(Trainer.SFT, smooth, NEWEST)[0]
    assert () == deprecated(Trainer.DPO, smooth, NEWEST)
    assert "tokenizer's own files" in deprecated(Trainer.DPO, {"pad_token": "<p>"}, OLDER)[0]


def test_selective_checkpointing_is_offered_where_trl_has_it() -> None:
    said = unavailable("gradient_checkpointing", "selective", Trainer.SFT, OLDER)
    assert "TRL before 1.15 has no selective checkpointing" == said
    assert unavailable("gradient_checkpointing", "selective", Trainer.SFT, NEWEST) is None
    assert unavailable("gradient_checkpointing", "full", Trainer.SFT, OLDER) is None


def test_the_one_trl_that_cannot_train_sft_on_a_cpu_is_named() -> None:
    said = {
        (trl, on_cpu): untrainable(Trainer.SFT, {"trl": trl}, on_cpu=on_cpu)
        for trl in ("1.14.2", "1.15.0", "1.16.0")
        for on_cpu in (True, False)
    }
    assert [("1.15.0", True)] == [case for case, reason in said.items() if reason]
    assert untrainable(Trainer.DPO, {"trl": "1.15.0"}, on_cpu=True) is None

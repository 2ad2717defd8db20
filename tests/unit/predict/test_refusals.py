"""What cannot be traced is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.predict import refusals
from autotune.predict.refusals import refuse
from autotune.predict.request import Documents, Target, TraceRequest


def request(options: dict[str, Any], target: Target = "cuda") -> TraceRequest:
    rows = (Documents(tokens=(8,)),)
    return TraceRequest(
        trainer=Trainer.SFT, model_dir="m", options=options, rows=rows, target=target
    )


@pytest.mark.parametrize(
    ("options", "target", "named"),
    [
        ({"activation_offloading": True}, "cpu", "activation_offloading"),
        ({"attn_implementation": "flash_attention_2"}, "cpu", "flash_attention_2"),
        ({"attn_implementation": "flex_attention"}, "cuda", "flex_attention"),
        ({"torch_compile": True}, "cuda", "torch_compile"),
        ({"use_liger_kernel": True}, "cuda", "use_liger_kernel"),
        ({"model_init_kwargs": {"use_kernels": True}}, "cuda", "use_kernels"),
        ({"deepspeed": "zero3.json"}, "cuda", "deepspeed"),
        ({"optim": "galore_adamw"}, "cuda", "galore_adamw"),
    ],
)
def test_a_refusal_names_what_and_says_what_to_do(
    options: dict[str, Any], target: Target, named: str
) -> None:
    with pytest.raises(BadInput, match=named) as refused:
        refuse(request(options, target), "{}")
    assert "probe" in str(refused.value.hint)


def test_a_model_with_code_of_its_own_is_not_run() -> None:
    with pytest.raises(BadInput, match="auto_map"):
        refuse(request({}), '{"auto_map": {"AutoModelForCausalLM": "m.Model"}}')


def test_layers_of_bitsandbytes_are_traced_only_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda _: None)
    for options in ({"load_in_4bit": True}, {"optim": "adamw_8bit"}):
        with pytest.raises(BadInput, match="pip install bitsandbytes"):
            refuse(request(options), "{}")
    # of flash attention there is a double
    refuse(request({"attn_implementation": "flash_attention_2"}), "{}")


def test_ordinary_candidates_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda _: "installed")
    for options in ({}, {"packing": True}, {"optim": "adamw_8bit"}, {"use_peft": True}):
        refuse(request(options), "{}")
    refuse(request({"activation_offloading": True, "attn_implementation": "sdpa"}), "{}")

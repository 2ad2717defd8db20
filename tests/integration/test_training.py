"""What is built for a probe is what TRL builds: quantised weights, and what is left of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration

QUANTISED = [
    {"load_in_4bit": True},
    {"load_in_4bit": True, "bnb_4bit_use_double_quant": True, "bnb_4bit_quant_type": "nf4"},
    {"load_in_8bit": True},
]


def described(model: Any) -> list[tuple[Any, ...]]:
    """Return name, class, shape and dtype of every parameter and of what scales it."""
    from autotune.training.parameters import scales_of

    return [
        (
            *(name, type(p).__name__, tuple(p.shape), p.dtype, p.requires_grad),
            tuple((tuple(s.shape), s.dtype) for s in scales_of(p)),
        )
        for name, p in model.named_parameters()
    ]


@pytest.mark.parametrize("trainer", [Trainer.SFT, Trainer.REWARD])
@pytest.mark.parametrize("how", QUANTISED)
def test_made_up_weights_are_quantised_as_loaded_ones(
    trainer: Trainer, how: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

    from autotune.training.model import build_model
    from autotune.training.parameters import count_parameters

    folder = tiny_model(tmp_path / "model")
    config = AutoConfig.from_pretrained(folder)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    common: dict[str, Any] = {
        "kwargs": {"dtype": "bfloat16"},
        "quantization": BitsAndBytesConfig(**how),
        "device": "cpu",
    }
    real = build_model(trainer, folder, weights="real", **common)
    made = build_model(trainer, folder, weights="random", **common)
    assert described(real) == described(made)
    assert count_parameters(real) == count_parameters(made)
    stores = [p.untyped_storage().data_ptr() for p in made.parameters()]
    assert len(stores) == len(set(stores)), "no parameter lives in another's storage"


def texts(trainer: Trainer) -> list[dict[str, Any]]:
    rows = []
    for n in range(1, 13):
        prompt, answer = "say " * n, "word " * (13 - n)
        if trainer is Trainer.DPO:
            rows.append({"prompt": prompt, "chosen": answer, "rejected": "no " * n})
        else:
            rows.append({"prompt": prompt, "completion": answer, "label": n % 2 == 0})
    return rows


@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.KTO])
def test_prepared_rows_end_as_trl_would_have_made_them(trainer: Trainer, tmp_path: Path) -> None:
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer

    from autotune.dataset.trl_rows import PREPARED_COLUMNS, stand_in
    from autotune.training.prepared import trainer_class

    tokenizer = AutoTokenizer.from_pretrained(tiny_model(tmp_path / "model"))
    config, theirs = {
        Trainer.DPO: (trl.DPOConfig, trl.DPOTrainer),
        Trainer.KTO: (trl.KTOConfig, trl.KTOTrainer),
    }[trainer]

    def built(cls: Any, rows: Any, max_length: int | None) -> Any:
        arguments = {"use_cpu": True, "bf16": False, "report_to": "none", "max_length": max_length}
        return cls(
            model=stand_in(len(tokenizer)),
            ref_model=stand_in(len(tokenizer)),
            args=config(str(tmp_path), per_device_train_batch_size=2, **arguments),
            train_dataset=rows,
            processing_class=tokenizer,
        )

    rows = Dataset.from_list(texts(trainer))
    whole = built(theirs, rows, None).train_dataset
    columns = list(PREPARED_COLUMNS[trainer])
    longest = sorted(len(ids) for ids in whole["prompt_ids"])[-3]
    expected = built(theirs, rows, longest).train_dataset
    mine = built(trainer_class(trainer), whole.select_columns(columns), longest).train_dataset
    assert 0 < len(mine) < len(rows), "rows whose prompt fills max_length are left out"
    assert set(columns) <= set(mine.column_names)
    assert expected.select_columns(mine.column_names).to_dict() == mine.to_dict()


def test_keywords_of_the_loader_replace_values_of_the_config_as_they_do_for_trl(
    tmp_path: Path,
) -> None:
    from trl import ModelConfig, SFTConfig

    from autotune.training.model import build_model, init_kwargs

    own = {"rms_norm_eps": 0.5, "use_cache": False, "low_cpu_mem_usage": True}
    folder = tiny_model(tmp_path / "model", dtype="float16")
    common: dict[str, Any] = {"weights": "random", "quantization": None, "device": "cpu"}

    def built(dtype: str | None, **kwargs: Any) -> Any:
        training = SFTConfig(str(tmp_path), use_cpu=True, model_init_kwargs=kwargs)
        keywords = init_kwargs(ModelConfig(dtype=dtype), training)
        return build_model(Trainer.SFT, folder, kwargs=keywords, **common)

    model = built("float32", **own, torch_dtype="float16")
    assert (0.5, False) == (model.config.rms_norm_eps, model.config.use_cache)
    assert "torch.float32" == str(model.dtype), "TRL's own dtype wins over the older keyword"
    assert "torch.float16" == str(built("auto").dtype), "what the checkpoint is stored in"
    assert "torch.bfloat16" == str(built(None, torch_dtype="bfloat16").dtype)
    with pytest.raises(BadInput, match="model_init_kwargs has load_in_4bit"):
        built("float32", load_in_4bit=True)

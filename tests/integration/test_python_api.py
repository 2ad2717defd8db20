"""From Python: the same search, and TRL's own config object as its answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import tune
from autotune.core.errors import BadInput
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration


def test_an_in_memory_data_set_and_a_config_object_are_tuned(tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoConfig
    from trl import SFTConfig, TrlParser
    from trl.scripts.sft import make_parser

    folder = tiny_model(tmp_path / "model")
    config = AutoConfig.from_pretrained(folder)
    rows = Dataset.from_dict({"text": ["word " * n for n in range(1, 60)]})
    tuned = tune(
        model=config,
        tokenizer=str(folder),
        dataset=rows,
        memory="2GiB",
        space="quick",
        trials=2,
        set_options={"bf16": False},
        out=tmp_path / "run",
    )
    assert isinstance(tuned.config, SFTConfig)
    assert (tmp_path / "run" / "input" / "rows.parquet").is_file()
    assert tuned.config.max_length == tuned.result.best_trial.options["max_length"]
    parser = make_parser()
    assert isinstance(parser, TrlParser)
    arguments = ["--config", str(tmp_path / "run" / "best.yaml"), "--use_cpu", "true"]
    *_, training, _, _ = (None, *parser.parse_args_and_config(arguments))
    ours, theirs = tuned.config.to_dict(), training.to_dict()
    machine = {"use_cpu", "logging_dir", "output_dir"}
    assert {k: v for k, v in ours.items() if k not in machine} == {
        k: v for k, v in theirs.items() if k not in machine
    }


def test_a_whole_dataset_dict_is_refused_with_its_splits() -> None:
    from datasets import Dataset, DatasetDict

    both = DatasetDict({"train": Dataset.from_dict({"text": ["a"]})})
    with pytest.raises(BadInput, match="splits train"):
        tune(dataset=both)

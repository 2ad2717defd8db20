"""Values that only TRL, PEFT or transformers refuse are named before the first probe (exit 2)."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput, EnvironmentUnable, NotBuiltYet
from autotune.core.job import DatasetSource, Job, Trainer
from autotune.probe.child.capabilities import lacking_here
from tests.support.facts import CPU
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration

Check = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """Resolve options and build what they ask for, as the preparing process does."""
    from transformers import AutoTokenizer

    from autotune.dataset.trl_rows import stand_in
    from autotune.probe.child.resolve import resolve_options
    from autotune.training.constructs import check_constructs

    folder = tmp_path_factory.mktemp("refused")
    model = tiny_model(folder / "model")

    def resolved(
        trainer: Trainer, at: Path = model, lacking: dict[str, str] | None = None, **options: Any
    ) -> dict[str, Any]:
        source = DatasetSource(path="rows.jsonl")
        job = Job(trainer=trainer, model=str(at), dataset=source, options=options)
        found = resolve_options(job, CPU, [], {}, lacking or {}, on_cpu=True)
        check_constructs(
            trainer,
            found,
            model_dir=at,
            tokenizer=AutoTokenizer.from_pretrained(model),
            small=stand_in(8, scores=trainer is Trainer.REWARD),
            folder=folder,
        )
        return found

    gc.freeze()  # as the preparing process is forked: transformers collects before every step
    yield resolved
    gc.unfreeze()


LORA = {"use_peft": True}
REFUSED: dict[str, tuple[Trainer, dict[str, Any], str]] = {
    "a rank of 0": (Trainer.SFT, {**LORA, "lora_r": 0}, r"^lora_r is 0, expected"),
    "layers there are not": (
        Trainer.SFT,
        {**LORA, "lora_target_modules": ["q_prj", "w"]},
        r"^lora_target_modules is \['q_prj', 'w'\]",
    ),
    "adapters of a language model on a reward model": (
        Trainer.REWARD,
        {**LORA, "lora_task_type": "CAUSAL_LM"},
        r"^lora_task_type is 'CAUSAL_LM'.*need SEQ_CLS",
    ),
    "a dropout above 1": (Trainer.DPO, {**LORA, "lora_dropout": 2.0}, r"^lora_dropout is 2"),
    "a task PEFT does not know": (
        Trainer.SFT,
        {**LORA, "lora_task_type": "CHAT"},
        "lora_task_type",
    ),
    "a loss of sft": (Trainer.SFT, {"loss_type": "sigmoid"}, r"^loss_type is 'sigmoid'.*'nll'"),
    "a loss of dpo": (Trainer.DPO, {"loss_type": ["sigmoid", "ppo"]}, r"^loss_type.*ppo.*'hinge'"),
    "a divergence": (Trainer.DPO, {"f_divergence_type": "kl"}, r"^f_divergence_type is 'kl'"),
    "a loss of kto": (Trainer.KTO, {"loss_type": "sigmoid"}, r"^loss_type.*'apo_zero_unpaired'"),
    "a quantization nobody has": (
        Trainer.KTO,
        {**LORA, "load_in_4bit": True, "bnb_4bit_quant_type": "fp9"},
        r"^bnb_4bit_quant_type is 'fp9', expected 'fp4' or 'nf4'",
    ),
    "a dtype by another name": (Trainer.SFT, {"dtype": "bf16"}, r"^dtype.*did you mean 'bfloat16'"),
    "attention nobody has": (Trainer.REWARD, {"attn_implementation": "fast"}, "'fast'.*eager"),
    "a negative rate": (Trainer.KTO, {"learning_rate": -1.0}, r"^learning_rate is -1\.0"),
    "a beta above 1": (Trainer.SFT, {"adam_beta2": 1.5}, r"^adam_beta2 is 1\.5"),
    "a schedule": (Trainer.SFT, {"lr_scheduler_type": "cosin"}, r"lr_scheduler_type 'cosin'"),
    "an argument of a schedule": (
        Trainer.SFT,
        {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"cycles": 2}},
        r"^lr_scheduler_kwargs is \{'cycles': 2\}",
    ),
    "an optimizer": (Trainer.SFT, {"optim": "adam"}, r"optim 'adam'"),
    "a seed below 0": (Trainer.SFT, {"seed": -1}, r"^seed is -1"),
    "workers below 0": (Trainer.SFT, {"dataloader_num_workers": -1}, r"^dataloader_num_workers"),
    "a tracker": (Trainer.SFT, {"report_to": "wandd"}, r"^report_to is .*wandd"),
    "a truncation": (Trainer.SFT, {"truncation_mode": "keep_all"}, r"^truncation_mode"),
    "an auxiliary loss of a dense model": (Trainer.SFT, {"router_aux_loss_coef": 0.1}, "router"),
    "noise below 0": (Trainer.SFT, {"neftune_noise_alpha": -5.0}, r"^neftune_noise_alpha is -5"),
    "a reference that follows every 0 steps": (
        Trainer.DPO,
        {"sync_ref_model": True, "ref_model_sync_steps": 0},
        r"^ref_model_sync_steps is 0",
    ),
    "an argument of checkpointing": (
        Trainer.REWARD,
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"reentrant": True}},
        r"^gradient_checkpointing_kwargs is \{'reentrant': True\}",
    ),
    "two precisions": (Trainer.SFT, {"bf16": True, "fp16": True}, "At most one of fp16 and bf16"),
    "steps of 0": (Trainer.SFT, {"max_steps": 0}, r"^max_steps is 0.*num_train_epochs"),
    "epochs of 0": (Trainer.SFT, {"num_train_epochs": 0}, r"^num_train_epochs is 0"),
    "a batch of 0": (Trainer.SFT, {"per_device_train_batch_size": 0}, r"^per_device_train_batch"),
    "processes below 1": (Trainer.SFT, {"dataset_num_proc": -2}, r"^dataset_num_proc is -2"),
    "a number where a mapping is": (Trainer.SFT, {"model_init_kwargs": 5}, "expected a mapping"),
    "a word where a number is": (Trainer.SFT, {"weight_decay": "much"}, "expected a number"),
    "a file there is not": (
        Trainer.SFT,
        {"accelerator_config": "none.json"},
        r"accelerator_config 'none\.json'.*No such file",
    ),
    "accumulation counted twice": (
        Trainer.SFT,
        {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}},
        r"num_steps is 2.*Set gradient_accumulation_steps 2",
    ),
    "a launcher's config there is not": (
        Trainer.SFT,
        {"accelerate_config": "zero4"},
        r"^accelerate_config is 'zero4', which is neither a file.*did you mean 'zero",
    ),
    "processes that are no number": (
        Trainer.SFT,
        {"num_processes": "two"},
        r"^num_processes is 't",
    ),
    "a word where a switch is": (Trainer.SFT, {"packing": "bfd"}, "expected true or false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_cannot_be_built_from_is_named_with_what_refuses_it(
    case: str, check: Check
) -> None:
    trainer, options, words = REFUSED[case]
    with pytest.raises(BadInput, match=words):
        check(trainer, **options)


def test_a_model_over_several_processes_is_refused_whatever_is_installed(check: Check) -> None:
    with pytest.raises(NotBuiltYet, match=r"^deepspeed divides the model"):
        check(Trainer.SFT, deepspeed="zero3.json")


def test_attention_whose_package_is_missing_is_the_environments_fault(check: Check) -> None:
    lacking = lacking_here(CPU)
    with pytest.raises(EnvironmentUnable, match=r"attn_implementation=flash_attention_3 needs"):
        check(Trainer.SFT, lacking=lacking, attn_implementation="flash_attention_3")


def test_an_optimizer_whose_package_is_missing_is_the_environments_fault(check: Check) -> None:
    with pytest.raises(EnvironmentUnable, match=r"optim 'galore_adamw'.*galore_torch"):
        check(Trainer.SFT, optim="galore_adamw", optim_target_modules="all-linear")


ACCEPTED: dict[str, tuple[Trainer, dict[str, Any]]] = {
    "nothing": (Trainer.SFT, {}),
    "text for numbers, as YAML reads 2e-5": (Trainer.SFT, {"learning_rate": "2e-5", "seed": "3"}),
    "one word for a list": (Trainer.DPO, {"loss_type": "sigmoid", "report_to": "none"}),
    "lora on every layer": (Trainer.SFT, {**LORA, "lora_target_modules": "all-linear"}),
    "adapters of a reward model": (Trainer.REWARD, {**LORA, "lora_task_type": "SEQ_CLS"}),
    "adapters without a task": (Trainer.REWARD, LORA),
    "adapters beside their own reference": (Trainer.KTO, LORA),
    "an optimizer of bitsandbytes": (Trainer.SFT, {"optim": "paged_adamw_8bit"}),
    "kernels this machine has not": (Trainer.SFT, {"attn_implementation": "flash_attention_2"}),
    "a tracker that is not installed": (Trainer.SFT, {"report_to": ["wandb", "tensorboard"]}),
    "the last checkpoint": (Trainer.SFT, {"resume_from_checkpoint": True}),
    "rows judged by rules": (Trainer.SFT, {"padding_free": True, "max_length": 64}),
    "a loss over several": (Trainer.DPO, {"loss_type": ["sigmoid", "sft"], "loss_weights": [1, 1]}),
    "a reference that follows": (Trainer.DPO, {"sync_ref_model": True}),
    "log-probabilities beforehand": (Trainer.KTO, {"precompute_ref_log_probs": True}),
    "nested text": (Trainer.SFT, {"gradient_checkpointing_kwargs": '{"use_reentrant": false}'}),
    "selective checkpointing": (
        Trainer.SFT,
        {"gradient_checkpointing_kwargs": {"selective": True}},
    ),
    "processes that load rows ahead": (
        Trainer.SFT,
        {
            "dataloader_num_workers": 2,
            "dataloader_prefetch_factor": 4,
            "dataloader_persistent_workers": True,
            "dataloader_multiprocessing_context": "spawn",
        },
    ),
    "checkpoints kept on the host, which has a rule": (
        Trainer.REWARD,
        {"gradient_checkpointing_kwargs": {"offload": True, "every_n_layers": 2}},
    ),
    "the backend of processes there are not": (Trainer.SFT, {"ddp_backend": "nccl"}),
    "an optimizer with arguments": (Trainer.SFT, {"optim": "sgd", "optim_args": "momentum=0.9"}),
    "the precision of a GPU": (Trainer.SFT, {"tf32": True}),
    "a quantized base": (Trainer.SFT, {**LORA, "load_in_4bit": True}),
    "a schedule that follows evaluations": (
        Trainer.SFT,
        {
            "lr_scheduler_type": "reduce_lr_on_plateau",
            "lr_scheduler_kwargs": {"factor": 0.5},
            "eval_strategy": "steps",
            "eval_steps": 10,
        },
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_trains_somewhere_is_not_refused(case: str, check: Check) -> None:
    trainer, options = ACCEPTED[case]
    assert options.keys() - {"tf32", "ddp_backend"} <= check(trainer, **options).keys()


def test_a_model_without_a_list_of_layers_is_answered_with_the_way_out(
    check: Check, tmp_path: Path
) -> None:
    olmo = tiny_model(tmp_path / "olmo", model_type="olmo", architectures=["OlmoForCausalLM"])
    with pytest.raises(BadInput, match="name some with lora_target_modules"):
        check(Trainer.DPO, olmo, **LORA)
    assert check(Trainer.DPO, olmo, **LORA, lora_target_modules="all-linear")


def test_adapters_of_a_reward_model_get_their_task(check: Check) -> None:
    assert "SEQ_CLS" == check(Trainer.REWARD, **LORA)["lora_task_type"]
    assert "lora_task_type" not in check(Trainer.DPO, **LORA)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": "wide"}, r"hidden_size.*expected int, got str"),
        ({"dtype": "float99"}, r"float99"),
    ],
)
def test_a_model_whose_config_cannot_be_read_is_bad_input(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    from autotune.probe.child.model_facts import model_facts

    model = tiny_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    job = Job(trainer=Trainer.SFT, model=str(model), dataset=DatasetSource(path="rows.jsonl"))
    with pytest.raises(BadInput, match=words):
        model_facts(job, {}, tmp_path)

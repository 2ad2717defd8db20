"""Knobs of how rows become batches: micro-batch, length, packing, padding, order, workers."""

from __future__ import annotations

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts
from autotune.knobs.knob import OFFLINE, Knob, Options, option, plain

#: What torch's DataLoader refuses where no process makes batches beside the training one.
_OF_WORKERS: Options = {
    "dataloader_prefetch_factor": None,
    "dataloader_persistent_workers": False,
    "dataloader_multiprocessing_context": None,
}


def _write_packing(choice: Value, _: Facts) -> Options:
    if choice == "none":
        return {"packing": False}
    return {"packing": True, "packing_strategy": choice}


def _read_packing(facts: Facts) -> Value:
    return str(facts.option("packing_strategy")) if facts.option("packing") else "none"


def _write_workers(choice: Value, facts: Facts) -> Options:
    own = facts.job.options
    without = (
        {} if choice else {n: v for n, v in _OF_WORKERS.items() if own.get(n) not in (None, v)}
    )
    return {"dataloader_num_workers": choice, **without}


def _read_multiple(facts: Facts) -> Value:
    value = facts.option("pad_to_multiple_of")
    # TRL 1.16's default, "auto", pads on Neuron devices only
    return None if value in (None, "auto") else int(value)


ROWS_OF_DATA: tuple[Knob, ...] = (
    Knob(
        name="per_device_train_batch_size",
        place="training",
        choices=None,
        trainers=OFFLINE,
        help="rows per micro-step; gradient_accumulation_steps follows so that the effective "
        "batch stays",
        write=plain("per_device_train_batch_size"),
        read=option("per_device_train_batch_size"),
    ),
    Knob(
        name="max_length",
        place="training",
        choices=None,
        trainers=OFFLINE,
        help="longest sequence in tokens; longer rows are cut, and with packing it is the length "
        "of a packed row",
        write=plain("max_length"),
        read=option("max_length"),
        nullable=True,
    ),
    Knob(
        name="packing",
        place="training",
        choices=("none", "bfd", "bfd_split", "wrapped"),
        trainers=(Trainer.SFT,),
        help="put several rows into one: bfd drops overflow, bfd_split goes on with it in a piece "
        "that does not see its beginning (--allow split below your max_length), wrapped mixes "
        "documents (--allow mixing)",
        write=_write_packing,
        read=_read_packing,
    ),
    Knob(
        name="padding_free",
        place="training",
        choices=(False, True),
        trainers=(Trainer.SFT, Trainer.DPO),
        help="flatten a batch into one row without padding; rows must already be cut (no effect "
        "in DPO)",
        write=plain("padding_free"),
        read=option("padding_free", False),
    ),
    Knob(
        name="pad_to_multiple_of",
        place="training",
        choices=(None, 8, 16, 32, 64, 128),
        trainers=OFFLINE,
        help="round the padded width up, for kernels that like it",
        write=plain("pad_to_multiple_of"),
        read=_read_multiple,
    ),
    Knob(
        name="train_sampling_strategy",
        place="training",
        choices=("random", "sequential", "group_by_length"),
        trainers=OFFLINE,
        help="order of the rows; group_by_length puts rows of like length together (SFT only)",
        write=plain("train_sampling_strategy"),
        read=option("train_sampling_strategy", "random"),
    ),
    Knob(
        name="dataloader_num_workers",
        place="training",
        choices=(0, 1, 2, 4, 8),
        trainers=OFFLINE,
        help="processes that make batches beside the training one",
        write=_write_workers,
        read=option("dataloader_num_workers", 0),
    ),
)

"""Settles the dtype of the weights where the user leaves it to the model.

Every rule and every probe then looks at one word; the precision of the computation is settled with
the other options (``resolve``).
"""

from __future__ import annotations

from typing import Any


def settle_dtype(options: dict[str, Any], config: Any, notices: list[str]) -> None:
    """Write what ``dtype`` auto and null stand for into the options, as precision is.

    Args:
        options: parsed options; changed in place.
        config: transformers' config of the model.
        notices: gets a sentence where there was something to settle.

    Source: ``PreTrainedModel.from_pretrained`` (transformers 5.24), for which null is auto, unless
    the keyword's older name says more.
    """
    kwargs = dict(options.get("model_init_kwargs") or {})
    by_keyword = "dtype" in kwargs
    holder = kwargs if by_keyword else options
    if holder.get("dtype", "") not in (None, "auto"):
        return
    said = "null" if holder["dtype"] is None else "auto"
    older = kwargs.get("torch_dtype") if holder["dtype"] is None else None
    dtype = config.dtype if older in (None, "auto") else older
    if dtype is None:
        holder["dtype"] = "float32"
        notices.append(
            f"dtype {said} takes the dtype of the weights, and the model's config names none: "
            "float32 is measured and written into the config."
        )
    else:
        holder["dtype"] = str(dtype).removeprefix("torch.")
        notices.append(
            f"dtype {said} is {holder['dtype']} for this model, and is written so into the config."
        )
    if by_keyword:
        options["model_init_kwargs"] = kwargs

"""autotune finds the fastest TRL training configuration that is safe for the whole run.

The package imports nothing heavy; `autotune.tune` and `autotune.predict` load what they need when
they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# The function below has the name of this package: importing the package first, which holds nothing
# but a sentence, keeps the function from being replaced when a part of it is imported later.
import autotune.predict as _package
from autotune.core.about import __version__

if TYPE_CHECKING:
    from autotune.api import tune
    from autotune.core.prediction import Forecast

__all__ = ["__version__", "predict", "tune"]
assert _package is not None


def predict(
    model: Any = None, dataset: Any = None, *, gpu: str | None = None, **options: Any
) -> Forecast:
    """Predict what fits a device and how fast it is, without running it.

    Args:
        model: hub id, folder, ``config.json``, or a transformers config; None takes the YAML's,
            ``demo`` is the embedded one.
        dataset: hub id, file, folder, ``datasets.Dataset``, data frame or list of rows.
        gpu: device of the catalogue, such as ``rtx-4090``; None predicts for this machine.
        options: as for ``autotune predict``: ``trainer``, ``config``, ``space``, ``memory``, ...,
            ``tokenizer`` beside a config object.

    Raises:
        BadInput: something cannot be used.
        EnvironmentUnable: a library that is needed is missing.
    """
    from autotune.use.predict import predict_objects

    return predict_objects(model, dataset, gpu=gpu, **options)


def __getattr__(name: str) -> Any:
    """Load the Python API on first use, so that ``import autotune`` stays light."""
    if name == "tune":
        from autotune.api import tune

        return tune
    raise AttributeError(f"module 'autotune' has no attribute {name!r}")

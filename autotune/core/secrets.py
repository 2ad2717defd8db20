"""What is a secret: names and texts; pure. What is done with one is decided where it is met."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"
#: Options whose value is a secret, whatever it looks like.
SECRET_OPTIONS = ("hub_token", "push_to_hub_token", "trackio_space_id_token")
#: Keys of nested options (``model_init_kwargs``) whose value is one.
_SECRET_KEYS = ("token", "use_auth_token", "auth_token", "access_token", "api_key", "password")
#: Environment variables whose value is a secret by their name.
_SECRET_VARIABLE = re.compile(
    r"TOKEN(?!IZERS)|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE", re.I
)
#: Variables that are about how a library runs and hold no secret by what they are. Whatever else
#: stands in a config's ``env:`` block may be one: no list of names for secrets is ever complete.
_OPEN_VARIABLE = re.compile(
    r"(?:PYTORCH|TORCH|TORCHINDUCTOR|TORCHDYNAMO|CUDA|CUBLAS|CUDNN|NVIDIA|NVTE|NCCL|GLOO|UCX|HIP"
    r"|ROCR|HSA|OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|MALLOC|TRITON|BNB|BITSANDBYTES|XLA|TF"
    r"|TOKENIZERS|TRANSFORMERS|DATASETS|HF_DATASETS|HF_HUB|ACCELERATE|DEEPSPEED|DS|LIGER|VLLM"
    r"|AUTOTUNE)_\w+"
    r"|HF_HOME|LD_PRELOAD|LD_LIBRARY_PATH|XDG_CACHE_HOME|TMPDIR|PYTHON(?:HASHSEED|WARNINGS)"
    r"|WANDB_(?:PROJECT|NAME|MODE|DISABLED|WATCH|LOG_MODEL|DIR|RUN_GROUP|TAGS|SILENT|NOTES)"
    r"|TENSORBOARD_LOGGING_DIR|MLFLOW_EXPERIMENT_NAME|COMET_PROJECT_NAME|TRACKIO_PROJECT"
)
#: Tokens of Hugging Face, GitHub, GitLab and OpenAI-like services, AWS key ids, and who logs in at
#: an address with a password or on the web; a path may have cost it its second slash. Names made of
#: words, such as ``hf-internal-testing``, are none: where a service's tokens may hold dashes, one
#: has a digit.
_SECRET_TEXT = re.compile(
    r"\b(?:hf|api_org|ghp|gho|ghs|ghu|ghr)_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}"
    r"|\b(?:sk|glpat)-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|(?<=:/|//)[^/\s:@]*:[^/\s?#]+(?=@)|(?<=https://)[^/\s?#]+(?=@)|(?<=http://)[^/\s?#]+(?=@)"
)
#: Parameters of addresses whose value is one by their name, as in ``?access_token=...``.
_SECRET_PARAMETER = re.compile(
    r"([?&](?:[\w.-]*(?:token|secret|password|passwd|credential|signature|api_?key)[\w.-]*"
    r"|key|sig|pwd|auth)=)[^&#\s\"'<>]+",
    re.I,
)


def hide_text(text: str) -> str:
    """Return a text with everything hidden that looks like a secret."""
    return _SECRET_PARAMETER.sub(rf"\1{HIDDEN}", _SECRET_TEXT.sub(HIDDEN, text))


def is_secret_variable(name: str, value: str = "") -> bool:
    """Return whether an environment variable is a secret, by its name or by its value."""
    return bool(_SECRET_VARIABLE.search(name)) or hide_text(value) != value


def is_open_variable(name: str, value: str) -> bool:
    """Return whether a variable of a config's ``env:`` block may be written down and shown."""
    return bool(_OPEN_VARIABLE.fullmatch(name)) and not is_secret_variable(name, value)


def is_secret_option(name: str, value: Any, *, nested: bool = False) -> bool:
    """Return whether a TRL option is a secret, by its name or by its value.

    Args:
        name: the option, or a key of a nested one.
        value: its value: text, or a list that holds such text.
        nested: whether the name is a key of a nested option.
    """
    if isinstance(value, list | tuple):
        return any(is_secret_option("", one) for one in value)
    if not isinstance(value, str):
        return False
    named = name in SECRET_OPTIONS or (nested and name in _SECRET_KEYS)
    return named or hide_text(value) != value


def without_secrets(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return options without their secrets, and the names of those, nested ones by their path.

    Args:
        options: TRL options by name.
    """
    names: list[str] = []
    return _without(options, "", names), tuple(names)


def _without(options: Mapping[str, Any], path: str, names: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in options.items():
        if is_secret_option(name, value, nested=bool(path)):
            names.append(f"{path}{name}")
        elif isinstance(value, Mapping):
            left = _without(value, f"{path}{name}.", names)
            if left or not value:
                kept[name] = left
        else:
            kept[name] = value
    return kept

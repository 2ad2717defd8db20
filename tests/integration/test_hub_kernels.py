"""Kernels of the hub are fetched while it is reached, or left out with the reason.

In a process of its own, with a stand-in for the ``kernels`` library and a hub that is a folder: it
fetches a commit and finds a version in the cache only where the version was noted, as 0.17 does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

NAME = "kernels-community/flash-attn2"
KERNELS = """
import os
import types
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants

HUB = os.environ["FAKE_HUB"]
CACHE = Path(os.environ["KERNELS_CACHE"])
COMMIT = "0123abc"
loaded = []


class Anything:
    def __init__(self, *args, **kwargs):
        pass

    def __or__(self, other):
        return self


class Mode(Anything):
    pass


Mode.TRAINING, Mode.INFERENCE, Mode.TORCH_COMPILE = Mode(), Mode(), Mode()
CUDAProperties = ROCMProperties = Device = LayerRepository = LocalLayerRepository = Anything
KernelizeFallback = types.SimpleNamespace(ALL=True)
layer = types.SimpleNamespace(mode=types.SimpleNamespace(Mode=Mode))


def passing(*args, **kwargs):
    return lambda thing: thing


use_kernel_forward_from_hub = use_kernelized_func = use_kernel_mapping = passing
replace_kernel_forward_from_hub = register_kernel_mapping = passing


def _reached():
    if HUB == "unreachable":
        raise ConnectionError("[Errno -2] Name or service not known")


def get_kernel(repo_id, revision=None, version=None, **kwargs):
    if constants.HF_HUB_OFFLINE:
        if not (CACHE / "refs" / f"v{version}").exists():
            raise ValueError(f"Version {version} is not available in the local cache")
    else:
        _reached()
        if HUB == "without a build":
            raise FileNotFoundError(f"Cannot find a build variant in {repo_id}:\\n\\nno")
        (CACHE / "snapshot").mkdir(parents=True, exist_ok=True)
    module = types.ModuleType("flash_attn2")
    module.flash_attn_func = module.flash_attn_varlen_func = lambda *a, **k: None
    info = types.SimpleNamespace(repo_id=repo_id, revision=COMMIT)
    loaded.append(types.SimpleNamespace(repo_info=info))
    return module


def get_loaded_kernels():
    return list(loaded)


def kernelize(model, *, mode, device, use_fallback=True):
    module = get_kernel("kernels-community/liger-kernels", version=3)
    for part in model.modules():
        if type(part).__name__ == os.environ.get("FAKE_LAYER"):
            part.forward = module.flash_attn_func
    return model


def list_repo_refs(self, repo_id, repo_type=None):
    _reached()
    branch = types.SimpleNamespace
    return branch(branches=[
        branch(name="main", target_commit="fff"),
        *(branch(name=f"v{n}", target_commit=COMMIT) for n in (3, 4)),
    ])


def snapshot_download(self, repo_id, *, revision, **kwargs):
    _reached()
    (CACHE / "refs").mkdir(parents=True, exist_ok=True)
    (CACHE / "refs" / revision).write_text(COMMIT)


huggingface_hub.HfApi.list_repo_refs = list_repo_refs
huggingface_hub.HfApi.snapshot_download = snapshot_download
"""
PROCESS = """
import json, sys
from pathlib import Path

from autotune.core.errors import EnvironmentUnable
from autotune.probe.child.hub_kernels import fetch_attention, fetch_layers

options, searched, model_dir = json.loads(sys.argv[1])
notices = []
try:
    found = fetch_attention(options, searched)
    if model_dir:
        found |= fetch_layers(Path(model_dir), options, notices, searched=True)
except EnvironmentUnable as error:
    found = {"error": error.message}
print(json.dumps([found, notices]))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    (folder / "kernels" / "layer").mkdir(parents=True)
    (folder / "kernels" / "__init__.py").write_text(KERNELS, encoding="utf-8")
    (folder / "kernels" / "layer" / "__init__.py").write_text("", encoding="utf-8")
    mode = "from kernels import Mode\n"
    (folder / "kernels" / "layer" / "mode.py").write_text(mode, encoding="utf-8")
    about = folder / "kernels-0.18.2.dist-info"
    about.mkdir()
    metadata = "Metadata-Version: 2.1\nName: kernels\nVersion: 0.18.2\n"
    (about / "METADATA").write_text(metadata, encoding="utf-8")
    return folder


def fetched(
    packages: Path,
    hub: str,
    *,
    options: dict[str, Any] | None = None,
    searched: tuple[str, ...] = (NAME,),
    model_dir: str = "",
    **variables: str,
) -> tuple[dict[str, str], list[str]]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "KERNELS_CACHE": str(packages / "cache"),
        "FAKE_HUB": hub,
        "HF_HUB_OFFLINE": "0",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, json.dumps([options or {}, searched, model_dir])],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lacking, notices = json.loads(done.stdout.splitlines()[-1])
    return lacking, notices


def test_a_kernel_is_fetched_so_that_it_loads_without_the_hub(packages: Path) -> None:
    assert fetched(packages, "reachable") == ({}, [])
    assert fetched(packages, "unreachable") == ({}, []), "from the cache"


@pytest.mark.parametrize(
    ("hub", "variables", "reason"),
    [
        ("unreachable", {}, "is not in the cache, and the hub cannot be reached"),
        ("reachable", {"HF_HUB_OFFLINE": "1"}, "is not in the cache, and HF_HUB_OFFLINE is set"),
        ("without a build", {}, "has no build for torch "),
    ],
)
def test_a_kernel_probes_cannot_load_is_left_out_with_the_reason(
    hub: str, variables: dict[str, str], reason: str, packages: Path
) -> None:
    lacking, _ = fetched(packages, hub, **variables)
    assert lacking[NAME].startswith(f"{NAME} {reason}")


def test_the_users_own_kernel_stops_the_run_before_any_probe(packages: Path) -> None:
    own = {"model_init_kwargs": {"attn_implementation": "some/attention"}}
    found, _ = fetched(packages, "unreachable", options=own, searched=())
    assert found["error"] == (
        "attn_implementation: some/attention is not in the cache, and the hub cannot be reached."
    )


def test_kernels_for_layers_are_fetched_for_the_layers_the_model_has(
    packages: Path, tmp_path: Path
) -> None:
    from tests.support.models import tiny_model

    model = str(tiny_model(tmp_path / "model"))
    kernel = "kernels of the hub for layers"
    missing, _ = fetched(packages, "unreachable", searched=(), model_dir=model)
    assert missing[kernel].endswith("is not in the cache, and the hub cannot be reached")
    own = {"model_init_kwargs": {"use_kernels": True}}
    none, notices = fetched(packages, "reachable", options=own, searched=(), model_dir=model)
    assert none[kernel] == "no layer of qwen3 has a kernel for training on this device"
    assert notices == [f"use_kernels changes nothing here: {none[kernel]}."]
    layer = {"FAKE_LAYER": "Qwen3RMSNorm"}
    assert fetched(packages, "reachable", searched=(), model_dir=model, **layer) == ({}, [])

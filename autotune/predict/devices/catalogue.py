"""The device table: what makers state of accelerators people rent or own.

Rates are dense (no structured sparsity) and of tensor cores with fp32 accumulation where there are
any; links are one direction. What training reaches of them is in efficiencies.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core.cuda_memory import usual_context_bytes
from autotune.core.environment import Device

_GIB = 2**30
_T, _G = 10**12, 10**9

#: One direction of sixteen PCIe lanes (PCI-SIG: 15.75, 31.5 and 63 GB/s for versions 3, 4 and 5).
_PCIE3, _PCIE4, _PCIE5 = 15.75 * _G, 31.5 * _G, 63.0 * _G


@dataclass(frozen=True)
class Spec:
    """One device as its maker states it.

    Args:
        name: how it is shown and typed.
        keys: spellings it is found by, without separators and makers' words.
        label_gb: the size in its name; a key may carry it.
        total_bytes: memory the driver reports to a program, which is below the label.
        bandwidth: bytes per second of device memory.
        bf16: flops per second in bfloat16; None when the device has none.
        fp16: flops per second in float16.
        fp32: flops per second in float32, TF32 off as torch has it by default.
        link: bytes per second to the host, one direction.
        family: architecture, by which published efficiencies are found.
        capability: CUDA compute capability; None where it is no CUDA device.
        source: where the rates are stated.
    """

    name: str
    keys: tuple[str, ...]
    label_gb: int
    total_bytes: int
    bandwidth: float
    bf16: float | None
    fp16: float
    fp32: float
    link: float
    family: str
    capability: str | None
    source: str

    @property
    def usable_bytes(self) -> int:
        """Memory that is left for tensors once the context is there."""
        return self.total_bytes - usual_context_bytes(self.capability)

    @property
    def device(self) -> Device:
        """The device as one nobody uses yet."""
        return Device(
            kind="cuda",
            index=0,
            name=self.name,
            total_bytes=self.total_bytes,
            free_bytes=self.total_bytes,
            capability=self.capability,
            bf16=self.bf16 is not None,
        )


def _spec(
    name: str,
    keys: str,
    memory: tuple[int, float],
    bandwidth_gb: float,
    tflops: tuple[float | None, float, float],
    link: float,
    family: str,
    capability: str | None,
    source: str,
) -> Spec:
    """Read a row: memory as (label GB, GiB seen), tflops as (bf16, fp16, fp32)."""
    bf16, fp16, fp32 = tflops
    return Spec(
        name=name,
        keys=tuple(keys.split()),
        label_gb=memory[0],
        total_bytes=int(memory[1] * _GIB),
        bandwidth=bandwidth_gb * _G,
        bf16=None if bf16 is None else bf16 * _T,
        fp16=fp16 * _T,
        fp32=fp32 * _T,
        link=link,
        family=family,
        capability=capability,
        source=source,
    )


#: GiB seen are the "total capacity" torch names in its out-of-memory errors on these devices.
CATALOGUE: tuple[Spec, ...] = (
    _spec("T4", "t4", (16, 14.56), 320, (None, 65, 8.1), _PCIE3, "turing", "7.5",
          "NVIDIA T4 datasheet 2019"),
    _spec("V100-16GB", "v100", (16, 15.77), 900, (None, 125, 15.7), _PCIE3, "volta", "7.0",
          "NVIDIA V100 datasheet 2020, SXM2"),
    _spec("V100-32GB", "v100", (32, 31.73), 900, (None, 125, 15.7), _PCIE3, "volta", "7.0",
          "NVIDIA V100 datasheet 2020, SXM2"),
    _spec("A10G", "a10g", (24, 21.98), 600, (70, 70, 35), _PCIE4, "ampere", "8.6",
          "NVIDIA A10G datasheet 2021"),
    _spec("L4", "l4", (24, 21.96), 300, (121, 121, 30.3), _PCIE4, "ada", "8.9",
          "NVIDIA L4 datasheet 2023"),
    _spec("L40S", "l40s", (48, 44.40), 864, (362, 362, 91.6), _PCIE4, "ada", "8.9",
          "NVIDIA L40S datasheet 2023"),
    _spec("RTX-3090", "rtx3090 3090", (24, 23.68), 936, (71, 71, 35.6), _PCIE4, "ampere", "8.6",
          "NVIDIA Ampere GA102 whitepaper 2020"),
    _spec("RTX-4090", "rtx4090 4090", (24, 23.64), 1008, (165.2, 165.2, 82.6), _PCIE4, "ada", "8.9",
          "NVIDIA Ada whitepaper 2022"),
    _spec("RTX-5090", "rtx5090 5090", (32, 31.36), 1792, (209.5, 209.5, 104.8), _PCIE5,
          "blackwell", "12.0", "NVIDIA RTX Blackwell whitepaper 2025"),
    _spec("A100-40GB", "a100", (40, 39.39), 1555, (312, 312, 19.5), _PCIE4, "ampere", "8.0",
          "NVIDIA A100 datasheet 2021, SXM4"),
    _spec("A100-80GB", "a100", (80, 79.15), 2039, (312, 312, 19.5), _PCIE4, "ampere", "8.0",
          "NVIDIA A100 datasheet 2021, SXM4"),
    _spec("A100-80GB-PCIe", "a100pcie", (80, 79.15), 1935, (312, 312, 19.5), _PCIE4, "ampere",
          "8.0", "NVIDIA A100 datasheet 2021, PCIe"),
    _spec("H100", "h100", (80, 79.10), 3350, (989.4, 989.4, 67), _PCIE5, "hopper", "9.0",
          "NVIDIA H100 datasheet 2023, SXM5"),
    _spec("H100-PCIe", "h100pcie", (80, 79.10), 2000, (756, 756, 51), _PCIE5, "hopper", "9.0",
          "NVIDIA H100 datasheet 2023, PCIe"),
    _spec("H200", "h200", (141, 139.72), 4800, (989.4, 989.4, 67), _PCIE5, "hopper", "9.0",
          "NVIDIA H200 datasheet 2024, SXM5"),
    _spec("B200", "b200", (180, 178.35), 7700, (2250, 2250, 75), _PCIE5, "blackwell", "10.0",
          "NVIDIA HGX B200 datasheet 2025"),
    _spec("MI300X", "mi300x", (192, 191.69), 5300, (1307.4, 1307.4, 163.4), _PCIE5, "cdna3", None,
          "AMD Instinct MI300X datasheet 2023"),
)  # fmt: skip

"""Where numbers were measured: recorded with every result, compared before two are compared."""

from __future__ import annotations

from autotune.core.job import Frozen


class Device(Frozen):
    """Describe one device that can be measured.

    Args:
        kind: ``cpu`` or ``cuda``.
        index: device index as the process sees it; None on CPU.
        name: the maker's name of it.
        total_bytes: its memory (system memory on CPU, or the cgroup's limit when lower).
        free_bytes: what nobody holds now.
        unified: whether its memory is the system's, so that host allocations compete for it.
        uuid: UUID as CUDA gives it, without prefix; None on CPU or where it gives none.
        pci_bus_id: such as ``0000:3b:00.0``; None on CPU or where it is not known.
        capability: CUDA compute capability such as ``9.0``; None on CPU.
        bf16: whether bfloat16 is computed natively or at least supported by torch there.
        cores: cores this process may run on (CPU).
    """

    kind: str
    index: int | None
    name: str
    total_bytes: int
    free_bytes: int
    capability: str | None = None
    bf16: bool = True
    cores: int | None = None
    unified: bool = False
    uuid: str | None = None
    pci_bus_id: str | None = None

    @property
    def label(self) -> str:
        """``cpu`` or ``cuda:0``."""
        return self.kind if self.index is None else f"{self.kind}:{self.index}"

    @property
    def visible_uuid(self) -> str | None:
        """What names it in ``CUDA_VISIBLE_DEVICES`` whatever the order of devices; None if unknown.

        CUDA gives a slice's own UUID and says in its name that it is one.
        """
        if self.uuid is None:
            return None
        return f"{'MIG' if ' MIG ' in self.name else 'GPU'}-{self.uuid}"

    @property
    def others_bytes(self) -> int:
        """What other processes hold of it."""
        return max(0, self.total_bytes - self.free_bytes)


class Environment(Frozen):
    """Describe the machine and the installed libraries.

    Args:
        versions: installed version by distribution name; absent ones are left out.
        python: Python version.
        platform: operating system and kernel.
        devices: every device found, CPU last.
        notices: what cannot be measured here and why, one sentence each.
        gpu_fault: why GPUs of this machine cannot be used, in their driver's words; empty when
            nothing is wrong with them, or there are none.
        variables: environment variables set here that change speed or memory
            (`autotune.knobs.isolation.RECORDED_ENV`); None in documents older than this field.
    """

    versions: dict[str, str]
    python: str
    platform: str
    devices: tuple[Device, ...]
    notices: tuple[str, ...] = ()
    gpu_fault: str = ""
    variables: dict[str, str] | None = None

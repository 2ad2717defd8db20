"""The door of the package: what others script machines with in their own tests."""

from __future__ import annotations

import autotune.testing


def test_every_public_name_is_there_and_no_other() -> None:
    public = {name for name in vars(autotune.testing) if name[0].isupper() or name in LOWER}
    assert public == set(autotune.testing.__all__)
    assert public > {"FakeMachine", "FakeNvml", "FakeProber", "FakeRuntime", "Script"}


LOWER = ("always", "at", "out_of_memory")

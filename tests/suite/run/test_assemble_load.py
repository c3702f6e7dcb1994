"""What other processes used of a kernel's CPUs, and how well short windows know it."""

from __future__ import annotations

import pytest

from fsmatrix.results.evidence.evidence import Load
from fsmatrix.suite.run.assemble import foreign_load
from fsmatrix.suite.session.messages import KernelUse


def load(seconds: float, user: float, own: float, cpus: int = 2) -> Load:
    use = KernelUse(
        before={},
        after={},
        cpu={},
        cpu_seconds=seconds * cpus,
        user_seconds=user,
        storage_user_seconds=0.0,
    )
    return foreign_load(use, own)


def test_a_share_of_ticks_is_known_better_in_a_longer_window() -> None:
    short, long = load(0.35, 0.25, 0.15), load(35.0, 25.0, 15.0)
    assert short.foreign == pytest.approx(long.foreign) == pytest.approx(0.1 / 0.7)
    assert short.noise == pytest.approx(10 * long.noise)
    assert short.foreign - short.noise < 0 < 0.1 < long.foreign - long.noise


def test_own_work_and_no_time_are_no_load() -> None:
    assert load(1.0, 0.4, 0.5).foreign == 0.0
    assert load(0.0, 0.0, 0.0) == Load(foreign=0.0, noise=0.0)

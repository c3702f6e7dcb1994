"""What the tests of real beds need."""

from __future__ import annotations

import os

import pytest

from fsmatrix.backends.testbed.ceph_testbed import missing


@pytest.fixture(scope="session")
def ceph() -> None:
    """Ceph's programs; skipped with what would bring them."""
    if os.geteuid() == 0 and (reason := missing()):
        pytest.skip(reason)

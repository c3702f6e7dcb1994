"""Targets on DFUSE, for tests."""

from __future__ import annotations

from typing import Any

import pytest

from fsmatrix.backends import contract
from fsmatrix.backends.access import Access
from fsmatrix.backends.daos.dfuse import DaosDfuse

mounting = pytest.mark.root


def dfuse(**options: Any) -> DaosDfuse:
    kind = contract.load("daos-dfuse")
    given = {} if "path" in options else {"pool": "bench"}
    backend = kind(kind.Options(**given | options))
    assert isinstance(backend, DaosDfuse)
    return backend


def client_of(access: Access) -> int:
    (pid,) = DaosDfuse.workers(access)
    return pid

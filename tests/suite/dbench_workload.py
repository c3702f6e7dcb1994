"""The workload `dbench` for tests: a loadfile, an access, and cases."""

from __future__ import annotations

from typing import Any

import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.workloads.dbench import Dbench, DbenchOptions

ACCESS = PathAccess("directory", "t")
NEEDED = pytest.mark.needs("dbench")
LINES = """\
Mkdir "\\clients" NT_STATUS_OK
NTCreateX "\\clients\\client1" 0x1 0x2 16385 NT_STATUS_OK
Close 16385 NT_STATUS_OK
NTCreateX "\\clients\\client1\\a" 0x40 0x5 10 NT_STATUS_OK
WriteX 10 0 1000 1000 NT_STATUS_OK
WriteX 10 500 1000 1000 NT_STATUS_OK
ReadX 10 0 1500 1500 NT_STATUS_OK
Close 10 NT_STATUS_OK
NTCreateX "\\clients\\client1\\b" 0x40 0x5 11 NT_STATUS_OK
WriteX 11 0 200 200 NT_STATUS_OK
Close 11 NT_STATUS_OK
Rename "\\clients\\client1\\b" "\\clients\\client1\\A" NT_STATUS_OK
Unlink "\\clients\\client1\\A" 0x6 NT_STATUS_OK
Deltree "\\clients\\client1" NT_STATUS_OK
"""


def workload(**options: Any) -> Dbench:
    return Dbench(DbenchOptions.model_validate(options))


def case_of(cache: str = "warm", **geometry: int) -> Case:
    return Case("t", "dbench", geometry=Geometry(**geometry), cache=cache)

"""What tests of printed commands need."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def parser() -> Any:
    """The ceph tool's own parser of what is typed (package python3-ceph-argparse)."""
    tool = shutil.which("ceph")
    assert tool is not None
    python = Path(tool).read_text().splitlines()[0].removeprefix("#!").split()[0]
    find = "import ceph_argparse; print(ceph_argparse.__file__)"
    file = subprocess.check_output([python, "-c", find], text=True, timeout=PATIENCE).strip()
    spec = importlib.util.spec_from_file_location("ceph_argparse", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Libraries that are put into programs: which may be, what they say, and what that proves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.daos import libraries
from fsmatrix.backends.errors import BackendError
from tests.backends.daos.test_backend_dfuse import dfuse
from tests.backends.daos_standin import Standin

# as their sources print them (2.6); interleaved, as mpirun hands on what several ranks say
IOIL = """\
12/34/5 host DAOS[1/1/0] setrlimit WARN file_limit_bump() cannot raise the limit
[libioil] Performed 3 reads and 4 writes from 2 files
[libioil] Performed 10 reads and 0 writes from 1 files
"""
PIL4DFS = """\
libpil4dfs intercepting summary for ops on DFS:
[read   ]  5
libpil4dfs intercepting summary for ops on DFS:
[read   ]  0
[write  ]  7

[open   ]  2
[write  ]  0
[opendir]  1
[mmap   ]  0

[op_sum ]  15
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A shared library that is no DAOS's."""
    made = tmp_path / "libioil.so"
    shutil.copy(next(Path(path) for path in loaded()), made)
    return made


def loaded() -> list[str]:
    """Shared libraries that this very process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in lines if ".so" in line}
    return sorted(path for path in paths if os.access(path, os.R_OK))


def static_program(folder: Path) -> Path:
    """An ELF file without PT_INTERP: its program headers are cut off."""
    data = bytearray(Path(sys.executable).resolve().read_bytes()[:4096])
    data[56:58] = b"\0\0"
    made = folder / "static"
    made.write_bytes(bytes(data))
    made.chmod(0o755)
    return made


# -- which libraries ---------------------------------------------------------------------------
def test_a_library_of_ours_may_be_loaded(library: Path) -> None:
    assert libraries.find_interception("ioil", str(library)) == str(library)
    given = libraries.interception_environment("ioil", str(library))
    assert given == {"LD_PRELOAD": str(library), "D_IL_REPORT": "0"}
    assert libraries.interception_environment("pil4dfs", "/l.so")["D_IL_REPORT"] == "1"
    assert libraries.interception_environment("none", "") == {}


def test_which_libraries_may_not_be_loaded(library: Path, tmp_path: Path) -> None:
    library.chmod(0o666)
    assert "can be written to by others (mode 666)" in libraries.program_distrust(str(library))
    library.chmod(0o755)
    assert libraries.program_distrust(str(library)) == ""
    for odd in ("libioil.so", f"{library}:/tmp/x.so", "/a b.so", "/$ORIGIN/x.so", "/a\0b"):
        assert "is no absolute path without" in libraries.program_distrust(odd)
    assert "No such file" in libraries.program_distrust(str(tmp_path / "no.so"))
    (tmp_path / "text.so").write_text("no library")
    assert "is no shared library" in libraries.program_distrust(str(tmp_path / "text.so"))
    assert "is no regular file" in libraries.program_distrust(str(tmp_path))
    with pytest.raises(BackendError, match=r"interception_library: .*no shared library"):
        libraries.find_interception("ioil", str(tmp_path / "text.so"))
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    shutil.copy(library, open_folder)
    assert "can be written to by others" in libraries.program_distrust(
        str(open_folder / library.name)
    )


@pytest.mark.setuid
def test_a_library_of_somebody_else(library: Path) -> None:
    os.chown(library, 65534, 65534)
    assert "belongs to nobody" in libraries.program_distrust(str(library))


def test_where_it_is_looked_for(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_SYSTEM", ())
    monkeypatch.setenv("LD_LIBRARY_PATH", f"relative::/no-such:{tmp_path}")
    assert libraries.find_interception("ioil") == str(library)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    with pytest.raises(BackendError, match=r"no libioil\.so in LD_LIBRARY_PATH, beside dfuse"):
        libraries.find_interception("ioil")
    (tmp_path / "prefix/bin").mkdir(parents=True)
    (tmp_path / "prefix/lib64").mkdir()
    program = tmp_path / "prefix/bin/dfuse"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    beside = Path(shutil.copy(library, tmp_path / "prefix/lib64"))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert libraries.find_interception("ioil") == str(beside)


# -- which programs ----------------------------------------------------------------------------
def test_programs_that_no_library_is_put_into(tmp_path: Path) -> None:
    python = str(Path(sys.executable).resolve())
    assert libraries.preload_refusal(python) == ""
    assert "is statically linked" in libraries.preload_refusal(str(static_program(tmp_path)))
    own = Path(shutil.copy(python, tmp_path / "own"))
    own.chmod(0o4755)
    assert "other rights than its caller's" in libraries.preload_refusal(str(own))
    script = tmp_path / "wrapper"
    script.write_text("#!/bin/sh\nexec ior\n")
    assert libraries.preload_refusal(str(script)) == ""
    assert "cannot be looked at" in libraries.preload_refusal(str(tmp_path / "no"))
    (tmp_path / "torn").write_bytes(b"\x7fELF\2\1")
    assert "cannot be looked at" in libraries.preload_refusal(str(tmp_path / "torn"))


@pytest.mark.needs("compiler")
def test_a_program_that_was_linked_statically(tmp_path: Path) -> None:
    source = "int main(void) { return 0; }"
    argv = ["cc", "-static", "-nostdlib", "-Wl,-e,main", "-x", "c", "-", "-o"]
    done = subprocess.run([*argv, str(tmp_path / "s")], input=source, text=True, check=False)
    assert done.returncode == 0
    assert "is statically linked" in libraries.preload_refusal(str(tmp_path / "s"))


def test_what_the_backend_refuses(
    standin: Standin, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = dfuse(interception="ioil", interception_library=str(library))
    assert backend.engine_refusal({}, "ior", sys.executable) == ""
    assert "statically linked" in backend.engine_refusal({}, "ior", str(static_program(tmp_path)))
    assert backend.engine_refusal({}, "player") == ""  # the player: it is a Python's process
    static = str(static_program(tmp_path))
    assert dfuse().engine_refusal({}, "ior", static) == ""
    assert "statically linked" in dfuse().engine_refusal({"interception": "pil4dfs"}, "ior", static)
    monkeypatch.setattr(sys, "executable", static)
    assert "statically linked" in backend.engine_refusal({}, "player")
    assert backend.engine_refusal({"interception": "none"}, "player") == ""
    wrong = dfuse(interception="ioil", interception_library=str(tmp_path / "no.so"))
    assert "No such file" in wrong.refusal()


# -- what they say -----------------------------------------------------------------------------
def test_the_sums_of_libioil() -> None:
    seen = libraries.counted("ioil", ["", IOIL, IOIL])
    assert (seen.library, seen.summaries) == ("ioil", 4)
    assert seen.calls == {"read": 26, "write": 8}
    nothing = libraries.counted("ioil", ["some text\n"])
    assert (nothing.summaries, dict(nothing.calls)) == (0, {"read": 0, "write": 0})


def test_the_sums_of_libpil4dfs() -> None:
    seen = libraries.counted("pil4dfs", [PIL4DFS])
    assert seen.summaries == 2
    assert seen.calls == {"read": 5, "write": 7, "open": 2, "opendir": 1, "mmap": 0}
    assert libraries.counted("pil4dfs", []).calls == {}

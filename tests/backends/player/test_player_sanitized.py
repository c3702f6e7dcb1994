"""The player's loop with a queue and its drivers of paths, built with ASAN and with TSAN.

stress.c is the program: the core in C without Python, whose own memory and threads a sanitizer
would judge too.  TSAN knows nothing of what the kernel does with a ring: it judges the lanes.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from fsmatrix.backends.player import player
from tests import asking
from tests.waiting import PATIENCE

pytestmark = pytest.mark.needs("compiler")

NATIVE = Path(player.__file__).parent / "native"
SOURCE = Path(__file__).with_name("stress.c")
PARTS = ("player", "lane", "flight", "workers", "posix", "uring", "ring", "folders", "root")
SANITIZERS = {"asan": "address,undefined", "tsan": "thread"}
DRIVERS = ["uring", "uring-sqpoll", "posix-threads"]


@pytest.fixture(scope="module", params=SANITIZERS)
def stress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built with a sanitizer."""
    made = tmp_path_factory.mktemp(request.param) / "stress"
    argv = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    argv += [f"-fsanitize={SANITIZERS[request.param]}", "-fno-sanitize-recover=all"]
    argv += ["-o", str(made), "-x", "c"]
    empty = subprocess.run(
        [*argv, "-"],
        input="int main(void) { return 0; }",
        capture_output=True,
        text=True,
        check=False,
    )
    if empty.returncode:
        pytest.skip(f"the compiler has no {request.param}: {empty.stderr.strip()[-200:]}")
    parts = [str(NATIVE / f"{part}.c") for part in PARTS]
    subprocess.run([*argv, f"-I{NATIVE}", str(SOURCE), *parts, "-ldl"], check=True)
    return made


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name.startswith("uring") and (reason := asking.why_not("io_uring")):
        pytest.skip(reason)
    return name


@pytest.mark.parametrize(("threads", "depth"), [(1, 1), (1, 64), (4, 16)])
def test_no_sanitizer_finds_anything(
    stress: Path, driver: str, tmp_path: Path, threads: int, depth: int
) -> None:
    argv = [stress, driver, tmp_path, str(threads), str(depth), "5"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("plays\nerrors 0\n", "")
    assert done.returncode == 0


def test_killed_in_the_midst(stress: Path, driver: str, tmp_path: Path) -> None:
    """With operations in flight in several rings: nothing is said, and another works there."""
    argv = [stress, driver, tmp_path, "4", "64", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"plays\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (-signal.SIGKILL, b"")
    again = subprocess.run([*argv[:5], "1"], capture_output=True, timeout=PATIENCE, check=False)
    assert (again.stdout, again.returncode) == (b"plays\nerrors 0\n", 0)

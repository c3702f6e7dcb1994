"""All tests with the real parts: `make test`.  Or without them: `make check`.

    python -m tests.whole [--check] [words for pytest]

What killed runs of this user left is removed first.  Then the tests run side by side, then those
marked `quiet` alone, each part in a folder and a TMPDIR of this run's own.  At the end: a table of
the minutes, and what the tests left on the machine: nothing, or it is a failure.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

import psutil

from fsmatrix.backends.system.mounts import MOUNTINFO
from tests.whole import leftovers, table
from tests.whole.place import PREFIX, TESTS, TOKEN, Place, dead_places, others

ROOT = Path(__file__).resolve().parents[2]
WORKER_MEMORY = 2 << 30  # bytes: a worker and the Ceph that it may bring up
WORKERS_PER_CPU = 2  # many of them wait for a storage system or a batch system
CHECK_WORKERS = 1  # per CPU: each collects all tests, and few of these wait
QUIET = "pytest.mark.quiet"
NO_TESTS = 5  # pytest's exit status
INTERRUPTED = 130


def main() -> int:
    """The exit status: 0 if every test passed and left nothing."""
    asked, words = _arguments()
    _share_mounts()
    for dead in dead_places():
        _say([f"a run of these tests was killed: {dead.folder}", *dead.clear()])
    before, place, stop = leftovers.Machine.now(), Place.make(), Stop()
    started, statuses, left = time.monotonic(), [], []
    try:
        _warm_up(place)
        for number, part in enumerate(_parts(asked.check, asked.jobs, words)):
            if not stop.asked:
                statuses.append(_pytest(place, number, [*part, *words], stop))
        print(table.table(table.by_module(place.reports()), time.monotonic() - started), flush=True)
        left, alone = place.left(), others() == [place.folder]
    finally:
        ended = place.clear()
    new = leftovers.Machine.now().new_since(before) if alone else []
    left += [line for line in new if f"/{PREFIX}" not in line]  # what is in a run of another user
    if stop.asked:
        _say(ended)
        return INTERRUPTED
    _say([f"left behind: {line}" for line in left] or ["the tests left nothing on this machine"])
    failed = [status for status in statuses if status not in (0, NO_TESTS)]
    return failed[0] if failed else int(bool(left))


def _share_mounts() -> None:
    """Root: start anew where mounts are shared between namespaces, as systemd has them.

    Elsewhere (a container, a machine without systemd) a namespace that one test makes keeps what
    other tests have mounted, and their loop devices, in use until it ends.
    """
    roots = [line for line in MOUNTINFO.read_text().splitlines() if line.split()[4] == "/"]
    apart = ["unshare", "--mount", "--propagation", "shared"]
    if os.geteuid() != 0 or " shared:" in roots[-1]:
        return
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode != 0:
        return  # it may not: nor may tests
    os.execvp(apart[0], [*apart, sys.executable, *sys.orig_argv[1:]])


class Stop:
    """Ctrl-C and SIGTERM: the tests end, and what they leave is removed all the same."""

    def __init__(self) -> None:
        self.asked = False
        self.running: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self.running is not None:
            self.running.send_signal(signal.SIGINT)


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tests.whole", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only what needs no real part")
    parser.add_argument("--jobs", type=int, help="how many tests side by side")
    asked, words = parser.parse_known_args()
    asked.jobs = asked.jobs or _workers(CHECK_WORKERS if asked.check else WORKERS_PER_CPU)
    return asked, words


def _workers(per_cpu: int) -> int:
    """As many as keep the CPUs busy and fit into the memory that is free."""
    fit = psutil.virtual_memory().available // WORKER_MEMORY
    return max(1, min(per_cpu * len(os.sched_getaffinity(0)), int(fit)))


def _parts(check: bool, jobs: int, words: Sequence[str]) -> list[list[str]]:
    """Words for pytest: of the tests side by side, and of those that run alone."""
    beside = ["-n", str(jobs), "--dist", "loadscope", "--no-loadscope-reorder"]
    beside += [
        "--max-worker-restart",
        "0",
    ]  # a new worker in place of a killed one may wait for ever
    if check:
        return [[*beside, "-m", "not real"]]
    return [[*beside, "-m", "not quiet"], ["-m", "quiet", *_quiet(words)]]


def _quiet(words: Sequence[str]) -> list[str]:
    """Modules with tests to run alone, if all are asked for: no other is collected once more."""
    if any((ROOT / word.partition("::")[0]).exists() for word in words):
        return []
    modules = sorted(ROOT.glob("tests/**/test_*.py"))
    return [str(path) for path in modules if QUIET in path.read_text(encoding="utf-8")]


def _pytest(place: Place, number: int, words: Sequence[str], stop: Stop) -> int:
    """One part of the tests; its exit status."""
    argv = [sys.executable, "-P", "-m", "pytest", f"--basetemp={place.folder / TESTS}{number}"]
    argv += [f"--junitxml={place.report(number)}", *words]
    stop.running = subprocess.Popen(argv, cwd=ROOT, env=_environment(place), start_new_session=True)
    try:
        return stop.running.wait()
    finally:
        stop.running = None


def _environment(place: Place) -> dict[str, str]:
    """Of the tests."""
    variables = {**os.environ, **place.environment}
    variables["OPENBLAS_NUM_THREADS"] = "1"  # more would only take turns with other tests
    if variables.pop("PYTHONDONTWRITEBYTECODE", ""):  # each of thousands of programs would compile
        variables["PYTHONPYCACHEPREFIX"] = str(place.folder / "bytecode")
    return variables


def _warm_up(place: Place) -> None:
    """In a fresh checkout pytest rewrites each module: here once, and not once in every worker."""
    variables = _environment(place)
    cached = ROOT.glob("tests/house/__pycache__/*pytest*.pyc")
    if TOKEN in os.environ or ("PYTHONPYCACHEPREFIX" not in variables and any(cached)):
        return  # it is within such a run, or not the first one
    modules = sorted(map(str, ROOT.glob("tests/**/test_*.py")))
    parts = len(os.sched_getaffinity(0))
    words = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly"]
    started = [
        subprocess.Popen(
            [*words, *modules[part::parts]], cwd=ROOT, env=variables, stdout=subprocess.DEVNULL
        )
        for part in range(parts)
    ]
    for each in started:
        each.wait()  # what is wrong with a module, its collection tells once more


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

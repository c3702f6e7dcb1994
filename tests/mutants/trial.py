"""A mutant's trial: a copy of the project with a Python of its own, and the tests of its folder."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.places import Mutant
from tests.whole.place import TESTS, Place

NATIVE = ("setup.py", "backends/player/native")  # of what the extension is made
EXTENSION = "fsmatrix.backends.player._player"
NO_TESTS = 5  # pytest's exit status
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Limits:
    """How a mutant is tried."""

    jobs: int = 2  # tests at once
    whole: bool = False  # all tests of the top folder, if those of its own let it live
    seconds: float = 900.0  # for all of it


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant."""

    verdict: str  # killed, by time, survived, unsure, gone
    by: str = ""  # the test that failed
    said: str = ""  # pytest's last line
    seconds: float = 0.0


@dataclass(frozen=True)
class Ended:
    """How pytest ended."""

    status: int | None  # None: it was too slow
    said: str
    failed: str  # the first test

    @property
    def passed(self) -> bool:
        """Whether no test failed."""
        return self.status in (0, NO_TESTS)


# -- the copy ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Copy:
    """A clone of the project, and the Python that imports it."""

    tree: Path
    python: Path
    built: str  # the commit whose C extension this Python has
    ages: Iterator[int]  # of files that are written: bytecode of another content never fits

    def git(self, *words: str) -> str:
        """What git prints in it."""
        return _output("git", "-C", str(self.tree), *words).strip()

    def check_out(self, revision: str) -> None:
        """Make it this revision, with the C extension of it."""
        self.git("checkout", "--quiet", "--detach", revision)
        extension = importlib.util.find_spec(EXTENSION)
        if extension is None or extension.origin is None:
            print("The C extension is not built here: tests that need it are skipped.", flush=True)
            return
        if self.git("diff", "--name-only", self.built, "HEAD", "--", *NATIVE):
            _output(str(self.python), "setup.py", "--quiet", "build_ext", "--inplace", at=self.tree)
        else:
            shutil.copy(extension.origin, self.tree / "backends" / "player")

    @contextlib.contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        """The copy while the mutant is in it."""
        path = self.tree / mutant.place.path
        source = path.read_bytes()
        try:
            self._write(path, mutant.apply(source))
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        age = next(self.ages)
        os.utime(path, (age, age))


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """A copy of what is committed, in a temporary folder with a short name (of sockets)."""
    folder = Path(tempfile.mkdtemp(prefix="m"))
    try:
        folder.chmod(0o755)  # tests become other users
        tree = folder / "t"
        _output("git", "clone", "--quiet", "--shared", str(root), str(tree))
        python = _own_python(folder / "v", tree)
        place = _output(str(python), "-P", "-c", "import fsmatrix; print(fsmatrix.__file__)")
        if not place.startswith(f"{tree}{os.sep}"):
            sys.exit(f"mutants: {python} imports {place.strip()}, not the copy")
        yield Copy(tree, python, commit(root, "HEAD"), itertools.count(1_000_000_000))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit(root: Path, revision: str) -> str:
    """Its full name."""
    return _output("git", "-C", str(root), "rev-parse", f"{revision}^{{commit}}").strip()


def _own_python(folder: Path, tree: Path) -> Path:
    """One with all that this one has, but fsmatrix of the copy, in every process that it starts."""
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    lines = f"{sysconfig.get_path('purelib')}\n{tree}\n"  # no .pth file of the first is read
    Path(packages, "copy.pth").write_text(lines)
    for name in ("bin", "lib", "etc", "share", "include"):  # Open MPI has files in all of them
        here = Path(sys.prefix, name)
        for path in sorted(here.iterdir()) if here.is_dir() else ():
            _bring(path, folder / name / path.name)
    return folder / "bin" / "python"


def _bring(path: Path, to: Path) -> None:
    """A link to it; a script names its Python."""
    if to.exists() or to.is_symlink():
        return
    to.parent.mkdir(exist_ok=True)
    text = path.read_bytes() if path.parent.name == "bin" and path.is_file() else b""
    if text.startswith(b"#!"):
        to.write_bytes(text.replace(os.fsencode(sys.prefix), os.fsencode(to.parents[1])))
        to.chmod(0o755)
    else:
        to.symlink_to(path.absolute())


def _output(*argv: str, at: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=at, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"mutants: {' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


# -- the tests -----------------------------------------------------------------------------------
def try_out(copy: Copy, mutant: Mutant, limits: Limits) -> Verdict:
    """Run its tests until one kills it."""
    began = time.monotonic()
    said = ""
    for words in stages(copy.tree, mutant.place.path, limits.whole):
        left = limits.seconds - (time.monotonic() - began)
        with copy.with_mutant(mutant):
            ended = run(copy, words, limits.jobs, left)
        said = ended.said
        if not ended.passed:
            verdict = "by time" if ended.status is None else _confirm(copy, mutant, words, ended)
            return Verdict(verdict, ended.failed, said, time.monotonic() - began)
    return Verdict("survived", "", said, time.monotonic() - began)


def _confirm(copy: Copy, mutant: Mutant, words: Sequence[str], ended: Ended) -> str:
    """Killed if the test alone fails again with the mutant and passes without it."""
    alone = [ended.failed] if ended.failed else ["--collect-only", *words]
    with copy.with_mutant(mutant):
        again = run(copy, alone, 1, Limits.seconds)
    without = run(copy, alone, 1, Limits.seconds)
    return "killed" if without.passed and not again.passed else "unsure"


def stages(tree: Path, path: str, whole: bool) -> list[list[str]]:
    """Words for pytest: test modules that import it, its folder's others, those of the top one."""
    place = Path(path)
    top = Path("tests", place.parts[0])
    folder = Path("tests", *place.parts[:-1])
    while not (tree / folder).is_dir():
        folder = folder.parent
    first = importers(tree, top, place)
    inside = [str(folder)]
    if folder == top:  # what is in its folders mirrors others
        inside = [str(one.relative_to(tree)) for one in sorted((tree / top).glob("test_*.py"))]
    rest = [word for word in inside if word not in first]
    found = [first, [*rest, *_but(first)] if rest else []]
    found += [[str(top), *_but([*first, *inside])]] if whole else []
    return [words for words in found if words]


def _but(words: Sequence[str]) -> list[str]:
    return [f"--ignore={word}" for word in words]


def importers(tree: Path, top: Path, place: Path) -> list[str]:
    """Test modules below a folder that name the module."""
    parts = ["fsmatrix", *place.with_suffix("").parts]
    *parents, name = parts[:-1] if parts[-1] == "__init__" else parts
    parent = re.escape(".".join(parents))
    names = re.compile(
        rf"\b{parent}\.{name}(?![\w.])|from {parent} import (\([^)]*|[^\n]*)\b{name}\b"
    )
    every = sorted((tree / top).rglob("test_*.py"))
    return [str(one.relative_to(tree)) for one in every if names.search(one.read_text())]


def run(copy: Copy, words: Sequence[str], jobs: int, seconds: float) -> Ended:
    """pytest until the first failure, or for so many seconds; what it leaves is ended."""
    place = Place.make()
    argv = [str(copy.python), "-P", "-m", "pytest", "-x", "-q"]
    argv += ["-p", "no:randomly", "-p", "no:cacheprovider", f"--basetemp={place.folder / TESTS}0"]
    if jobs > 1:
        argv += ["-n", str(jobs), "--dist", "loadscope"]
    path = os.environ["PATH"].replace(sys.prefix, str(copy.python.parents[1]))
    env = {**os.environ, **place.environment, "PATH": path, "OPENBLAS_NUM_THREADS": "1"}
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        env.pop(name, None)
    with tempfile.TemporaryFile("w+", errors="replace") as output:  # daemons may hold it open
        process = subprocess.Popen(
            [*argv, *words],
            cwd=copy.tree,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            status = process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            place.clear()
            process.wait()
        output.seek(0)
        text = output.read()
    failed = _FAILED.search(text)
    return Ended(status, (text.strip().splitlines() or [""])[-1], failed[1] if failed else "")

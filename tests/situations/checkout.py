"""A copy of this checkout in which `make demo` is typed, and what came of it; no test in here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fsmatrix.results.files.runfile import read_run
from fsmatrix.results.files.store import Store

ROOT = Path(__file__).parents[2]
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv", "*-out", "build", "*.egg-info", "__pycache__", ".*_cache", "*.so"
)
# a few runs of each target: what is looked at is whether they can be had, not how fast they are
FEW = "--set repetitions=1 --only chunk=1MiB,processes_per_node=1"
PATTERNS = 4
# for minutes: what other tests unmount meanwhile must be unmounted in it too
APART = ("unshare", "--mount", "--propagation", "slave")
DEADLINE = 900.0  # seconds; the first one installs everything, on a busy machine too


@dataclass(frozen=True)
class Done:
    """What `make demo` printed, its status, and the results that it left."""

    status: int
    text: str
    out: Path

    @property
    def compared(self) -> dict[str, int]:
        """Target -> runs, of which none may have failed."""
        records = [read_run(run) for run in Store.open(self.out).files()]
        assert [record.error for record in records if record.status != "ok"] == []
        return dict(Counter(json.loads(record.case)["target"] for record in records))

    @property
    def engines(self) -> set[str]:
        """Engines of all runs."""
        return {read_run(run).engine for run in Store.open(self.out).files()}

    @property
    def left_out(self) -> dict[str, str]:
        """Target -> why it took no part, as stored with the campaign."""
        plan: dict[str, Any] = json.loads((self.out / "campaign.json").read_text())
        return {left["target"]: left["reason"] for left in plan["left_out"]}


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that every user may enter (pytest's may not); removed at the end."""
    place = Path(mkdtemp(prefix="situations-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def copy_to(place: Path) -> Path:
    """A copy of this checkout without what was built in it."""
    return Path(shutil.copytree(ROOT, place, ignore=LEFT_BEHIND, symlinks=True))


def demo(
    checkout: Path,
    out: str,
    *words: str,
    before: Sequence[str] = (),
    inside: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Type `make demo` in a checkout.

    `before`: words that make the situation and then run the rest.  `inside`: the root that the
    command sees, where it is not ours.
    """
    seen = checkout if inside is None else Path("/") / checkout.relative_to(inside)
    argv = [*before, "make", "-C", str(seen), "demo", f"OUT={out}", f"RUN={FEW}", *words]
    ran = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )
    return Done(ran.returncode, ran.stdout + ran.stderr, checkout / out)

"""The mutants of `python -m tests.mutants`: drawn by a seed, one small change each, none unsafe."""

from __future__ import annotations

import ast
import itertools
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from fsmatrix.results.process import start_of
from tests.mutants import drawn, places, trial
from tests.mutants.places import Mutant

ROOT = Path(__file__).resolve().parents[2]
# Calls that remove, overwrite, unmount or end something.
DESTROY = re.compile(
    r"\b(?:rmtree|remove_tree|unlink|rmdir|removedirs|f?truncate"
    r"|kill|killpg|terminate|send_signal|sweep|end_leftovers|undo\w*"
    r"|umount2?|unmount|mkfs|destroy|remove_run)\("
)


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    return drawn.draw(ROOT, 40, 1)


def test_a_seed_draws_the_same_mutants_and_more_begin_with_them(mutants: list[Mutant]) -> None:
    assert drawn.draw(ROOT, 40, 1) == mutants
    assert drawn.draw(ROOT, 40, 2) != mutants
    assert {*mutants} < {*drawn.draw(ROOT, 60, 1)}


def test_folders_have_equal_parts(mutants: list[Mutant]) -> None:
    parts = Counter(mutant.place.path.partition("/")[0] for mutant in mutants)
    assert parts == dict.fromkeys(drawn.FOLDERS, 8)


def test_a_mutant_is_a_program_that_differs_in_one_place(mutants: list[Mutant]) -> None:
    for mutant in [*mutants, *drawn.draw(ROOT, 40, 2)]:
        source = (ROOT / mutant.place.path).read_bytes()
        changed = mutant.apply(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant
        assert changed[: mutant.place.start] == source[: mutant.place.start]
        after = len(source) - mutant.place.end
        assert changed[len(changed) - after :] == source[mutant.place.end :]
        assert mutant.line(source) != mutant.place.text


def test_what_decides_over_the_machine_is_never_changed(mutants: list[Mutant]) -> None:
    prefixes = drawn.LEFT_OUT.prefixes
    assert not [one for one in mutants if one.place.path.startswith(prefixes)]
    for prefix in prefixes:
        assert list(ROOT.glob(f"{prefix}*")), f"{prefix} is nowhere"


def test_modules_that_destroy_are_never_changed() -> None:
    for path in [path for folder in drawn.FOLDERS for path in drawn.modules(ROOT, folder)]:
        found = DESTROY.findall((ROOT / path).read_text(encoding="utf-8"))
        assert not found, f"{path}: name it in LEFT_OUT of tests/mutants/drawn.py"


SOURCE = b'''\
"""1 < 2, and 3."""
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    print(1)
__all__ = ["a", "b"][:2]
Word = Literal[1, 2]


class Some:
    at: "list[1]" = 7

    @wraps(5)
    def has(self, among, limit=4) -> bool:
        if limit < among not in (self):  # \xc3\xa9
            raise ValueError(f"{limit + 1} is more than {8}")
        self.tell()
        return min(among, "a" + "b") and limit - among
'''


def test_places_are_code_alone() -> None:
    found = [(one.function, one.line, one.kind, one.news) for one in places.places("a", SOURCE)]
    assert sorted(found) == [
        ("Some", 11, "number", ("8", "6")),
        ("Some.has", 14, "number", ("5", "3")),
        ("Some.has", 15, "comparison", ("<=",)),
        ("Some.has", 15, "comparison", ("in",)),
        ("Some.has", 15, "condition", ("not (limit < among not in (self))",)),
        ("Some.has", 17, "call", ("pass",)),
        ("Some.has", 18, "answer", ('not (min(among, "a" + "b") and limit - among)',)),
        ("Some.has", 18, "arithmetic", ("+",)),
        ("Some.has", 18, "extreme", ("max",)),
        ("Some.has", 18, "logic", ("or",)),
    ]


def test_a_mutant_is_found_where_lines_have_moved(tmp_path: Path) -> None:
    for place in random.Random(1).sample(places.places("a.py", SOURCE), 5):
        mutant = Mutant(place, place.news[0])
        (tmp_path / "a.py").write_bytes(b"# one more line\n" + SOURCE)
        moved = mutant.find(tmp_path)
        assert moved is not None
        assert moved.place.line == place.line + 1
        (tmp_path / "a.py").write_bytes(b"")
        assert mutant.find(tmp_path) is None


def test_tests_that_import_the_module_come_first() -> None:
    module = "suite/session/players.py"
    first, rest, whole = trial.stages(ROOT, module, whole=True)
    assert "tests/suite/session/players/test_turns.py" in first
    assert rest == ["tests/suite/session", *(f"--ignore={name}" for name in first)]
    assert whole[0] == "tests/suite"
    assert whole[-1] == "--ignore=tests/suite/session"


def test_what_the_tests_of_a_trial_leave_is_ended(tmp_path: Path) -> None:
    """A process in a session of its own, as those of test beds are."""
    told = tmp_path / "told"
    (tmp_path / "test_leaves.py").write_text(
        "import pathlib, subprocess\n\n\n"
        "def test_leaves():\n"
        '    sleep = subprocess.Popen(["sleep", "1000"], start_new_session=True)\n'
        f"    pathlib.Path({str(told)!r}).write_text(str(sleep.pid))\n"
        "    assert not sleep\n"
    )
    copy = trial.Copy(tmp_path, Path(sys.executable), "", itertools.count())
    ended = trial.run(copy, ["test_leaves.py"], 1, 240.0)
    assert (ended.status, ended.failed) == (1, "")
    assert not start_of(int(told.read_text()))

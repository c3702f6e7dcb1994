"""docs/performance.md has the command of every bench, or says why one is missing; no figure."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"


@pytest.fixture(scope="module")
def every() -> ModuleType:
    """bench/all.py, which makes the page."""
    spec = importlib.util.spec_from_file_location("bench_all", ROOT / "bench" / "all.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_all"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_program_is_a_bench_or_a_part_of_one(every: ModuleType) -> None:
    benches = {bench.name for bench in every.BENCHES}
    assert len(benches) == len(every.BENCHES)
    assert set(every.PARTS.values()) <= benches
    programs = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert programs == benches | set(every.PARTS) | {"all"}


def test_the_page_has_the_command_of_each(every: ModuleType) -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    told = {name: text for name, _, text in (part.partition("\n") for part in sections)}
    assert list(told) == [bench.name for bench in every.BENCHES]
    for bench in every.BENCHES:
        commands = [" ".join(["python", *bench.command(whole)]) for whole in (False, True)]
        assert any(f"`{command}`" in told[bench.name] for command in commands), bench.name
        printed = "```text\n" in told[bench.name]
        assert printed or re.search(r": not run.*: ?\S|not installed", told[bench.name]), bench.name


def test_what_cannot_run_says_why(every: ModuleType) -> None:
    missing = every.Bench("player", needs=("no-such-program", "sh"))
    assert every.why_not(missing, whole=True) == "not run: no-such-program not installed"
    slow = every.Bench("player", long="takes a day")
    assert "takes a day" in every.why_not(slow, whole=False)
    assert not every.why_not(slow, whole=True)


def test_one_that_takes_too_long_is_ended(
    every: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "sleeps.py").write_text(
        "import time\nprint('a table', flush=True)\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(every, "ROOT", tmp_path)
    monkeypatch.setattr(every, "SHORT", 3)
    monkeypatch.setattr(every, "GRACE", 3)
    trial = every.tried(every.Bench("sleeps"), whole=False, busy=1)
    assert trial.printed == "a table"
    assert "ended after the 3 s" in trial.words()
    assert "1 busy loops beside it" in trial.words()

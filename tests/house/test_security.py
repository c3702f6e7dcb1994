"""SECURITY.md: the tests it names exist, and its lists are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from fsmatrix.backends import contract
from fsmatrix.backends.local.local import LocalOptions
from fsmatrix.suite.workloads.dbench import WORDS as DBENCH
from fsmatrix.suite.workloads.ior import WORDS as IOR

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()


def row(begins: str) -> str:
    return next(line for line in TEXT.splitlines() if line.startswith(f"| {begins}"))


def test_named_tests_exist() -> None:
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"test_\w+\.py", TEXT)) <= names
    for path in re.findall(r"(?:tests/)?(?:suite|backends)/[\w/]+\.py", TEXT):
        assert (ROOT / path).exists(), path


def test_the_lists_are_those_of_the_code() -> None:
    rows = {
        "xfs": "xfs",
        "ext4": "ext2, ext4",
        "btrfs": "btrfs",
        "f2fs": "f2fs",
        "nilfs2": "nilfs2",
    }
    for name, begins in rows.items():
        kind = contract.load(name).Options
        assert issubclass(kind, LocalOptions)
        allowed = row(f"`mkfs_options` of {begins} |").split(" | ")[2].partition("; not")[0]
        short = {option for option in kind.mkfs_words.options if not option.startswith("--")}
        assert set(re.findall(r"(?<![\w-])-\w\b", allowed)) == short, name
    ior = row("`extra_arguments` of ior |").split(" | ")[2].partition("; not")[0]
    assert set(re.findall(r"(?<![\w-])-\w\b", ior)) == {
        option for option in IOR.options if len(option) == 2
    }
    dbench = row("`extra_arguments` of dbench |")
    assert set(re.findall(r"--[\w-]+", dbench)) == {
        option for option in DBENCH.options if option.startswith("--")
    }


def test_the_threat_model_names_every_input_and_its_tests() -> None:
    model = TEXT.partition("### What each kind of input can do")[2].partition("\n## ")[0]
    inputs = (
        "campaign YAML",
        "site file",
        "user settings",
        "results directory",
        "journal",
        "run file",
        "campaign file",
        "bundle",
        "output of a benchmark",
        "test bed's directory",
        "environment",
        "plugin",
    )
    for name in inputs:
        (line,) = [row for row in model.splitlines() if row.startswith(f"| {name}")]
        cells = line.strip("| ").split(" | ")
        assert len(cells) == 5, name
        paths = re.findall(r"tests/[\w/]+\.py", cells[-1])
        assert paths, name
        assert all((ROOT / path).exists() for path in paths), name

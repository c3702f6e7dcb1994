"""Shell completion, asked as the shells ask it; what lies about can do nothing by being there."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsmatrix.analysis.units import METRICS
from fsmatrix.cli import completion
from fsmatrix.results.files.store import Store
from fsmatrix.suite.campaign.settings import ready
from tests.analysis import campaigns
from tests.results import hostile
from tests.waiting import PATIENCE

PROGRAM = Path(sys.executable).parent / "fsmatrix"
VARIABLE = "_FSMATRIX_COMPLETE"
# what bash does at a <TAB>, by the script that it was given; the words as it divides them
ASK = """
source /dev/stdin <<< "$SCRIPT"
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=()
_fsmatrix_completion fsmatrix
printf '%s\\n' "${COMPREPLY[@]}"
"""
HEAVY = (
    "xarray",
    "pandas",
    "scipy",
    "matplotlib",
    "mpi4py",
    "plotly",
    "fsmatrix.suite.run.execute",
)
NAMES = (
    "$(touch pwned).yaml",
    "`touch pwned`.yaml",
    "a b.yaml",
    "';touch pwned;'.yaml",
    "-rf.yaml",
    "x\ny.yaml",
    "esc\x1b[2J.yaml",
    "ü.yaml",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's directory: a campaign, results merged and not merged."""
    made = tmp_path_factory.mktemp("here")
    (made / "mine.yaml").write_text(
        "campaign: mine\ntargets: {old: {backend: xfs}, new: {backend: ext4}}\n"
        "factors: {chunk: [4KiB, 1MiB], pattern: [seq-read]}\n"
    )
    (made / "sub").mkdir()
    (made / "notes.txt").write_text("no campaign")
    campaigns.write(made / "all.h5", campaigns.realistic(blocks=1))
    store = Store.create(made / "out")
    store.append(campaigns.realistic(blocks=1, targets=("xfs", "ext4")))
    store.merge()
    planned = Store.create(made / "planned").directory
    (planned / "campaign.json").write_text(
        '{"cases": [{"coordinates": {"target": "xfs", "chunk": 4096}},'
        ' {"coordinates": {"target": "ext4", "chunk": 1048576}}]}'
    )
    return made


@functools.cache
def script() -> str:
    """What a user gives to bash, once for a shell."""
    asked_for = {**os.environ, VARIABLE: "source_bash"}
    return subprocess.run(
        [PROGRAM], capture_output=True, text=True, env=asked_for, timeout=PATIENCE, check=True
    ).stdout


def bash(folder: Path, *words: str) -> list[str]:
    """What bash puts into the line."""
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", "fsmatrix", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "SCRIPT": script()},
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def asked(folder: Path, shell: str, line: str) -> str:
    """What fsmatrix prints for zsh or fish."""
    env = {
        VARIABLE: f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [PROGRAM],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_campaigns_and_results(folder: Path) -> None:
    assert set(bash(folder, "run", "")) == {*ready(), "mine.yaml", "out/", "planned/", "sub/"}
    assert bash(folder, "submit", "q") == ["quickstart"]
    assert bash(folder, "jobs", "smo") == ["smoke"]
    assert set(bash(folder, "show", "")) == {"all.h5", "out", "planned", "sub/"}
    assert bash(folder, "status", "pl") == ["planned"]
    assert bash(folder, "plan", "sub/../mi") == ["sub/../mine.yaml"]
    assert "ssd-cluster-setup" in bash(folder, "curves", "published", ":", "ssd-cl")
    assert bash(folder, "claims", "cern") == ["cern"]


def test_metrics_factors_targets_and_levels(folder: Path) -> None:
    assert bash(folder, "show", "out", "--metric", "") == sorted(METRICS)
    assert "processes_per_node" in bash(folder, "effects", "all.h5", "--factor", "")
    assert bash(folder, "compare", "all.h5", "--by", "target+pat") == ["target+pattern"]
    assert bash(folder, "compare", "all.h5", "--targets", "xfs,") == ["xfs,btrfs", "xfs,ext4"]
    assert "target=xfs" in bash(folder, "findings", "out", "--where", "")
    assert bash(folder, "findings", "out", "--audit", "too-s") == ["too-short"]
    runs = Store.open(folder / "out").ids()
    assert bash(folder, "logs", "out", "") == runs
    assert bash(folder, "show", "out", "--run", runs[0][:5]) == runs[:1]


def test_words_that_bash_divides(folder: Path) -> None:
    """bash makes three words of a=b, and replaces the last one only."""
    assert bash(folder, "compare", "out", "--where", "target", "=", "x") == ["xfs"]
    assert bash(folder, "compare", "out", "--where", "target", "=") == ["ext4", "xfs"]
    assert bash(folder, "compare", "out", "--where", "=", "target", "=", "x") == ["xfs"]
    assert bash(folder, "compare", "planned", "--where", "chunk", "=") == ["1MiB", "4KiB"]
    assert bash(folder, "plan", "mine.yaml", "--only", "target", "=") == ["new", "old"]
    line = ("plan", "mine.yaml", "--only", "target", "=", "old,chunk", "=", "4")
    assert bash(folder, *line) == ["4KiB"]


def test_zsh_and_fish(folder: Path) -> None:
    line = "fsmatrix compare out --where target="
    words = ["target=ext4", "target=xfs"]
    assert asked(folder, "fish", line).split() == words
    assert asked(folder, "zsh", line).split("((")[1].split("))")[0].split() == [
        f'"{word}"' for word in words
    ]
    assert "quickstart" in asked(folder, "fish", "fsmatrix run ")


def test_nothing_that_a_shell_would_evaluate_is_offered(tmp_path: Path) -> None:
    for name in (*NAMES, "sound.yaml"):
        (tmp_path / name).write_text("campaign: x\n")
    evil = ["$(touch pwned)", "`touch pwned`", "a;touch pwned", "x\ny", "esc\x1b]0;t\x07", "plain"]
    records = [hostile.record(name) for name in evil]
    store = Store.create(tmp_path / "out")
    store.append(records)
    store.merge()
    text = "".join(f"  {name!r}: {{backend: xfs}}\n" for name in ("$(touch pwned)", "good"))
    (tmp_path / "evil.yml").write_text(f"targets:\n{text}")
    assert set(bash(tmp_path, "run", "")) - set(ready()) == {"sound.yaml", "evil.yml", "out/"}
    assert bash(tmp_path, "compare", "out", "--targets", "") == ["plain"]
    assert bash(tmp_path, "plan", "evil.yml", "--only", "target", "=") == ["good"]
    zsh = asked(tmp_path, "zsh", "fsmatrix compare out --targets ")
    assert zsh == """_arguments '*: :(("plain"))'\n"""  # zsh evaluates this
    assert not (tmp_path / "pwned").exists()


def offered(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> list[str]:
    """What `--where` offers, asked in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COMP_WORDS", "\n".join(["fsmatrix", *words, "--where", ""]))
    monkeypatch.setenv("COMP_CWORD", str(len(words) + 2))
    return completion.levels(SimpleNamespace(info_name=words[0]), "")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["fifo", "folder", "text", "torn", "loop", "deep", "bomb"])
def test_files_that_harm_offer_nothing_and_say_nothing(
    kind: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    merged = Store.create(out).directory / "campaign.h5"
    if kind == "fifo":
        os.mkfifo(merged)
    elif kind == "folder":
        merged.mkdir()
    elif kind == "text":
        merged.write_text("\x1b[2J not HDF5")
    elif kind == "torn":
        merged.write_bytes((folder / "all.h5").read_bytes()[:5000])
    elif kind == "loop":
        merged.symlink_to(merged)
    else:
        merged.write_bytes((folder / "all.h5").read_bytes())
        hostile.craft(merged, hostile.deep if kind == "deep" else hostile.bomb)
    before = sorted(path.name for path in out.rglob("*"))
    assert "target=xfs" in offered(monkeypatch, folder, "compare", "out")
    assert offered(monkeypatch, tmp_path, "compare", "out") == []
    assert offered(monkeypatch, tmp_path, "compare", "out/campaign.h5") == []
    assert offered(monkeypatch, tmp_path, "plan", "out/campaign.h5") == []
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in out.rglob("*")) == before


@pytest.mark.parametrize(
    "plan", ["", "[]", '{"cases": 3}', '{"cases": [1, {"coordinates": []}]}', "[" * 100_000, "\0"]
)
def test_plans_that_are_none(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (Store.create(tmp_path / "out").directory / "campaign.json").write_text(plan)
    assert offered(monkeypatch, tmp_path, "compare", "out") == []


def test_it_loads_little(folder: Path) -> None:
    """A <TAB> must be quick: what takes seconds to load is not loaded (bench would time it)."""
    program = (
        "import sys; sys.argv[0] = 'fsmatrix'\n"
        "from fsmatrix.cli.main import main\n"
        "try: main()\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    env = {
        VARIABLE: "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "fsmatrix findings out --where target=",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.split() == ["target=ext4", "target=xfs"]
    assert done.stderr.strip() == "[]"

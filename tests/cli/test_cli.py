"""The command line: bad input is a message and status 2; --json is JSON; help has examples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.cli import main as cli

GOOD = """
campaign: small
targets:
  here: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 1MiB, chunk: 64KiB}}}}
factors: {{pattern: [seq-write], processes_per_node: [1]}}
repetitions: 1
"""


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Status of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["fsmatrix", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "200")
    return int(cli.command() or 0)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    target = tmp_path / "target"
    target.mkdir()
    (target / "sentinel").write_text("not yours")
    file = tmp_path / "small.yaml"
    file.write_text(GOOD.format(path=target))
    return file


BAD: dict[str, tuple[str, str, list[str]]] = {
    # what: (text in the campaign, what stands there instead, what the message must tell)
    "unknown key": ("repetitions: 1", "repetitons: 1", ["small.yaml:8", "repetitions"]),
    "wrong unit": ("per_process: 1MiB", "per_process: 1MX", ["small.yaml:6", "1MX", "MiB"]),
    "ambiguous unit": ("chunk: 64KiB", "chunk: 64k", ["64KiB", "64KB"]),
    "unknown backend": ("backend: directory", "backend: directroy", ["did you mean", "directory"]),
    "unknown workload": ("workload: pattern", "workload: patern", ["did you mean", "pattern"]),
    "zero size": ("chunk: 64KiB", "chunk: 0", ["chunk"]),
    "negative size": ("chunk: 64KiB", "chunk: -4096", ["chunk"]),
    "no rate": (
        "chunk: 64KiB",
        "chunk: 64KiB, rate: 0",
        ["small.yaml:6", "rate", "greater than 0"],
    ),
    "negative rate": ("chunk: 64KiB", "chunk: 64KiB, rate: -5", ["rate", "greater than 0"]),
    "a rate that is no number": ("chunk: 64KiB", "chunk: 64KiB, rate: max", ["rate", "number"]),
    "a rate beyond all machines": ("chunk: 64KiB", "chunk: 64KiB, rate: 1e10", ["1000000000"]),
    "a rate beyond the player": ("chunk: 64KiB", "chunk: 64KiB, rate: 1e8", ["at most 1e+07"]),
    "arrivals without a rate": ("chunk: 64KiB", "chunk: 64KiB, arrivals: poisson", ["a rate"]),
    "unknown arrivals": (
        "chunk: 64KiB",
        "chunk: 64KiB, rate: 5, arrivals: random",
        ["constant", "poisson"],
    ),
    "chunk beyond the file": ("chunk: 64KiB", "chunk: 2MiB", ["larger than the file"]),
    "factor of nothing": ("pattern: [seq-write]", "patern: [seq-write]", ["patern", "pattern"]),
    "too many cases": (
        "processes_per_node: [1]",
        "bytes_total: "
        + str([f"{n}MiB" for n in range(1, 40_000)])
        + ", threads: "
        + str(list(range(1, 30_000))),
        ["1199", "limits.cases"],
    ),
    "option of another backend": ("backend: directory", "backend: xfs", ["path", "size"]),
    "no repetition": ("repetitions: 1", "repetitions: 0", ["repetitions"]),
    "not YAML": ("repetitions: 1", "repetitions: [", ["small.yaml"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_campaigns_are_refused_and_nothing_is_written(
    name: str,
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new, told = BAD[name]
    text = campaign.read_text()
    assert old in text
    campaign.write_text(text.replace(old, new))
    assert call(monkeypatch, "run", campaign, "-o", tmp_path / "out") == 2
    captured = capsys.readouterr()
    assert all(word in captured.err for word in told), captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path / "target") == ["sentinel"]


def _file(place: Path) -> Path:
    place.write_text("a file")
    return place


def _link_out(place: Path) -> Path:
    place.symlink_to("/usr")
    return place


def _inside_store(place: Path) -> Path:
    place.mkdir()
    (place / "store.json").write_text("{}")
    (place / "below").mkdir()
    return place / "below"


PATHS: dict[str, tuple[Any, str]] = {
    "a file": (_file, "not a directory"),
    "missing": (lambda place: place, "does not exist"),
    "a link elsewhere": (_link_out, "symbolic link"),
    "inside another run": (_inside_store, "inside"),
}


@pytest.mark.parametrize("name", PATHS)
def test_bad_targets_are_refused(
    name: str,
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make, told = PATHS[name]
    place = make(tmp_path / "bad")
    campaign.write_text(GOOD.format(path=place))
    assert call(monkeypatch, "run", campaign, "-o", tmp_path / "out") == 2
    captured = capsys.readouterr()
    assert told in captured.err, captured.err
    assert str(place) in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.setuid
def test_a_target_that_may_not_be_written(campaign: Path, tmp_path: Path) -> None:
    """As root without any capability, whom another user's directory keeps out."""
    target = tmp_path / "target"
    target.chmod(0o755)
    os.chown(target, 65534, 65534)
    code = (
        "import sys;"
        "from fsmatrix.backends.local.directory import Directory, DirectoryOptions as O;"
        "print(Directory(O(path=sys.argv[1])).refusal())"
    )
    bare = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    done = subprocess.run(
        [*bare, sys.executable, "-P", "-c", code, str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "writ" in done.stdout, done.stdout + done.stderr


def test_a_target_without_space_is_refused(
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign.write_text(
        campaign.read_text().replace("bytes_per_process: 1MiB", "bytes_per_process: 900TiB")
    )
    assert call(monkeypatch, "run", campaign, "-o", tmp_path / "out") == 2
    assert "must hold 900.0TiB at once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "name a campaign"),
        (["run", "no-such-campaign"], "quickstart"),
        (["run", "no/such.yaml"], "cannot be read"),
        (["run", "smoke", "--shard", "3/2"], "k/N"),
        (["plan", "smoke", "--seed", "-1"], "must be from 0"),
        (["run", "smoke", "--seed", str(2**53)], "to 9007199254740991"),
        (["run", "smoke", "--set", "repetitions"], "key.path=value"),
        (["run", "smoke", "--set", "repetitions=many"], "repetitions"),
        (["run", "smoke", "--only", "colour=red"], "no such coordinate"),
        (["run", "smoke", "--only", "seq-read"], "'seq-read' is not key=value (keys: "),
        (["run", "smoke", "--only", "target=far"], "cases: target is "),
        (["show", "/no/such/dir"], "does not exist"),
        (["report", "/no/such/dir"], "does not exist"),
        (["show", "/etc/passwd"], "passwd"),
        (["jobs", "nothing"], "nothing"),
        (["submit", "smoke", "--scheduler", "nosuch"], "unknown scheduler"),
    ],
)
def test_bad_words_are_refused(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *words) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert "Traceback" not in captured.err
    assert os.listdir(tmp_path) == []


def test_an_output_directory_with_other_things_is_refused(
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    assert call(monkeypatch, "run", campaign, "-o", out) == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert os.listdir(out) == ["thesis.tex"]


@pytest.mark.parametrize("command", ["check", "jobs", "plan", "run", "show", "collect", "report"])
def test_help_has_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    assert f"fsmatrix {command}" in capsys.readouterr().out.split("Example", 1)[1]


def test_json_of_check_jobs_and_plan(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "check", "--json") == 0
    items = json.loads(capsys.readouterr().out)
    kinds = {item["kind"] for item in items} - {"mount"}  # of what somebody has mounted just now
    assert kinds == {"backend", "workload", "engine", "driver", "launcher"}
    assert all(item["ok"] or item["reason"] for item in items)
    assert call(monkeypatch, "jobs", "--json") == 0
    assert {"quickstart", "smoke"} <= {job["name"] for job in json.loads(capsys.readouterr().out)}
    assert call(monkeypatch, "plan", campaign, "--json", "--seed", "5") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["seed"] == 5
    assert len(plan["cases"]) == 1
    assert {"key", "value", "origin"} <= plan["settings"][0].keys()


@pytest.mark.parametrize("name", ["quickstart", "smoke"])
@pytest.mark.parametrize("here", [True, False])
def test_ready_campaigns_can_be_planned(name: str, here: bool) -> None:
    from fsmatrix.suite.plan.plan import Request, build_plan

    plan = build_plan(name, Request(), here=here)
    targets = {planned.case.target for planned in plan.cases}
    assert len(targets) >= 2
    if name == "quickstart":
        assert here or targets == {"xfs", "ext4", "btrfs"}
        assert len(plan.cases) == 16 * len(targets)
        assert plan.settings.campaign.repetitions == 10


TWO = """
campaign: two
targets:
  one: {{backend: directory, options: {{path: {path}}}}}
  two: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 1MiB, chunk: 64KiB}}}}
factors: {{pattern: [seq-write, seq-read]}}
repetitions: 6
"""


@pytest.fixture
def two(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    file = tmp_path / "two.yaml"
    file.write_text(TWO.format(path=tmp_path / "data"))
    return file


def test_plan_says_how_likely_a_difference_would_be_proven(
    two: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "plan", two, "--detect", "50%", "--cv", "2%", "--json") == 0
    power = json.loads(capsys.readouterr().out)["power"]
    assert (power["blocks"], power["cells"]) == (6, 2)
    assert power["chance"] > 0.99
    assert [one["blocks"] for one in power["needed"]] == [6, 6]
    assert call(monkeypatch, "plan", two, "--detect", "50%", "--cv", "2%") == 0
    assert power["says"][0] in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, "plan", two, "--json") == 0
    assert "power" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--detect", "10%"], "give --cv 5% or --pilot DIR"),
        (["--detect", "10%", "--cv", "5%", "--pilot", "out"], "give --cv 5% or --pilot DIR"),
        (["--cv", "5%"], "--cv 5%: says how much values vary"),
        (["--pilot", "out"], "--pilot out: says how much values vary"),
        (["--detect", "much", "--cv", "5%"], "--detect much: must be a share"),
        (["--detect", "10%", "--cv", "0"], "--cv 0: must be a share"),
        (["--detect", "10%", "--pilot", "no-such-place"], "no-such-place"),
    ],
)
def test_plan_refuses_half_a_question_about_power(
    words: list[str],
    told: str,
    two: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "plan", two, *words) == 2
    caught = capsys.readouterr()
    assert told in " ".join(caught.err.split())
    assert "Traceback" not in caught.err


def test_plan_of_one_target_has_nothing_to_prove(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "plan", campaign, "--detect", "10%", "--cv", "5%") == 2
    assert "nothing to compare" in capsys.readouterr().err

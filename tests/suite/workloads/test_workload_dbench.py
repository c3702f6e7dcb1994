"""The workload `dbench`: options, refusals, the probe, and real runs on emulated nodes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import Case
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.cases.resolve import default_options, normal_option
from fsmatrix.suite.engines.dbench import read
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.plan.plan import Request, build_plan
from fsmatrix.suite.registry import ENGINES, WORKLOADS
from fsmatrix.suite.workloads.dbench import CLIENT_TXT, Dbench, DbenchOptions, loadfile, survey_of
from fsmatrix.suite.workloads.workload import Argv, Output
from tests.suite.dbench_workload import ACCESS, LINES, NEEDED, case_of, workload

DATA = Path(__file__).parents[2] / "data" / "dbench"
FOUR = Engine(
    "dbench",
    "4.00",
    "/usr/bin/dbench",
    frozenset(
        {
            "option:sync",
            "option:sync-dir",
            "option:fsync",
            "option:target-rate",
            "loadfile:/usr/share/dbench/client.txt",
        }
    ),
)
FIVE = Engine("dbench", "5.0", "/opt/dbench", frozenset({"option:backend", "option:warmup"}))


def argv(work: Dbench, engine: Engine = FOUR, **geometry: int) -> tuple[str, ...]:
    last = work.steps(case_of("warm", **geometry), ACCESS, engine)[-1].what
    assert isinstance(last, Argv)
    return last.argv


# -- options and steps -----------------------------------------------------------------------
def test_the_command_of_version_4() -> None:
    work = workload(
        runtime="30s",
        sync=True,
        sync_directories=True,
        target_rate=2.5,
        extra_arguments=["--stat-check"],
    )
    assert argv(work, nodes=2, processes_per_node=8) == (
        "/usr/bin/dbench",
        "-D",
        "{path}/node{node}",
        "-t",
        "30",
        "--sync",
        "--sync-dir",
        "--target-rate=2.5",
        "8",
        "--stat-check",
    )


def test_the_command_of_version_5(small: str) -> None:
    work = workload(loadfile=small, warm_up="5s")
    assert argv(work, FIVE) == (
        "/opt/dbench",
        "-D",
        "{path}/node{node}",
        "-t",
        "60",
        "-B",
        "fileio",
        "-c",
        small,
        "--warmup=5",
        "1",
    )


def test_each_node_makes_its_directory_and_shows_its_loadfile() -> None:
    directory, digest, timed = workload().steps(case_of(nodes=2), ACCESS, FOUR)
    assert directory.what == Argv(("mkdir", "-p", "{path}/node{node}"))
    assert digest.what == Argv(("sha256sum", "/usr/share/dbench/client.txt"))
    roles = [(step.where, step.role) for step in (directory, digest, timed)]
    assert roles == [("node", "setup"), ("node", "setup"), ("node", "timed")]
    assert (timed.name, timed.reads) == ("mixed", False)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"runtime": 1}, "nothing in less than 2 s"),
    ({"runtime": 2.5}, "whole seconds"),
    ({"warm_up": "500ms"}, "whole seconds"),
    ({"clients": 0}, "greater than or equal to 1"),
    ({"target_rate": 0}, "greater than 0"),
    ({"loadfile": "client.txt"}, "absolute path"),
    ({"loadfile": "/nonexistent/client.txt"}, "cannot be read: No such file"),
    ({"loadfile": "/etc/passwd"}, "no line of it is an operation"),
    ({"loadfile": "sha256:12"}, "no SHA-256"),
    ({"loadfile": 3}, "path of a file"),
    ({"extra_arguments": ["--fake-io"]}, "bytes that nobody moves"),
    ({"extra_arguments": ["-t5"]}, "use the option runtime"),
    ({"extra_arguments": ["-xD/tmp"]}, "where dbench works"),  # to dbench: -x -D /tmp
    ({"extra_arguments": ["-F"]}, "use the option fsync"),
    ({"extra_arguments": ["--directory=/"]}, "where dbench works"),
    ({"load_file": "x"}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_bad_options_are_refused_with_the_reason(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        workload(**options)


def test_every_option_is_described() -> None:
    assert all(field.description for field in DbenchOptions.model_fields.values())


def test_a_default_written_out_is_the_same_case() -> None:
    """Released defaults: none of these may ever enter an id."""
    released: dict[str, Any] = {
        "loadfile": None,
        "clients": None,
        "runtime": "60s",
        "warm_up": None,
        "sync": False,
        "sync_directories": False,
        "fsync": False,
        "xattr": False,
        "target_rate": None,
        "no_resolve": False,
        "skip_cleanup": False,
        "extra_arguments": [],
    }
    assert set(released) == set(DbenchOptions.model_fields)
    assert DbenchOptions.model_validate(released).model_dump(exclude_defaults=True) == {}


def test_a_loadfile_is_its_content_never_its_path(tmp_path: Path, small: str) -> None:
    copy, other = tmp_path / "copy.txt", tmp_path / "other.txt"
    copy.write_text(LINES)
    other.write_text(LINES + "Flush 10 NT_STATUS_OK\n")
    stored = [
        DbenchOptions(loadfile=path).model_dump(mode="json", exclude_defaults=True)  # type: ignore[arg-type]
        for path in (small, str(copy), str(other))
    ]
    digest = hashlib.sha256(LINES.encode()).hexdigest()
    assert stored[0] == stored[1] == {"loadfile": f"sha256:{digest}"}
    assert stored[2] != stored[0]
    assert normal_option(DbenchOptions, "loadfile", small) == f"sha256:{digest}"
    assert default_options(DbenchOptions)["loadfile"] is None
    again = DbenchOptions.model_validate(json.loads(json.dumps(stored[0])))
    assert again == DbenchOptions.model_validate({"loadfile": small})
    assert "give its path" in Dbench(again).refusal(case_of())


def test_a_changed_loadfile_is_read_again(small: str) -> None:
    before = loadfile(small)
    Path(small).write_text(LINES + LINES)
    assert loadfile(small) != before


def test_a_survey_counts_what_one_pass_does() -> None:
    survey = survey_of(LINES)
    assert survey is not None
    # a: 1500 bytes, then b: 200 beside it; two directories
    assert (survey.written, survey.space, survey.files) == (2200, 1700, 4)


@NEEDED
@pytest.mark.parametrize("name", [r"\clients\client1\..\..\x", "/clients/../../../x", ".."])
def test_a_loadfile_cannot_leave_the_runs_directory(tmp_path: Path, name: str) -> None:
    text = f'Mkdir "\\a..b" NT_STATUS_OK\nDeltree "{name}" NT_STATUS_OK\n'
    (tmp_path / "load.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"load.txt', line 2: a name with '\.\.'"):
        loadfile(str(tmp_path / "load.txt"))


def test_the_survey_of_the_packages_loadfile_is_the_one_in_use() -> None:
    assert loadfile("/usr/share/dbench/client.txt").survey == CLIENT_TXT


def test_footprint(small: str) -> None:
    needs = workload(runtime=20).footprint(case_of(nodes=2, processes_per_node=3))
    assert (needs.space, needs.written) == (6 * CLIENT_TXT.space, 6 * CLIENT_TXT.written)
    assert (needs.files, needs.seconds) == (6 * CLIENT_TXT.files + 4, 24)  # warm-up: a fifth
    own = workload(loadfile=small, warm_up=0, runtime=20).footprint(case_of())
    assert (own.space, own.written, own.files, own.seconds) == (1700, 2200, 6, 20)


REFUSED: list[tuple[dict[str, Any], Case, str]] = [
    ({"clients": 3}, case_of(processes_per_node=2), "contradicts processes_per_node: 2"),
    ({}, case_of(threads=2), "one thread"),
    ({}, case_of("cold"), "say cache: warm"),
    ({}, case_of("bypass"), "no O_DIRECT"),
]


@pytest.mark.parametrize(("options", "case", "words"), REFUSED)
def test_refusals_say_why(options: dict[str, Any], case: Case, words: str) -> None:
    assert words in workload(**options).refusal(case)


def test_what_can_be_run_is_not_refused() -> None:
    assert workload(clients=2).refusal(case_of(nodes=2, processes_per_node=2)) == ""
    assert workload(sync=True).unsupported(case_of(), "path", FOUR) == ""


def test_what_an_engine_lacks_is_known_before() -> None:
    case, bare = case_of(), Engine("dbench", "4.00")
    assert "no option --warmup" in workload(warm_up=5).unsupported(case, "path", FOUR)
    assert "no loadfile of its own" in workload().unsupported(case, "path", bare)
    assert "no loadfile of its own" in workload().unsupported(case, "path", FIVE)
    assert "only paths" in workload().unsupported(case, "dfs", FOUR)


# -- the probe -------------------------------------------------------------------------------
def recorded(*names: str) -> list[str]:
    return [(DATA / f"probe-{name}.txt").read_text() for name in names]


def test_the_probe_reads_version_options_and_loadfile() -> None:
    version, features = read(recorded("help", "zero"))
    assert version == "4.00"
    assert {"option:sync-dir", "option:skip-cleanup"} <= features
    assert "loadfile:/usr/share/dbench/client.txt" in features
    assert not {"option:warmup", "option:backend"} & features


def test_the_probe_of_version_5() -> None:
    version, features = read(recorded("help-5", "zero-5"))
    assert version == "5.0"
    assert {"option:warmup", "option:backend", "option:per-client-results"} <= features
    assert not [name for name in features if name.startswith("loadfile:")]


def test_a_missing_loadfile_is_no_feature() -> None:
    text = "dbench: error opening '/usr/share/dbench/client.txt': No such file or directory\n"
    about, nothing = recorded("help", "zero")
    _, features = read([about, nothing])
    gone = {"loadfile:/usr/share/dbench/client.txt"}
    assert gone <= features
    assert read([about, nothing + text])[1] == features - gone


@pytest.mark.parametrize("answer", ["", "usage: something", "dbench version 3.04 - Copyright x"])
def test_another_program_is_refused(answer: str) -> None:
    with pytest.raises(EngineError, match=r"install the package dbench|4\.00 or later"):
        read([answer, ""])


# -- parsing ---------------------------------------------------------------------------------
def outputs(*texts: str, digests: tuple[str, ...] = ()) -> list[Output]:
    shown = [
        Output("loadfile", f"n{i}", i, stdout=f"{digest}  /x/client.txt\n")
        for i, digest in enumerate(digests)
    ]
    return shown + [
        Output("mixed", f"n{i}", i, stdout=(DATA / f"{name}.txt").read_text(), began=0, ended=8)
        for i, name in enumerate(texts)
    ]


def test_two_nodes_are_one_run() -> None:
    case = case_of(nodes=2, processes_per_node=2)
    both = outputs("two-clients", "two-clients", digests=("a" * 64, "a" * 64))
    parsed = workload(runtime=6, fsync=True).parse(case, both)
    (phase,) = parsed.phases
    assert (parsed.failure, parsed.nodes, parsed.processes) == ("", 2, 4)
    assert phase.bytes.tolist() == [1_296_828_000] * 2
    assert phase.facts["synced"] is True
    assert parsed.facts["loadfile_sha256"] == ["a" * 64]


UNLIKE: list[tuple[dict[str, Any], dict[str, int], list[Output], str]] = [
    ({"runtime": 6}, {"processes_per_node": 3}, outputs("two-clients"), "clients 2, not 3"),
    ({"runtime": 7}, {"processes_per_node": 2}, outputs("two-clients"), "runtime 6, not 7"),
    ({"runtime": 6}, {"nodes": 2, "processes_per_node": 2}, outputs("two-clients"), "1 nodes"),
    (
        {"runtime": 6, "loadfile": f"sha256:{'b' * 64}"},
        {"processes_per_node": 2},
        outputs("two-clients", digests=("a" * 64,)),
        "not the one of the plan",
    ),
    (
        {"runtime": 6},
        {"nodes": 2, "processes_per_node": 2},
        outputs("two-clients", "two-clients", digests=("a" * 64, "b" * 64)),
        "different loadfiles",
    ),
    ({"runtime": 4}, {"processes_per_node": 2}, outputs("enospc"), "No space left on device"),
]


@pytest.mark.parametrize(("options", "geometry", "given", "words"), UNLIKE)
def test_what_was_not_asked_for_has_failed(
    options: dict[str, Any], geometry: dict[str, int], given: list[Output], words: str
) -> None:
    assert words in workload(**options).parse(case_of("warm", **geometry), given).failure


def test_no_output_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match="no node gave an output"):
        workload().parse(case_of(), [])


# -- the ready campaign ----------------------------------------------------------------------
@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry, where in (
        (WORKLOADS, "fsmatrix.suite.workloads.dbench:Dbench"),
        (ENGINES, "fsmatrix.suite.engines.dbench:KIND"),
    ):
        builtin = dict(registry.builtin) | {"dbench": where}
        monkeypatch.setattr(registry, "builtin", builtin)


@NEEDED
@pytest.mark.usefixtures("wired")
def test_the_ready_campaign_can_be_planned(tmp_path: Path) -> None:
    sets = [
        f"targets.{name}.options.{key}={value}"
        for name in ("cephfs", "daos-dfuse")
        for key, value in (("path", tmp_path), ("expect_mount", "false"))
    ]
    plan = build_plan("cern-dbench", Request(tuple(sets)))
    cases = [planned.case for planned in plan.cases]
    assert {case.target for case in cases} == {"cephfs", "daos-dfuse"}
    assert {case.cache for case in cases} == {"warm"}
    swept = sorted(case.geometry.processes for case in cases if case.target == "cephfs")
    assert len(set(swept)) == len(swept)
    assert (swept[0], swept[-1]) == (1, 24)


@NEEDED
@pytest.mark.usefixtures("wired")
def test_the_ready_campaign_refuses_mounts_that_are_none() -> None:
    with pytest.raises(CampaignError, match="/mnt/cephfs"):
        build_plan("cern-dbench", Request())

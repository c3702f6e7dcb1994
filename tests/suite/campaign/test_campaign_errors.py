"""Bad campaigns: every problem named with file, line, key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.suite.campaign.settings import Source, resolve
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.plan.plan import build_plan
from fsmatrix.suite.registry import registries
from tests.suite.planning_stubs import HEAD, planned, problems, text

BAD = {
    "unknown key": ("repititions: 3\n", ["c.yaml:8: repititions", "did you mean 'repetitions'"]),
    "unknown nested key": ("limits: {tim: 3}\n", ["c.yaml:8: limits.tim", "time_per_run"]),
    "wrong unit": ("limits: {time_per_run: 3 parsecs}\n", ["c.yaml:8", "parsecs", "min"]),
    "zero": ("repetitions: 0\n", ["c.yaml:8: repetitions: 0", "greater than"]),
    "boolean": ("repetitions: true\n", ["c.yaml:8: repetitions: True", "integer"]),
    "negative size": ("limits: {space: -4KiB}\n", ["c.yaml:8: limits.space", "-4KiB"]),
    "choice": ("cache: hot\n", ["c.yaml:8: cache: 'hot'", "'cold', 'warm' or 'bypass'"]),
    "factor names nothing": ("factors: {chnk: [1]}\n", ["factors.chnk", "mean 'chunk'", "depth"]),
    "no levels": ("factors: {chunk: []}\n", ["c.yaml:8: factors.chunk"]),
    "one level, no list": ("factors: {chunk: 4KiB}\n", ["c.yaml:8: factors.chunk: '4KiB'"]),
    "level of a wrong unit": (
        "factors:\n  chunk:\n  - 4KiB\n  - 4QB\n",
        ["c.yaml:11: factors.chunk[1]", "QB", "KiB"],
    ),
    "level zero": ("factors: {chunk: [0]}\n", ["c.yaml:8: factors.chunk[0]", "0"]),
    "level twice": ("factors: {chunk: [4KiB, 4096]}\n", ["factors.chunk[1]", "twice"]),
    "geometry zero": ("factors: {nodes: [0]}\n", ["factors.nodes[0]: 0"]),
    "chunk above the file": (
        "factors:\n  chunk:\n  - 4KiB\n  - 32MiB\n",
        ["c.yaml:11: factors.chunk[1]", "larger than the file", "workload io with chunk: 32MiB"],
    ),
    "exclusion of nothing": ("exclude: [{chunk: 4KiB}]\n", ["c.yaml:8: exclude[0]", "matches no"]),
    "exclusion of an unknown key": ("exclude: [{taget: a}]\n", ["exclude[0].taget", "'target'"]),
    "exclusion of a wrong value": ("exclude: [{pattern: x}]\n", ["exclude[0].pattern", "seq-read"]),
    "everything excluded": ("exclude: [{pattern: seq-read}]\n", ["leaves no"]),
    "duplicate key": ("seed: 3\n", ["c.yaml:8: seed", "twice", "line 2"]),
    "not YAML": ("x: [\n", ["not valid YAML"]),
    "tab": ("limits:\n\tspace: 1GiB\n", ["c.yaml:9: not valid", "a tab indents", "use spaces"]),
    "too many cases": (
        "limits: {cases: 10}\n"
        "factors: {chunk: [4KiB, 8KiB, 1MiB], nodes: [1, 2], threads: [1, 2]}\n",
        [
            "24 cases before exclusions; limits.cases allows 10: name fewer levels, or divide",
            "among 3 campaigns, each with its own -o: --set 'factors.chunk=[\"4KiB\", ...]'",
        ],
    ),
    "Python object": ("description: !!python/object:os.system x\n", ["c.yaml:8", "tag"]),
    "not finite": ("settle: {timeout: .nan}\n", ["c.yaml:8", "finite"]),
    "not text": ('description: "\\x00\n', ["not valid YAML"]),
    "list for a mapping": ("order: [1]\n", ["c.yaml:8: order: [1]: must be a mapping with keys"]),
    "mapping for a list": ("exclude: {a: b}\n", ["c.yaml:8: exclude", "must be a list"]),
    "empty exclusion": ("exclude: [{}]\n", ["exclude[0]: {}: must have at least 1 item"]),
    "list for text": ("description: [1]\n", ["c.yaml:8: description: [1]: must be text"]),
    "unknown engine": ("engines: {iro: /x/ior}\n", ["c.yaml:8: engines.iro", "mean 'ior'", "fio"]),
    "host that is an option": (
        "launcher: {name: mpirun, hosts: [n1, -x]}\n",
        ["c.yaml:8: launcher.hosts[1]", "'-x' is not the name of a host"],
    ),
    "two hosts in one": (
        "launcher: {name: mpirun, hosts: ['n1,n2']}\n",
        ["launcher.hosts[0]", "'n1,n2' is not the name of a host"],
    ),
    "unknown launcher": ("launcher: mpirum\n", ["c.yaml:8: launcher", "'mpirun'", "auto"]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_with_its_cause_and_cure(name: str) -> None:
    body, expected = BAD[name]
    found = "\n".join(problems(body))
    for part in expected:
        assert part in found


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("backend: disk", "backend: dsik", "targets.a.backend: unknown backend 'dsik' (did you"),
        ("backend: disk", "backend: disk, options: {sise: 3}", "options.sise: unknown key 'sise'"),
        ("backend: disk", "options: {}", "targets.a: the key 'backend' is missing"),
        ("workload: io}", "workload: oi}", "workloads.io.workload: unknown workload 'oi'"),
        ("workload: io}", "workload: io, engine: ior}", "workloads.io.engine: 'ior' is no engine"),
        ("workload: io}", "workload: io, options: {chnk: 1}}", "unknown option 'chnk' (did you"),
        ("workload: io}", "workload: io, options: {chunk: 1GiB}}", "io.options.chunk: chunk 10737"),
        ("workload: io}", "workload: io, options: {chunk: -1}}", "c.yaml:7: workloads.io.options"),
        ("backend: disk", "backend: disk, attributes: {nodes: 2}", "name of another coordinate"),
        ("backend: disk", "backend: disk, realised: {ssd: emulated}", "'ssd' is no attribute"),
        ("campaign: test", "campaign: Test Me", "campaign: 'Test Me': must be lower-case"),
        ("targets:\n", "target:\n", "unknown key 'target' (did you mean 'targets'?)"),
    ],
)
def test_a_bad_target_or_workload(before: str, after: str, expected: str) -> None:
    assert before in HEAD
    assert expected in "\n".join(problems(head=HEAD.replace(before, after, 1)))


def test_problems_of_all_kinds_are_reported_together() -> None:
    found = "\n".join(
        problems(
            "repititions: 3\ncache: hot\nfactors: {chnk: [1]}\nexclude: [{taget: a}]\n",
            head=HEAD.replace("disk", "dsik"),
        )
    )
    for part in ("repititions", "cache: 'hot'", "factors.chnk", "exclude[0].taget", "dsik"):
        assert part in found


def test_a_billion_cases_are_refused_with_the_count_before_any_is_made() -> None:
    levels = ",".join(str(level) for level in range(1, 1001))
    names = ("nodes", "threads", "processes_per_node")
    factors = "".join(f"  {name}: [{levels}]\n" for name in names)
    assert "2000000000 cases before exclusions" in problems(f"factors:\n{factors}")[0]
    body = "limits: {runs: 30}\nfactors: {chunk: [4KiB, 8KiB]}\nrepetitions: 10\n"
    assert "4 cases x 10 repetitions = 40 runs" in problems(body)[0]


def test_the_same_case_twice_is_refused() -> None:
    head = HEAD + "  twin: {workload: io, engine: fio, options: {chunk: 1MiB}}\n"
    assert "gives the same case as workloads.io" in problems(head=head)[0]


def test_a_factor_that_an_entry_fixes_as_well_is_refused() -> None:
    head = HEAD.replace("workload: io}", "workload: io, options: {chunk: 1MiB}}")
    assert "varied by c.yaml:8" in problems("factors: {chunk: [4KiB]}\n", head)[0]


def test_anchors_and_merge_keys_work_and_cannot_explode() -> None:
    head = HEAD.replace("a: {", "a: &a {").replace("b: {backend: other}", "b: {<<: *a}")
    assert {case.case.target for case in planned(head=head).cases} == {"a", "b"}
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)
    )
    assert "more than" in problems(source=text(head=bomb))[0]


def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in problems(source=tmp_path / "none.yaml")[0]
    assert "cannot be read" in problems(source=tmp_path)[0]
    assert "neither a file nor a ready campaign" in problems(source="no-such-job")[0]


FRAGMENTS = st.sampled_from(
    ["campaign: x\n", "targets:\n", "  a: {backend: disk}\n", "workloads:\n",
     "  io: {workload: io}", "factors: ", "{chunk: [1, 2]}", "exclude: ", "[{chunk: 1}]",
     "\n", "- ", ": ", "&a ", "*a",
     "<<: ", "!!int ", "!!binary ", "seed: ", "9" * 5000, "0x", "1e999", ".inf", "~", "'", '"',
     "launcher: ", "limits: {space: 1k}", "%YAML 1.1\n", "%TAG ! x\n", "--- ", "? ", "|\n", "\t",
     "!<x> ", "\u2028", "2020-01-01", "12:30:45", "_", "[", "{", "order: {seed: 1}\n"]
)  # fmt: skip


def assert_planned_or_refused(**more: Any) -> None:
    """Any other exception than CampaignError fails the test."""
    try:
        assert planned(**more).cases
    except CampaignError as error:
        refused = error
    else:
        return
    assert refused.problems
    assert str(refused)


@settings(max_examples=250, deadline=None)
@given(st.lists(FRAGMENTS | st.text(max_size=6), max_size=14), st.booleans())
def test_any_text_gives_a_plan_or_a_campaign_error(parts: list[str], headed: bool) -> None:
    source = text("".join(parts), HEAD if headed else "")
    assert_planned_or_refused(source=source)


@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["targets.a.options.size", "factors.chunk", "exclude.0", "limits", "launcher", "seed",
             "repetitions", "geometry.nodes", "", "factors", "targets", "workloads.io", "a.b.c"]
        )
        | st.text(max_size=8),
        max_size=2,
    ),
    st.text(max_size=10) | FRAGMENTS,
)  # fmt: skip
def test_any_setting_gives_a_plan_or_a_campaign_error(keys: list[str], value: str) -> None:
    assert_planned_or_refused(sets=tuple(f"{key}={value}" for key in keys))


def test_the_built_in_parts_are_planned_and_refused_alike(tmp_path: Path) -> None:
    head = (
        f"campaign: real\ntargets:\n  here: {{backend: directory, options: {{path: {tmp_path}}}}}\n"
        "workloads:\n  io:\n    workload: pattern\n    options: {bytes_per_process: 64KiB}\n"
    )
    lookup = registries()
    body = "factors:\n  chunk:\n  - 4KiB\n  - 1MiB\n"
    found = problems(body, head, lookup=lookup)
    assert found[0].startswith("c.yaml:11: factors.chunk[1]: chunk 1MiB is larger than the file")
    plan = planned(
        "factors: {chunk: [4KiB], pattern: [seq-read, rand-write]}\n", head, lookup=lookup
    )
    assert len(plan.cases) == 2
    assert all(cell.ok for cell in plan.matrix.cells)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing\n")
    with pytest.raises(CampaignError, match=r"empty\.yaml: is empty; a campaign is a mapping"):
        resolve(empty)


def test_a_factor_of_a_target_that_is_wrong_itself_is_not_blamed() -> None:
    """One true sentence: only the target's options tell what the factor would name."""
    body = (
        "campaign: c\n"
        "targets:\n"
        "  a: {backend: rados, options: {levels: {redundancy: size=2, pools: [{pool: p}]}}}\n"
        "workloads: {w: {workload: pattern, options: {pattern: seq-read}}}\n"
        "factors: {storage_nodes: [2, 3]}\n"
        "exclude: [{interface: sata}]\n"
    )
    with pytest.raises(CampaignError) as caught:
        build_plan(Source(body, "c.yaml"), here=False)
    assert [str(problem) for problem in caught.value.problems] == [
        "c.yaml:3: targets.a.options.levels: leave out redundancy: the named pools have their own"
    ]

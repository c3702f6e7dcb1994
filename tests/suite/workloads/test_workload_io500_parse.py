"""The workload `io500`: the score, and runs read from outputs; the command lines of its pair."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results import record
from fsmatrix.results.formats.io500_text import BANDWIDTHS, RATES, score
from fsmatrix.results.formats.io500_text import PHASES as SCORED
from fsmatrix.results.formats.parsed import ParseError, totals
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.workload import Argv, Output
from tests.suite.io500_workload import (
    ACCESS,
    IN_ORDER,
    PAIR,
    PLAYER,
    RANDOM,
    case_of,
    workload,
)

DATA = Path(__file__).parents[2] / "data" / "io500_workload"

# -- the score -----------------------------------------------------------------------------------
# the example in IO500's README, Appendix B: name, value, and the two means and the score
EXAMPLE = {
    "ior-easy-write": 0.186620,
    "mdtest-easy-write": 103.300821,
    "ior-hard-write": 0.001313,
    "mdtest-hard-write": 58.939081,
    "find": 1486.435084,
    "ior-easy-read": 1.575557,
    "mdtest-easy-stat": 839.392805,
    "ior-hard-read": 2.272671,
    "mdtest-hard-stat": 1212.558124,
    "mdtest-easy-delete": 160.765642,
    "mdtest-hard-read": 275.011939,
    "mdtest-hard-delete": 132.015851,
}


def test_score_of_io500s_own_example() -> None:
    result = score(EXAMPLE)
    assert result.bandwidth == pytest.approx(0.172092, rel=1e-4)
    assert result.rate == pytest.approx(292.625029, rel=1e-6)
    assert result.total == pytest.approx(7.096374, rel=1e-4)


@given(
    name=st.sampled_from(SCORED),
    value=st.sampled_from([0.0, -1.0, math.nan, math.inf]),
    gone=st.booleans(),
)
def test_no_score_without_all_phases(name: str, value: float, gone: bool) -> None:
    values = {key: old for key, old in EXAMPLE.items() if key != name}
    if not gone:
        values[name] = value
    result = score(values)
    assert result.total is None
    assert (result.bandwidth is None) == (name in BANDWIDTHS)
    assert (result.rate is None) == (name in RATES)


# -- parse ---------------------------------------------------------------------------------------
def find_outputs(found: int = 3) -> list[Output]:
    values = [{"entries": 500, "found": found, "seconds": 0.25 * (r + 1)} for r in range(2)]
    return [Output("find", "h", rank, value=value) for rank, value in enumerate(values)]


def played_outputs(seconds: float = 2.0) -> list[Output]:
    """As a session gives them: phases that count calls."""
    outputs = []
    calls = {"create-mdtest-easy": 2, "create-mdtest-hard": 3, "read-mdtest-hard": 3}
    for name in IN_ORDER:
        if name == "find":
            outputs += find_outputs()
            continue
        data = "ior" in name
        count = 1000 * calls.get(name, 1) + (1 if name == "create-mdtest-hard" else 0)
        phase = totals(name, seconds, (1 << 30) if data else 0, count)
        outputs.append(Output(name, "", 0, phase=phase))
    return outputs


def test_a_played_run_has_a_score_and_says_that_it_is_no_submission() -> None:
    run = workload(stonewall=2).parse(case_of(processes_per_node=2), played_outputs())
    assert run.failure == ""
    assert [phase.name for phase in run.phases] == IN_ORDER
    facts = run.facts["io500"]
    assert facts["bandwidth_score_gib_s"] == pytest.approx(0.5)
    assert facts["phases"]["mdtest-hard-write"] == pytest.approx(0.5)  # whole files, not calls
    assert facts["phases"]["find"] == pytest.approx(2.0)  # 1000 entries, the slower walk 0.5 s
    assert facts["rate_score_kiops"] == pytest.approx((0.5**7 * 2.0) ** (1 / 8))
    rate = facts["rate_score_kiops"]
    assert facts["score"] == pytest.approx(math.sqrt(0.5 * rate))
    assert facts["valid"] is False
    assert facts["why_not"] == [
        "done by the built-in player instead of IOR and mdtest",
        "a stonewall of 2 s, the rules want 300 s",
    ]
    (note,) = run.notes
    assert note.key == "not-a-submission"
    assert all(reason in note.message for reason in facts["why_not"])
    told = {phase.name: phase.facts for phase in run.phases}
    assert told["read-ior-easy"]["shift"] == "rank"
    assert told["stat-mdtest-easy"]["io500_phase"] == "mdtest-easy-stat"
    assert told["write-ior-hard"]["synced"] is True
    assert told["create-mdtest-hard"]["synced"] is False
    json.dumps(run.facts, allow_nan=False)


def with_random(outputs: list[Output], seconds: float, moved: int, errors: int = 0) -> Any:
    """The run's facts["io500"] if the random reads, which come last, were these."""
    assert outputs[-1].step == RANDOM
    phase = totals(RANDOM, seconds, moved, moved // 4096, errors)
    last = replace(outputs[-1], phase=phase)
    return workload().parse(case_of(), [*outputs[:-1], last]).facts["io500"]


@pytest.mark.parametrize(("seconds", "moved"), [(301.0, 1 << 20), (2.0, 1 << 40)])
def test_random_reads_have_no_part_in_the_score(seconds: float, moved: int) -> None:
    outputs = played_outputs(400.0)
    without = workload().parse(case_of(), outputs[:-1]).facts["io500"]
    assert without["score"] > 0
    facts = with_random(outputs, seconds, moved)
    scores = ("bandwidth_score_gib_s", "rate_score_kiops", "score", "why_not", "valid")
    assert [facts[key] for key in scores] == [without[key] for key in scores]
    value = facts["phases"].pop("ior-rnd4K-easy-read")
    assert value == pytest.approx(moved / seconds / (1 << 30))
    assert facts["phases"] == without["phases"]


@pytest.mark.parametrize(
    ("nodes", "played", "shift"),
    [(1, False, "none"), (2, False, "none"), (3, False, "2 nodes"), (3, True, "node")],
)
def test_whose_data_random_reads_meet(nodes: int, played: bool, shift: str) -> None:
    outputs = played_outputs() if played else recorded()[-1:]
    run = workload(stonewall=1).parse(case_of(nodes=nodes, processes_per_node=2), outputs)
    assert run.phases[-1].facts["shift"] == shift


@pytest.mark.parametrize("count", range(13))
def test_a_run_that_broke_off_has_no_score(count: int) -> None:
    run = workload(stonewall=300).parse(case_of(), played_outputs(400.0)[:count])
    facts = run.facts["io500"]
    assert (facts["score"], facts["valid"]) == (None, False)
    assert any(reason.startswith("no value of ") for reason in facts["why_not"])


def test_what_breaks_the_rules_is_said() -> None:
    short = workload(stonewall=300).parse(case_of(), played_outputs(299.0)).facts["io500"]
    assert sum("before the stonewall" in reason for reason in short["why_not"]) == 4
    outputs = played_outputs(400.0)
    missed = [replace(o, value={**o.value, "found": 0}) if o.value else o for o in outputs]
    assert "find found nothing" in workload().parse(case_of(), missed).facts["io500"]["why_not"]
    other = [
        replace(o, phase=replace(o.phase, bytes=o.phase.bytes // 2))
        if o.phase is not None and o.step == "read-ior-hard"
        else o
        for o in outputs
    ]
    why = workload().parse(case_of(), other).facts["io500"]["why_not"]
    assert any(reason.startswith("ior-hard-read met 536870912 bytes") for reason in why)
    ten = workload().parse(case_of(nodes=10), outputs).facts["io500"]
    assert (ten["client_nodes"], ten["ten_node_list"]) == (10, True)


# -- IOR and mdtest ------------------------------------------------------------------------------
def recorded() -> list[Output]:
    """A real run of IOR and mdtest 4.1 by this workload: 2 processes, a stonewall of 1 s."""
    outputs = []
    for name in IN_ORDER:
        if name == "find":
            outputs += find_outputs()
            continue
        text = (DATA / f"{name}.txt").read_text()
        ranks = (DATA / f"{name}.ranks.csv").read_text()
        outputs.append(Output(name, "", 0, stdout=text, files={"ranks.csv": ranks}))
    return outputs


def test_real_outputs_give_every_phase_and_a_score() -> None:
    run = workload(stonewall=1).parse(case_of(processes_per_node=2), recorded())
    assert run.failure == ""
    assert (run.engine, run.version, run.processes, run.nodes) == ("ior+mdtest", "4.1.0+dev", 2, 1)
    found = {phase.name: phase for phase in run.phases}
    assert list(found) == IN_ORDER
    assert found["write-ior-easy"].bytes.sum() == found["read-ior-easy"].bytes.sum() == 528482304
    assert found["read-ior-hard"].bytes.sum() == 282048000
    random = found[RANDOM]
    assert random.operations.tolist() == [50742, 50742]  # worn out to the busiest
    assert random.bytes.sum() == 2 * 50742 * 4096
    assert record.bandwidth(random) / (1 << 20) == pytest.approx(321.60, rel=1e-3)
    assert random.facts["stonewall_seconds"] == 1.0
    assert "synced" not in random.facts
    assert not [note for note in run.notes if note.key == "left-out"]
    for name in ("create", "stat", "remove"):
        assert found[f"{name}-mdtest-easy"].operations.sum() == 2300
        assert found[f"{name}-mdtest-hard"].operations.sum() == 8088
    values = run.facts["io500"]["phases"]
    for access in ("write", "read"):
        lines = (DATA / f"{access}-ior-easy.txt").read_text().splitlines()
        printed = next(line.split()[1] for line in lines if line.startswith(f"{access}  "))
        assert values[f"ior-easy-{access}"] * 1024 == pytest.approx(float(printed), rel=2e-4)
    assert run.facts["io500"]["why_not"] == [
        "a stonewall of 1 s, the rules want 300 s",
        "ior-hard-write ended after 0.5 s, before the stonewall: let it write more",
    ]
    shifts = {name: phase.facts.get("shift") for name, phase in found.items()}
    assert shifts["read-ior-easy"] == "none"
    assert shifts["stat-mdtest-easy"] == "rank"
    assert shifts["read-mdtest-hard"] == "none"  # two ranks further, of two
    assert record.window(found["create-mdtest-hard"]) > 1.0


@pytest.mark.parametrize("name", [name for name in IN_ORDER if name != "find"])
@settings(max_examples=25, deadline=None)
@given(share=st.floats(0.0, 0.9))
def test_a_cut_output_is_never_an_ok_run(name: str, share: float) -> None:
    whole = next(output for output in recorded() if output.step == name)
    cut = replace(whole, stdout=whole.stdout[: int(len(whole.stdout) * share)], files={})
    try:
        run = workload(stonewall=1).parse(case_of(processes_per_node=2), [cut])
    except ParseError:
        return
    assert run.failure.startswith(f"{name}: ")


def test_another_world_is_a_failed_run() -> None:
    run = workload(stonewall=1).parse(case_of(processes_per_node=4), recorded())
    assert "2 tasks" in run.failure


def argvs(**options: Any) -> dict[str, tuple[str, ...]]:
    steps = workload(**options).steps(case_of(processes_per_node=2), ACCESS, PAIR)
    return {step.name: step.what.argv for step in steps if isinstance(step.what, Argv)}


def test_arguments_are_those_of_io500() -> None:
    found = argvs(stonewall=30)
    for name, argv in found.items():
        program = "ior" if "ior" in name else "mdtest"
        assert argv[0] == f"/opt/ior/bin/{program}"
        line = " ".join(argv)
        home = name.partition("-")[2]
        assert (f"{{path}}/{home}.stonewall" in line) == (name != RANDOM)
        walled = name.startswith(("write", "create")) or name == RANDOM
        assert (" -D 30 " in line or " -W 30 " in line) == walled
    easy, hard = " ".join(found["write-ior-easy"]), " ".join(found["write-ior-hard"])
    assert "-F -t 65536 -b 524288 -w -D 30 -O stoneWallingWearOut=1" in easy
    assert "-t 47008 -b 47008 -s 7 -w -D 30 -O stoneWallingWearOut=1" in hard
    assert " -F " not in hard
    assert all(" -C -Q 1 -g " in line and " -k -e " in line for line in (easy, hard))
    assert " -r -R" in " ".join(found["read-ior-hard"])
    random = " ".join(found[RANDOM])
    assert "-a POSIX -C -Q 2 -g " in random
    assert "-F -t 4096 -b 4096 -s 10000000 -r -z -z -D 30 -O stoneWallingWearOut=1" in random
    assert " -R" not in random
    place = [argv[argv.index("-o") + 1] for argv in (found["write-ior-easy"], found[RANDOM])]
    assert place[0] == place[1]
    files = " ".join(found["create-mdtest-easy"])
    assert "-n 11 -u -L -C -Y -W 30" in files
    assert "-n 102 -t -w 3901 -e 3901 -E -X" in " ".join(found["read-mdtest-hard"])
    assert all("-N 1" in " ".join(argv) for name, argv in found.items() if "mdtest" in name)


def test_what_is_written_and_read_has_one_signature_per_case() -> None:
    one, other = argvs(), argvs(stonewall=30)
    signature = {argv[argv.index("-G") + 1] for argv in one.values()}
    assert len(signature) == 1
    assert int(signature.pop()) < 1 << 31
    assert one.keys() == other.keys()


def test_an_ior_without_random_offsets_does_the_rest_and_says_so() -> None:
    """IOR 4.0 would end with an error: -z -z is a shuffle there, of a block of one transfer."""
    old = replace(PAIR, features=PAIR.features - {"option:random-offsets"})
    case = case_of(processes_per_node=2)
    assert workload().unsupported(case, "path", old) == ""
    timed = [s.name for s in workload().steps(case, ACCESS, old) if s.role == "timed"]
    assert timed == IN_ORDER[:-1]
    work = workload(stonewall=1)
    run = work.parse(case, [one for one in recorded() if one.step != RANDOM])
    assert [phase.name for phase in run.phases] == IN_ORDER[:-1]
    (note,) = [note for note in run.notes if note.key == "left-out"]
    assert "ior-rnd4K-easy-read" in note.message
    whole = work.parse(case, recorded())
    assert run.facts["io500"]["score"] == whole.facts["io500"]["score"]
    assert run.facts["io500"]["why_not"] == whole.facts["io500"]["why_not"]


def test_builds_that_lack_an_option_are_refused() -> None:
    work, case = workload(), case_of()
    assert work.unsupported(case, "path", PAIR) == ""
    assert work.unsupported(case, "path", Engine("ior+mdtest", "")) == ""  # not probed
    assert work.unsupported(case, "path", PLAYER) == ""
    old = replace(PAIR, features=PAIR.features - {"mdtest-option:Y"})
    assert "(-Y)" in work.unsupported(case, "path", old)

"""IOR's outputs, as real releases wrote them: what is in them, and their traps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from fsmatrix.results import iterations
from fsmatrix.results.formats import ior
from fsmatrix.results.formats.ior.ior_tests import settings
from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import bandwidth, window
from tests.results.ior_outputs import GOOD, MIB, keys, only, phase, runs, text_of


# -- whole outputs ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", GOOD)
def test_real_outputs_are_understood(name: str) -> None:
    for run in runs(name):
        assert (run.engine, run.failure) == ("ior", "")
        assert run.processes
        assert "contradiction" not in keys(run)
        assert run.phases
        for made in run.phases:
            parts = iterations.rows_of(made.iterations)
            assert len(parts) == run.options.get("iterations", len(parts))
            assert made.bytes.sum() == sum(part["bytes"] for part in parts)
            assert window(made) == pytest.approx(sum(part["seconds"] for part in parts))
            assert made.facts["window"] == "open to close"
            assert not made.latency
            for part in parts:
                # as IOR prints it: 2 decimals, none from 3600; 4 in JSON and CSV
                printed = part["bandwidth"] / MIB
                half = 0.5 if printed >= 3600 and name.endswith(".txt") else 0.005
                half *= 1 + 1e-6  # floating point
                assert part["bytes"] / part["seconds"] / MIB == pytest.approx(printed, abs=half)


@pytest.mark.parametrize("name", GOOD)
def test_only_its_own_format_recognises_it(name: str) -> None:
    kind = {"json": "ior-json", "txt": "ior-text", "csv": "ior-csv"}[name.rpartition(".")[2]]
    found = [known.name for known in ior.FORMATS if known.recognises(text_of(name))]
    assert found == [kind]


def test_text_of_3_3() -> None:
    run = only("ior-3.3.0-fpp.txt")
    assert (run.version, run.nodes, run.processes) == ("3.3.0", 1, 4)
    assert run.started == "Fri Nov 20 11:58:32 2026"
    assert run.argv[:3] == ("/opt/ior/bin/ior", "-a", "POSIX")
    expected = {
        "api": "POSIX",
        "block_size": 8 * MIB,
        "transfer_size": MIB,
        "segments": 1,
        "file_per_process": True,
        "reorder_tasks": True,
        "random_offset": False,
        "fsync": True,
        "iterations": 3,
        "operations": "both",
    }
    assert expected.items() <= run.options.items()
    write = phase(run, "write")
    assert (write.bytes.tolist(), write.operations.tolist()) == ([96 * MIB], [96])
    assert write.facts["synced"] is True
    # bytes / total of the three lines
    assert window(write) == pytest.approx(0.297029 + 0.061879 + 0.048206, abs=2e-6)
    assert write.iterations["number"].tolist() == [0, 1, 2]
    assert write.iterations["open"].tolist() == [0.008169, 0.012114, 0.017281]
    assert write.iterations["transfer"].tolist() == [0.296923, 0.061829, 0.048145]
    assert write.iterations["close"].tolist() == [0.262745, 0.016308, 0.009218]
    assert write.iterations["bandwidth"].tolist() == [107.73 * MIB, 517.14 * MIB, 663.82 * MIB]
    assert write.iterations["iops"].tolist() == [107.77, 517.55, 664.66]
    assert write.iterations["block"].tolist() == [8 * MIB] * 3
    assert write.iterations["transfer_size"].tolist() == [MIB] * 3
    assert write.iterations["latency_rank0"][0] == 0.010784
    assert run.facts["remove_seconds"] == [0.000204, 0.000142, 0.000644]
    assert run.facts["file_system"]["size"] == "1.9 GiB"
    assert run.facts["machine"] == "Linux node1"


def test_all_formats_give_the_same_words() -> None:
    names = {"api", "block_size", "transfer_size", "segments", "file_per_process", "iterations"}
    assert names <= only("ior-posix-fpp.json").options.keys()
    assert names <= only("ior-posix-shared.txt").options.keys()
    assert only("ior-random.csv").options == {"block_size": 4 * MIB, "transfer_size": 4096}


def test_iterations_are_nested_and_the_rate_is_total_by_total() -> None:
    read = phase(only("ior-posix-fpp.json"), "read")
    rates = read.iterations["bandwidth"] / MIB
    assert rates.tolist() == [5198.2079, 6970.1770, 2473.9911]
    assert bandwidth(read) / MIB == pytest.approx(3 / sum(1 / rate for rate in rates), rel=1e-6)


def test_window_is_as_fine_as_the_finer_of_rate_and_time() -> None:
    """JSON prints 0.0123 s and 5198.2079 MiB/s: the rate has five digits more."""
    read = phase(only("ior-posix-fpp.json"), "read")
    assert read.iterations["seconds"][0] == pytest.approx(64 / 5198.2079, rel=1e-7)
    text = phase(only("ior-3.3.0-fpp.txt"), "read")
    assert text.iterations["seconds"][0] == pytest.approx(0.007301, abs=5e-7)


# -- stonewalling ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "write", "read"),
    [
        ("ior-4.1-stonewall.txt", [542310400, 534052864], [542310400, 534052864]),
        ("ior-4.1-wearout.txt", [459538432, 436469760], [459538432, 436469760]),
        ("ior-3.2.1-wearout.txt", [468058112, 526254080], [468058112, 526254080]),
        ("ior-4.0.0-wearout.txt", [407896064, 484179968], [407896064, 484179968]),
        ("ior-4.1-wearout-stdout.json", [399114240, 467402752], [399114240, 467402752]),
        ("ior-4.1-stonewall.csv", [371458048, 391774208], [371458048, 391774208]),
    ],
)
def test_stonewalling_counts_what_was_moved(name: str, write: list[int], read: list[int]) -> None:
    run = only(name)
    for access, expected in (("write", write), ("read", read)):
        made = phase(run, access)
        assert made.iterations["bytes"].tolist() == expected
        assert made.iterations["operations"].tolist() == [n // 65536 for n in expected]


def test_stonewalling_facts() -> None:
    write = phase(only("ior-4.1-wearout.txt"), "write")
    assert write.facts["stonewall_seconds"] == 1.0
    assert write.facts["wear_out"] is True
    told = [write.iterations[name][0] for name in ("pairs_min", "pairs_max", "stonewall_seconds")]
    assert told == [3486, 3506, 1.0]
    assert phase(only("ior-4.1-stonewall.txt"), "write").facts["wear_out"] is False


def test_json_without_its_messages_has_the_bytes_as_well_as_rate_and_time_tell() -> None:
    """The summary file lacks what IOR says on stdout: exact if one amount fits, else noted."""
    moved = [
        int(number)
        for number in re.findall(r"bytes moved = (\d+)", text_of("ior-4.1-wearout.stdout"))
    ]
    run = only("ior-4.1-wearout.json")
    write, read = (phase(run, name).iterations for name in ("write", "read"))
    assert write["bytes"].tolist() == moved[0::2]
    assert "bytes_exact" not in write
    for part, true in zip(iterations.rows_of(read), moved[1::2], strict=True):
        assert part["bytes_exact"] == 0
        assert part["bytes"] == pytest.approx(true, rel=2e-3)
        assert part["bytes"] % 65536 == 0
    assert [note.phase for note in run.notes if note.key == "derived-amount"] == ["read", "read"]


# -- scripts, several outputs ----------------------------------------------------------------
@pytest.mark.parametrize("name", ["ior-4.1-script.txt", "ior-4.1-script.json"])
def test_tests_of_a_script_are_runs(name: str) -> None:
    first, second, third = runs(name)
    sizes = [run.options["transfer_size"] // MIB for run in (first, second, third)]
    assert sizes == [1, 2, 2]
    assert [len(run.phases) for run in (first, second, third)] == [2, 2, 1]
    assert phase(third, "write").bytes.tolist() == [48 * MIB]
    assert (first.options["file_per_process"], second.options["file_per_process"]) == (True, False)
    assert "reorder-shifts-nothing" not in keys(first) | keys(third)
    assert "reorder-shifts-nothing" in keys(second)


@pytest.mark.parametrize("name", ["ior-4.1-script.json", "ior-4.1-wearout.json", "ior-dfs.json"])
@pytest.mark.parametrize(
    "layout",
    [
        {"separators": (",", ":")},
        {"indent": 4, "sort_keys": True},
        {"separators": (",", ":"), "sort_keys": True},
    ],
)
def test_json_that_a_program_wrote_anew(name: str, layout: dict[str, Any]) -> None:
    """By jq -c, or Python with its keys sorted: "Path" then stands behind the results."""
    text = text_of(name)
    anew = json.dumps(json.loads(text), **layout)
    assert ior.is_json(anew)
    found, expected = ior.parse(anew, "x"), ior.parse(text, "x")
    assert [run.failure for run in found] == [""] * len(expected)
    for run, one in zip(found, expected, strict=True):
        assert run.facts == one.facts
        assert repr(replace(run, facts={})) == repr(replace(one, facts={}))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_json_in_one_line_that_is_cut_is_no_good_run(share: float) -> None:
    anew = json.dumps(json.loads(text_of("ior-4.1-wearout.json")), separators=(",", ":"))
    try:
        runs = ior.parse(anew[: int(share * len(anew))], "x")
    except ParseError:
        return
    assert all(run.failure for run in runs)


def test_several_outputs_in_one_text() -> None:
    both = ior.parse(text_of("ior-3.3.0-fpp.txt") + text_of("ior-posix-shared.txt"), "job.out")
    assert [run.version for run in both] == ["3.3.0", "4.1.0+dev"]
    assert [run.phases[0].bytes.sum() for run in both] == [96 * MIB, 192 * MIB]
    assert [run.failure for run in both] == ["", ""]


# -- traps -----------------------------------------------------------------------------------
def test_reordering_on_one_node_is_noted() -> None:
    (note,) = [n for n in only("ior-3.3.0-fpp.txt").notes if n.key == "reorder-shifts-nothing"]
    assert (note.phase, "1 node, 4 tasks" in note.message) == ("read", True)
    assert "reorder-shifts-nothing" not in keys(only("ior-posix-shared.txt"))
    # -C on one node, over DFS: no cache on the client
    assert "reorder-shifts-nothing" not in keys(only("ior-dfs.json"))
    two = text_of("ior-3.3.0-fpp.txt").replace("nodes               : 1", "nodes               : 2")
    two = two.replace("clients per node    : 4", "clients per node    : 2")
    assert "reorder-shifts-nothing" not in keys(ior.parse(two, "x")[0])


def test_what_the_latency_column_is() -> None:
    """4.0 divides by all transfers of a block, 4.1 by those that rank 0 did (DESIGN 8)."""
    (note,) = [n for n in only("ior-4.0.0-wearout.txt").notes if n.key == "minimum-latency"]
    assert "stonewalling" in note.message
    part = phase(only("ior-4.0.0-wearout.txt"), "write").iterations
    assert part["latency_rank0"][0] == pytest.approx(1.0 / ((1 << 30) / 65536), rel=0.01)
    part = phase(only("ior-4.1-wearout.txt"), "write").iterations
    assert part["latency_rank0"][0] == pytest.approx(1.0 / 3506, rel=0.01)
    assert "minimum-latency" not in keys(only("ior-3.2.1-fpp.txt"))  # has no such column


def test_the_latency_is_rank_0s_and_not_the_minimum() -> None:
    """Shown by the times of the ranks: iteration 0 of read, 16 transfers each."""
    times = [t for t in ior.parse_ranks(text_of("ior-4.1-ranks.csv"), "r") if t.access == "read"]
    latency = phase(only("ior-4.1-ranks.txt"), "read").iterations["latency_rank0"][0]
    assert latency == pytest.approx(times[0].transfer[0] / 16, abs=5e-7)
    assert times[0].transfer.min() / 16 < 0.6 * latency


def test_verification_inside_the_window_is_a_fact() -> None:
    assert phase(only("ior-4.1-verify.txt"), "read").facts["verified_inside"] is True
    assert "verified_inside" not in phase(only("ior-posix-shared.txt"), "read").facts
    assert "verify-in-window" in keys(only("ior-4.1-verify.txt"))
    assert "verify-in-window" not in keys(only("ior-posix-shared.txt"))


def test_a_direct_read_comes_from_no_page_cache() -> None:
    text = text_of("ior-3.3.0-fpp.txt")
    command = next(line for line in text.split("\n") if line.startswith("Command line"))
    (run,) = ior.parse(text.replace(command, f"{command} -B"), "x")
    assert "reorder-shifts-nothing" not in keys(run)
    assert phase(run, "write").facts["direct"] is True
    assert phase(only("ior-3.3.0-fpp.txt"), "write").facts["direct"] is False
    assert phase(only("ior-dfs.json"), "write").facts["direct"] is True


def test_an_end_by_time_is_told_and_no_failure() -> None:
    text = text_of("ior-3.3.0-fpp.txt")
    command = next(line for line in text.split("\n") if line.startswith("Command line"))
    more = text.replace("repetitions         : 3", "repetitions         : 5")
    (run,) = ior.parse(more.replace(command, command.replace("-i 3", "-i 5 -T 1")), "x")
    assert "limited" in keys(run)
    assert "of 5 iterations" not in run.failure
    assert "limited" not in keys(only("ior-3.3.0-fpp.txt"))


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("-O lustreStripeCount=8,summaryFormat=JSON", "-O lustreStripeCount=8"),
        ("--mpiio.hintsFileName=h -g -J 4096", "--mpiio.hintsFileName=h -J 4096 -g"),
        (
            "-O lustreStripeCount=8 -O lustreStripeSize=1m",
            "-O lustreStripeCount=8 -O lustreStripeSize=1m",
        ),
        ("-vv -k -o /elsewhere -d 5 -N 4 -G 7", None),
    ],
)
def test_options_without_a_name_here_make_other_work(words: str, other: str | None) -> None:
    """Runs with 1 and with 8 stripes are no repetitions of one another."""
    assert settings(["ior", *words.split()]).get("other_options") == other

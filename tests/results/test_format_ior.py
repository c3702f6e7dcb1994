"""IOR's outputs, as real releases wrote them, whole and damaged."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.formats import ior
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.formats.ior.as_csv import RankTimes
from fsmatrix.results.formats.ior.nest import join, with_ranks
from fsmatrix.results.metrics import bandwidth, window
from fsmatrix.results.record import Phase

DATA = Path(__file__).parents[1] / "data" / "ior"
MIB = 1 << 20
# outputs that ended well
GOOD = [
    "ior-3.2.1-fpp.txt",
    "ior-3.2.1-random.json",
    "ior-3.2.1-stdout.json",
    "ior-3.2.1-wearout.txt",
    "ior-3.3.0-fpp.txt",
    "ior-3.3.0-stdout.json",
    "ior-3.3.0-wearout.txt",
    "ior-4.0.0-fpp.txt",
    "ior-4.0.0-random.json",
    "ior-4.0.0-wearout.txt",
    "ior-4.1-random-shared.txt",
    "ior-4.1-ranks.txt",
    "ior-4.1-script.json",
    "ior-4.1-script.txt",
    "ior-4.1-stonewall.csv",
    "ior-4.1-stonewall.txt",
    "ior-4.1-verify.txt",
    "ior-4.1-wearout-stdout.json",
    "ior-4.1-wearout.json",
    "ior-4.1-wearout.txt",
    "ior-dfs-fpp.txt",
    "ior-dfs.json",
    "ior-posix-fpp.json",
    "ior-posix-shared.txt",
    "ior-random.csv",
]


def text_of(name: str) -> str:
    return (DATA / name).read_text(errors="replace")


def runs(name: str) -> list[Parsed]:
    return ior.parse(text_of(name), name)


def only(name: str) -> Parsed:
    (run,) = runs(name)
    return run


def phase(run: Parsed, name: str) -> Phase:
    (found,) = [p for p in run.phases if p.name == name]
    return found


def keys(run: Parsed) -> set[str]:
    return {note.key for note in run.notes}


# -- whole outputs ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", GOOD)
def test_real_outputs_are_understood(name: str) -> None:
    for run in runs(name):
        assert (run.engine, run.failure) == ("ior", "")
        assert run.processes
        assert "contradiction" not in keys(run)
        assert run.phases
        for made in run.phases:
            parts = made.facts["iterations"]
            assert len(parts) == run.options.get("iterations", len(parts))
            assert made.bytes.sum() == sum(part["bytes"] for part in parts)
            assert window(made) == pytest.approx(sum(part["seconds"] for part in parts))
            assert made.facts["window"] == "open to close"
            assert not made.latency
            for part in parts:
                # as IOR prints it: 2 decimals, none from 3600; 4 in JSON and CSV
                printed = part["bandwidth_mib"]
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
    first = write.facts["iterations"][0]
    assert first["open_seconds"] == 0.008169
    assert first["transfer_seconds"] == 0.296923
    assert first["close_seconds"] == 0.262745
    assert first["latency_rank0"] == 0.010784
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
    rates = [part["bandwidth_mib"] for part in read.facts["iterations"]]
    assert rates == [5198.2079, 6970.1770, 2473.9911]
    assert bandwidth(read) / MIB == pytest.approx(3 / sum(1 / rate for rate in rates), rel=1e-6)


def test_window_is_as_fine_as_the_finer_of_rate_and_time() -> None:
    """JSON prints 0.0123 s and 5198.2079 MiB/s: the rate has five digits more."""
    read = phase(only("ior-posix-fpp.json"), "read")
    assert read.facts["iterations"][0]["seconds"] == pytest.approx(64 / 5198.2079, rel=1e-7)
    text = phase(only("ior-3.3.0-fpp.txt"), "read")
    assert text.facts["iterations"][0]["seconds"] == pytest.approx(0.007301, abs=5e-7)


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
        parts = phase(run, access).facts["iterations"]
        assert [part["bytes"] for part in parts] == expected
        assert [part["operations"] for part in parts] == [n // 65536 for n in expected]


def test_stonewalling_facts() -> None:
    write = phase(only("ior-4.1-wearout.txt"), "write")
    assert write.facts["stonewall_seconds"] == 1.0
    assert write.facts["wear_out"] is True
    assert write.facts["iterations"][0]["stonewall"] == {
        "pairs_min": 3486,
        "pairs_max": 3506,
        "seconds": 1.0,
    }
    assert phase(only("ior-4.1-stonewall.txt"), "write").facts["wear_out"] is False


def test_json_without_its_messages_has_the_bytes_as_well_as_rate_and_time_tell() -> None:
    """The summary file lacks what IOR says on stdout: exact if one amount fits, else noted."""
    moved = [
        int(number)
        for number in re.findall(r"bytes moved = (\d+)", text_of("ior-4.1-wearout.stdout"))
    ]
    run = only("ior-4.1-wearout.json")
    write, read = (phase(run, name).facts["iterations"] for name in ("write", "read"))
    assert [part["bytes"] for part in write] == moved[0::2]
    for part, true in zip(read, moved[1::2], strict=True):
        assert part["bytes_exact"] is False
        assert part["bytes"] == pytest.approx(true, rel=2e-3)
        assert part["bytes"] % 65536 == 0
    assert [note.phase for note in run.notes if note.key == "recovered"] == ["read", "read"]


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
    part = phase(only("ior-4.0.0-wearout.txt"), "write").facts["iterations"][0]
    assert part["latency_rank0"] == pytest.approx(1.0 / ((1 << 30) / 65536), rel=0.01)
    part = phase(only("ior-4.1-wearout.txt"), "write").facts["iterations"][0]
    assert part["latency_rank0"] == pytest.approx(1.0 / 3506, rel=0.01)
    assert "minimum-latency" not in keys(only("ior-3.2.1-fpp.txt"))  # has no such column


def test_the_latency_is_rank_0s_and_not_the_minimum() -> None:
    """Shown by the times of the ranks: iteration 0 of read, 16 transfers each."""
    times = [t for t in ior.parse_ranks(text_of("ior-4.1-ranks.csv"), "r") if t.access == "read"]
    part = phase(only("ior-4.1-ranks.txt"), "read").facts["iterations"][0]
    assert part["latency_rank0"] == pytest.approx(times[0].transfer[0] / 16, abs=5e-7)
    assert times[0].transfer.min() / 16 < 0.6 * part["latency_rank0"]


def test_verification_inside_the_window_is_a_fact() -> None:
    assert phase(only("ior-4.1-verify.txt"), "read").facts["verified_inside"] is True
    assert "verified_inside" not in phase(only("ior-posix-shared.txt"), "read").facts


# -- failures --------------------------------------------------------------------------------
def test_wrong_data_is_a_failure() -> None:
    run = only("ior-4.1-verify-wrong.txt")
    assert run.failure == "IOR found wrong data on read: 1 errors"
    assert phase(run, "read").errors.tolist() == [1]


def test_full_file_system() -> None:
    run = only("ior-enospc.json")
    assert run.failure.startswith("no space left on device; the output is cut")
    assert run.phases == ()
    assert run.options["block_size"] == 3 << 30
    assert run.options["file_per_process"] is True
    assert run.processes == 2
    assert "warning" in keys(run)


FAILED: list[tuple[str, str]] = [
    ("ior-enospc.err", "IOR stopped itself in POSIX_Xfer (aiori-POSIX.c:818): not rc >= 0"),
    ("ior-dfs-nopool.txt", "Failed to connect to pool nopool (DAOS error -1005)"),
    ("ior-4.1-noapi.txt", "IOR: Unrecognized I/O API"),
    ("ior-3.2.1-noapi.txt", "IOR: unrecognized I/O API"),
    ("ior-4.1-nofile.txt", "no such file or directory"),
    ("ior-4.1-nodir.txt", "no such file or directory"),
    ("ior-enospc.json", "no space left on device"),
    ("ior-4.1-verify-wrong.txt", "IOR found wrong data on read: 1 errors"),
]


@pytest.mark.parametrize(("name", "reason"), FAILED)
def test_reasons_of_failures(name: str, reason: str) -> None:
    assert ior.failure_of(text_of(name)) == reason


def test_reasons_that_are_not_there() -> None:
    assert ior.failure_of("") == ""
    for name in GOOD:
        assert ior.failure_of(text_of(name)) == ""
    assert ior.failure_of("mpirun noticed that rank 0 exited on signal 9 (Killed).") == (
        "IOR was ended by signal 9 (Killed)"
    )
    assert ior.failure_of("Error invalid argument: --nope") == (
        "IOR does not know the argument --nope"
    )


def test_without_any_test_it_is_a_failed_run_with_its_reason() -> None:
    (run,) = ior.parse(text_of("ior-dfs-nopool.txt"), "x")
    assert "Failed to connect to pool nopool (DAOS error -1005)" in run.failure
    assert (run.engine, run.version, run.phases) == ("ior", "4.1.0+dev", ())
    assert "--dfs.pool=nopool" in run.argv


def test_without_ior_s_own_head_the_error_says_why() -> None:
    with pytest.raises(ParseError, match="Unrecognized I/O API"):
        ior.parse(text_of("ior-4.1-noapi.txt"), "x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an output of IOR"),
        ("hello\n", "not an output of IOR"),
        ("IOR-4.0.0: MPI Coordinated Test of Parallel I/O\n", "holds no test"),
    ],
)
def test_what_is_no_output(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        ior.parse(text, "x")


def test_old_csv_is_refused_with_the_cure() -> None:
    """Before 4.0 the format CSV writes everything but results."""
    with pytest.raises(ParseError, match="summaryFormat=default or JSON"):
        runs("ior-3.2.1-fpp.csv")
    with pytest.raises(ParseError, match="not an output of IOR"):
        runs("ior-3.3.0-fpp.csv")


def test_overwritten_head_is_recovered() -> None:
    run = only("ior-3.2.1-random.json")
    assert (run.version, run.failure) == ("", "")  # the version was overwritten: not guessed
    assert run.notes[0].key == "recovered"
    assert [p.bytes.tolist() for p in run.phases] == [[16 * MIB], [16 * MIB]]


@pytest.mark.parametrize("name", ["ior-3.3.0-fpp.txt", "ior-posix-fpp.json", "ior-random.csv"])
def test_decimal_commas_are_refused(name: str) -> None:
    text = re.sub(r"(?<=\d)\.(?=\d\d)", ",", text_of(name))
    with pytest.raises(ParseError, match="decimal commas"):
        ior.parse(text, name)


@pytest.mark.parametrize("value", ["nan", "inf", "-", "-107.73", "0.00", "1e400", "10\ufffd.73"])
def test_impossible_numbers_are_no_results(value: str) -> None:
    text = text_of("ior-3.3.0-fpp.txt").replace("107.73     107.77", f"{value}     107.77", 1)
    (run,) = ior.parse(text, "x")
    assert [part["iteration"] for part in phase(run, "write").facts["iterations"]] == [1, 2]
    assert "write has 2 of 3 iterations" in run.failure
    assert len(phase(run, "read").facts["iterations"]) == 3


@pytest.mark.parametrize("value", ["NaN", "inf", '"inf"', "-5.0", "", "1.2.3"])
def test_impossible_numbers_in_json(value: str) -> None:
    text = text_of("ior-posix-fpp.json").replace('"bwMiB": 277.0346', f'"bwMiB": {value}')
    (run,) = ior.parse(text, "x")
    assert len(phase(run, "write").facts["iterations"]) == 2
    assert "write has 2 of 3 iterations" in run.failure


@pytest.mark.parametrize(("name", "old", "new"), [
    ("ior-3.3.0-fpp.txt", "107.73     107.77", "117.73     107.77"),
    ("ior-posix-fpp.json", '"bwMiB": 277.0346', '"bwMiB": 377.0346'),
])  # fmt: skip
def test_numbers_that_contradict_each_other(name: str, old: str, new: str) -> None:
    (run,) = ior.parse(text_of(name).replace(old, new, 1), name)
    assert "contradiction" in keys(run)
    assert "damaged" in run.failure
    assert len(phase(run, "write").facts["iterations"]) == 2


def test_two_worlds_in_one_text_never_become_one_number() -> None:
    """Two single processes that wrote the same file in turns, line by line."""
    one = text_of("ior-3.3.0-fpp.txt").splitlines(keepends=True)
    other = [line.replace("0.2", "0.7").replace("107.73", "121.5") for line in one]
    mixed = "".join(line for pair in zip(one, other, strict=True) for line in pair)
    (run,) = ior.parse(mixed, "x")
    assert "two different results" in " ".join(note.message for note in run.notes)
    assert run.failure
    assert run.facts["banners"] == 2


def test_more_iterations_than_there_can_be() -> None:
    text = text_of("ior-3.3.0-fpp.txt")
    line = next(line for line in text.split("\n") if line.startswith("write     663.82"))
    more = text.replace(line, f"{line}\n{line.replace('2   ', '7   ')}")
    assert "write has 4 of 3 iterations" in ior.parse(more, "x")[0].failure


def test_windows_line_ends_and_foreign_lines() -> None:
    name = "ior-3.3.0-fpp.txt"
    whole = only(name)
    lines = text_of(name).split("\n")
    noisy = "".join(
        f"{line}\r\nhost setrlimit(RLIMIT_NOFILE) file_limit_bump 1024\r\n[h:1] PMIX: x\r\n"
        for line in lines
    )
    (run,) = ior.parse(noisy, name)
    assert [p.facts["iterations"] for p in run.phases] == [
        p.facts["iterations"] for p in whole.phases
    ]
    assert (run.failure, run.options) == ("", whole.options)


def test_warnings_are_kept_once_and_at_most_twenty() -> None:
    head, tail = text_of("ior-3.3.0-fpp.txt").split("access    bw", 1)
    text = head + "".join(f"WARNING: odd {i % 40}\n" for i in range(200)) + "access    bw" + tail
    found = [note for note in ior.parse(text, "x")[0].notes if note.key == "warning"]
    assert len(found) == len({note.message for note in found}) == 20
    assert found[0].message == "odd 0"
    assert found[0].line > 0


# -- damage ----------------------------------------------------------------------------------
def facts_seen(run: Parsed) -> set[tuple[Any, ...]]:
    """What a result claims of each iteration."""
    return {
        (p.name, part["bytes"], part["operations"], part["bandwidth_mib"])
        for p in run.phases
        for part in p.facts["iterations"]
    }


WHOLE = {name: {fact for run in runs(name) for fact in facts_seen(run)} for name in GOOD}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A real output: cut, lines doubled, interleaved with another's, mis-encoded."""
    name = draw(st.sampled_from(GOOD))
    lines = text_of(name).split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["double", "swap", "foreign", "encode", "drop", "split"]))
        if how == "double":
            lines.insert(at, lines[at])
        elif how == "swap" and at:
            lines[at - 1], lines[at] = lines[at], lines[at - 1]
        elif how == "foreign":
            lines.insert(at, draw(st.sampled_from(["", "{", "}", "[h:1] x", "\x00\ufffd", '"'])))
        elif how == "encode" and lines[at]:
            place = draw(st.integers(0, len(lines[at]) - 1))
            lines[at] = lines[at][:place] + "\ufffd" + lines[at][place + 1 :]
        elif how == "drop":
            del lines[at]
            lines = lines or [""]
        elif how == "split" and lines[at]:
            place = draw(st.integers(0, len(lines[at])))
            lines[at : at + 1] = [lines[at][:place], lines[at][place:]]
    text = "\n".join(lines)
    start = draw(st.one_of(st.just(0), st.integers(0, len(text))))
    end = draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))
    return name, text[start:end]


@settings(max_examples=400, deadline=None)
@given(damaged())
def test_damage_gives_a_result_or_an_error_and_no_new_number(case: tuple[str, str]) -> None:
    name, text = case
    try:
        found = ior.parse(text, name)
    except ParseError:
        return
    assert found
    for run in found:
        assert facts_seen(run) <= WHOLE[name]
        for made in run.phases:
            assert math.isfinite(window(made))
            assert (made.bytes >= 0).all()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GOOD), st.data())
def test_a_cut_output_fails_and_keeps_what_is_whole(name: str, data: st.DataObject) -> None:
    text = text_of(name)
    last = text.rindex("Finished") + 10 if "Finished" in text else len(text.rstrip()) - 1
    end = data.draw(st.integers(0, last))
    try:
        found = ior.parse(text[:end], name)
    except ParseError:
        return
    for run in found:
        assert facts_seen(run) <= WHOLE[name]
    if not name.endswith(".csv"):  # a CSV has no end
        assert found[-1].failure


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(GOOD), st.sampled_from(GOOD), st.integers(0, 2**32), st.integers(1, 60))
def test_interleaved_outputs(first: str, second: str, seed: int, longest: int) -> None:
    pair = [text_of(name).split("\n") for name in (first, second)]
    mixed: list[str] = []
    turns = random.Random(seed)
    while pair[0] or pair[1]:
        side = pair[turns.randrange(2)]
        count = turns.randint(1, longest)
        mixed += side[:count]
        del side[:count]
    try:
        found = ior.parse("\n".join(mixed), "mixed")
    except ParseError:
        return
    rates = {fact[3] for fact in WHOLE[first] | WHOLE[second]}
    assert {fact[3] for run in found for fact in facts_seen(run)} <= rates


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='IOR-: write read 0123456789.,"{}[]\n\\x', max_size=400))
def test_any_text(text: str) -> None:
    for prefix in ("", "IOR-4.0.0: MPI Coordinated Test of Parallel I/O\nTestID : 0\n"):
        try:
            found = ior.parse(prefix + text, "x")
        except ParseError:
            continue
        assert found


def test_much_foreign_output_is_no_obstacle() -> None:
    """Long lines and many lines, among them what the patterns begin to match."""
    junk = ["IOR-" * 20_000, "FS : " + " " * 60_000 + "x", '"a": ' * 10_000, "x" * 1_000_000]
    junk += ["write 1.0 2.0"] * 20_000 + ["WARNING: something else"] * 20_000
    head, tail = text_of("ior-3.3.0-fpp.txt").split("Results:", 1)
    (run,) = ior.parse(head + "Results:\n" + "\n".join(junk) + tail, "x")
    assert [p.facts["iterations"][2]["bandwidth_mib"] for p in run.phases] == [663.82, 6344.0]


# -- ranks -----------------------------------------------------------------------------------
def test_times_of_ranks() -> None:
    times = ior.parse_ranks(text_of("ior-4.1-ranks.csv"), "ranks")
    assert [part.access for part in times] == ["write", "read"] * 3
    assert times[0].seconds.tolist() == [3.0428171158e-02, 3.0539035797e-02]
    assert times[0].transfer.tolist() == [3.0264139175e-02, 3.0264854431e-02]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_times_of_ranks(data: st.DataObject) -> None:
    text = text_of("ior-4.1-ranks.csv")
    lines = text.split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["double", "drop", "encode", "cut"]))
    if how == "double":
        lines.insert(at, lines[at])
    elif how == "drop":
        del lines[at]
    elif how == "encode":
        lines[at] = "\ufffd" + lines[at][1:]
    else:
        lines = text[: data.draw(st.integers(0, len(text) - 1))].split("\n")
    if "\n".join(lines) in (text, text + "\n"):
        return
    try:
        times = ior.parse_ranks("\n".join(lines), "ranks")
    except ParseError:
        return
    # what is missing at the end cannot be seen here: with_ranks knows how many there must be
    whole = ior.parse_ranks(text, "ranks")
    for part, known in zip(times, whole, strict=False):
        assert part.seconds.tolist() == known.seconds.tolist()[: len(part.seconds)]
    assert sum(len(part.seconds) for part in times) < sum(len(part.seconds) for part in whole)


def single(seconds: float = 1.0) -> Phase:
    part = {"iteration": 0, "bytes": 8 * MIB, "operations": 8, "seconds": seconds}
    return Phase(
        "write", np.zeros(1), np.array([seconds]), np.array([8 * MIB]), np.array([8]),
        np.array([0]), facts={"iterations": [part], "window": "open to close"},
    )  # fmt: skip


def times_of(*seconds: float) -> list[RankTimes]:
    return [RankTimes("write", np.array(seconds), np.array(seconds))]


def test_ranks_make_arrays_and_leave_the_window() -> None:
    made, notes = with_ranks(single(), times_of(0.5, 0.99), 2, even=True)
    assert notes == ()
    assert made.bytes.tolist() == [4 * MIB, 4 * MIB]
    assert made.end.tolist() == pytest.approx([0.51, 1.0])
    assert bandwidth(made) == bandwidth(single())
    assert made.facts["iterations"][0]["slowest_rank"] == 1


def test_ranks_whose_shares_are_not_known_stay_totals() -> None:
    made, notes = with_ranks(single(), times_of(0.5, 0.99), 2, even=False)
    assert (made.bytes.tolist(), notes) == ([8 * MIB], ())
    assert made.facts["iterations"][0]["rank_seconds"]["maximum"] == 0.99


@pytest.mark.parametrize(
    ("times", "key"), [(times_of(0.5), "recovered"), (times_of(0.5, 1.1), "contradiction")]
)
def test_ranks_that_do_not_fit_are_not_used(times: list[RankTimes], key: str) -> None:
    made, notes = with_ranks(single(), times, 2, even=True)
    assert made.facts == single().facts
    assert [note.key for note in notes] == [key]
    assert isinstance(notes[0], Note)


def test_invocations_are_joined() -> None:
    made = join([single(1.0), single(3.0)])
    assert bandwidth(made) == 4 * MIB
    assert [part["iteration"] for part in made.facts["iterations"]] == [0, 1]
    assert (made.bytes.tolist(), made.operations.tolist()) == ([16 * MIB], [16])

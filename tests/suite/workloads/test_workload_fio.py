"""The workload `fio`: arguments, refusals, job files; and the real fio on two emulated nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import Access, DeviceAccess, DfsAccess, RadosAccess
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.fio import read
from fsmatrix.suite.workloads.fio import Fio
from fsmatrix.suite.workloads.fio_options import FioOptions
from fsmatrix.suite.workloads.workload import Output, Step
from tests.suite.workloads.fio_workload import MIB, PATH, argv, case_of, workload

DATA = Path(__file__).parents[2] / "data" / "fio"
JOB = "[global]\nsize=1m\nruntime=1\ntime_based\n[a]\nrw=read\n[b]\nrw=randwrite\nnumjobs=2\n"


def recorded(version: str) -> Engine:
    answers = [
        (DATA / f"{version}-{what}.txt").read_text()
        for what in ("version", "enghelp", "enghelp-rados")
    ]
    number, features = read(answers)
    return Engine("fio", number, "/usr/bin/fio", features)


OLD, NEW = recorded("3.33"), recorded("3.42")


def words(step: Step) -> dict[str, str]:
    """--key=value of a step's arguments."""
    pairs = (word[2:].partition("=") for word in argv(step).argv if word.startswith("--"))
    return {key: value for key, _, value in pairs}


# -- the engine ------------------------------------------------------------------------------
def test_versions_and_features_are_read() -> None:
    assert OLD.version == "3.33"
    assert {"ioengine:psync", "ioengine:rados", "rados:touch_objects"} <= OLD.features
    assert "job_start" not in OLD.features
    assert "job_start" in NEW.features
    assert "ioengine:rados" not in NEW.features


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (["fio-2.21", "", ""], "2.21 is too old"),
        (["bash: fio: not found", "", ""], "this is not fio"),
        (["fio-3.33", "error", ""], "names no I/O engine"),
    ],
)
def test_engines_that_cannot_be_used(answers: Sequence[str], text: str) -> None:
    with pytest.raises(EngineError, match=text):
        read(answers)


# -- steps -----------------------------------------------------------------------------------
def outline(work: Fio, access: Access = PATH) -> list[tuple[str, str, bool]]:
    return [(s.name, s.role, s.reads) for s in work.steps(case_of(), access, OLD)]


def test_outline() -> None:
    layout = ("layout", "setup", False)
    for rw, name in (("read", "read"), ("randread", "read"), ("randrw", "mixed")):
        assert outline(workload(rw=rw)) == [layout, (name, "timed", True)]
    assert outline(workload(rw="write")) == [("write", "timed", False)]
    assert outline(workload(rw="randwrite")) == [layout, ("write", "timed", True)]
    assert outline(workload(rw="randwrite", overwrite=False)) == [("write", "timed", False)]
    assert outline(workload(rw="readwrite"))[-1][0] == "mixed"


def test_layout_and_work_name_the_same_files() -> None:
    layout, timed = workload(rw="randrw", bs="4KiB").steps(
        case_of(nodes=2, processes_per_node=3), PATH, OLD
    )
    first, second = words(layout), words(timed)
    same = ("directory", "filename_format", "size", "nrfiles", "numjobs", "name", "ioengine")
    assert {key: first[key] for key in same} == {key: second[key] for key in same}
    assert second["directory"] == "{path}"
    assert "{node}" in second["filename_format"]
    assert (first["create_only"], first["bs"], first["overwrite"]) == ("1", str(MIB), "1")
    assert (second["bs"], second["numjobs"], second["rwmixread"]) == ("4096", "3", "50")
    assert "create_only" not in second
    assert argv(layout).collect == ()


def test_what_is_measured_with() -> None:
    timed = workload(rw="read", runtime=60).steps(case_of(), PATH, OLD)[-1]
    given = words(timed)
    assert given["output-format"] == "json+"
    assert (given["group_reporting"], given["invalidate"]) == ("0", "0")
    assert given["write_bw_log"].startswith("{scratch}/")
    assert given["write_lat_log"].startswith("{scratch}/")
    assert (given["log_unix_epoch"], given["log_avg_msec"]) == ("1", "120")
    assert argv(timed).collect == ("*.log",)
    assert (given["runtime"], given["time_based"]) == ("60000ms", "1")
    assert "write_lat_log" not in words(workload().steps(case_of(), PATH, NEW)[-1])


def test_direct_and_passed_arguments() -> None:
    assert "direct" not in words(workload().steps(case_of(), PATH, OLD)[-1])
    assert words(workload().steps(case_of("bypass"), PATH, OLD)[-1])["direct"] == "1"
    work = workload(direct=True, fsync=4, norandommap=True, extra_arguments=["--thinktime=5"])
    timed = work.steps(case_of(), PATH, OLD)[-1]
    given = words(timed)
    assert (given["direct"], given["fsync"], given["norandommap"]) == ("1", "4", "1")
    assert argv(timed).argv[-1] == "--thinktime=5"


def test_rados() -> None:
    access = RadosAccess("rados", "t", pool="p", conf="/etc/c.conf", user="u", prefix="fsm.1")
    layout, timed = workload(rw="randread", size=16 << 30).steps(case_of(), access, OLD)
    first, second = words(layout), words(timed)
    assert (second["pool"], second["clientname"], second["conf"]) == ("p", "u", "/etc/c.conf")
    assert second["filename_format"].startswith("fsm.1.{run}.node{node}.")
    assert second["touch_objects"] == "0"
    assert first["rw"] == "write"
    assert first["filename_format"] == second["filename_format"]
    assert int(first["nrfiles"]) == int(second["nrfiles"]) == 128
    assert "end_fsync" not in first
    synced = workload(rw="write", end_fsync=True)
    assert "crashes at an fsync" in synced.unsupported(case_of(), "rados", OLD)
    small = words(workload(rw="write", size=64 * MIB).steps(case_of(), access, OLD)[-1])
    assert small["nrfiles"] == "64"


def test_device_and_dfs() -> None:
    device = DeviceAccess("raw", "t", device="/dev/sdz", path="/dev/a:b")
    layout, timed = workload(rw="read").steps(case_of(processes_per_node=2), device, OLD)
    assert words(timed)["filename"] == "/dev/a\\:b/{run}/data"
    assert words(timed)["direct"] == words(layout)["direct"] == "1"
    assert words(timed)["allow_file_create"] == words(layout)["allow_file_create"] == "0"
    assert words(timed)["offset_increment"] == str(MIB)
    assert words(layout)["rw"] == "write"
    nodes, one = case_of(nodes=2), case_of()
    assert "jobs of several nodes" in workload(rw="read").misfit(nodes, "device")
    moved = workload(rw="read", extra_arguments=("--offset=1g",))
    assert "each job has its range" in moved.misfit(one, "device")
    assert "O_DIRECT needs" in workload(rw="read", bs=1000, size=10000).misfit(one, "device")
    assert workload(rw="read").misfit(one, "device") == ""
    dfs = DfsAccess("daos-dfs", "t", pool="p", container="c", prefix="/fsm/1")
    given = words(workload(rw="write").steps(case_of(), dfs, OLD)[-1])
    assert (given["ioengine"], given["pool"], given["cont"]) == ("dfs", "p", "c")
    assert given["thread"] == "1"
    assert "/" not in given["filename_format"]


def test_a_job_file() -> None:
    work = Fio(FioOptions(job=JOB))
    case = case_of(processes_per_node=3)
    layout, timed = work.steps(case, PATH, OLD)
    assert (timed.name, timed.phases) == ("read", ("read", "write"))
    text = argv(timed).files["job.fio"]
    assert text.endswith(JOB)
    assert "directory={path}\n" in text
    assert "create_only=1\n" in argv(layout).files["job.fio"]
    assert argv(timed).argv[-1] == "{scratch}/job.fio"
    assert work.refusal(case) == ""
    assert "makes 3 jobs, but processes_per_node is 1" in work.refusal(case_of())
    needs = work.footprint(case)
    assert (needs.space, needs.files, needs.written) == (3 * MIB, 3, 5 * MIB)


def test_the_text_of_a_job_file_makes_the_case(tmp_path: Path) -> None:
    file = tmp_path / "mine.fio"
    file.write_text(JOB)
    from_file = FioOptions.model_validate({"job_file": str(file)})
    assert from_file.model_dump(exclude_defaults=True) == {"job": JOB}
    with pytest.raises(ValidationError, match="cannot be read"):
        FioOptions.model_validate({"job_file": str(tmp_path / "missing.fio")})


# -- options ---------------------------------------------------------------------------------
def job(*lines: str) -> dict[str, Any]:
    return {"job": "\n".join(("[a]", "size=1m", *lines, "")), "size": None}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"bytes_total": MIB}, "exactly one of them"),
    ({"size": None}, "exactly one of them"),
    ({"rw": "randtrim"}, "rw"),
    ({"fsync": 1, "fdatasync": 1}, "not both"),
    ({"ramp_time": 3}, "needs a runtime"),
    ({"ioengine": "exec"}, "ioengine"),
    ({"bs": "4k"}, "ambiguous"),
    ({"extra_arguments": ["--filename=/etc/passwd"]}, "the suite chooses the files"),
    ({"extra_arguments": ["-filename=/etc/passwd"]}, "write --name=value"),
    ({"extra_arguments": ["--filena=/etc/passwd"]}, "the suite chooses the files"),
    ({"extra_arguments": ["--exec_prerun=rm"]}, "runs no other programs"),
    ({"extra_arguments": ["--output=x"]}, "reads fio's output"),
    ({"extra_arguments": ["--blocksize=8k"]}, "give it as the option bs"),
    ({"extra_arguments": ["--iodept=8"]}, "give it as the option iodepth"),
    ({"extra_arguments": ["other.fio"]}, "write --name=value"),
    ({"extra_arguments": ["--verify=md5"]}, "the workload pattern verifies"),
    (job("directory=/"), "the suite chooses the files"),
    (job("exec-prerun=rm"), "runs no other programs"),
    (job("stonewall"), "separate cases"),
    (job("write_bw_log=/etc/x"), "the suite measures with it"),
    (job("ioengine=exec"), "is not one of psync"),
    (job("ioengine=external:/tmp/x.so"), "is not one of psync"),
    (job("include other.fio"), "include"),
    (job("include:/tmp/other.fio"), "include"),  # fio takes any character after the word
    (job("bs=4k", "  filename=/etc/x"), "the suite chooses the files"),  # not a value going on
    (job("file${NOT_SET}name=/etc/x"), "no name of an option"),
    (job("bs=${SIZE}"), "write it out"),
    (job("# " + "x" * 8189 + "filename=/etc/x"), "longer than"),  # to fio, an option
    (job("[no section has this name]", "bs=4k"), "name it with letters"),
    (job("[globals]", "bs=4k"), "another name"),  # fio compares the first six letters
    (job("buffered=1"), "say direct"),
    ({"extra_arguments": ["--filesize=1t"]}, "say size"),
    ({"extra_arguments": ["--buffered=1"]}, "say direct"),
    ({"extra_arguments": ["--log_max_value=1"]}, "the suite measures with it"),
    (job("numjobs=0"), "positive number"),
    (job("rw=trim"), "not one of read"),
    ({"job": "[a]\nrw=read\n", "size": None}, "give size="),
    ({"job": "[../../x]\nsize=1m\n", "size": None}, "name it with letters"),
    ({"job": "[global]\nsize=1m\n", "size": None}, "has no job"),
    ({"job": "rw=read\n", "size": None}, "not a job file"),
    ({"job": "[a]\nsize=1m\n[a]\nsize=2m\n", "size": None}, "already exists"),
    ({"job": JOB, "rw": "write", "size": None}, "in the job file itself"),
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=lambda value: str(value)[:50])
def test_bad_options_are_refused_with_the_reason(options: dict[str, Any], text: str) -> None:
    given = {"size": MIB} | options
    given = {key: value for key, value in given.items() if value is not None}
    with pytest.raises(ValidationError, match=text):
        FioOptions.model_validate(given)


def test_a_default_written_out_is_the_same_case() -> None:
    released = {
        "rw": "read",
        "bs": 4096,
        "iodepth": 1,
        "runtime": 0,
        "rwmixread": 50,
        "direct": False,
        "end_fsync": False,
        "randrepeat": True,
        "random_generator": "tausworthe",
        "numjobs": None,
        "ioengine": None,
        "nrfiles": None,
        "extra_arguments": (),
    }
    options = FioOptions.model_validate({"size": MIB} | released)
    assert options.model_dump(exclude_defaults=True) == {"size": MIB}
    stored = json.loads(json.dumps(options.model_dump(mode="json", exclude_defaults=True)))
    assert FioOptions.model_validate(stored) == options


REFUSED: list[tuple[dict[str, Any], Case, str]] = [
    ({"numjobs": 2}, case_of(), "numjobs is 2, but processes_per_node is 1"),
    ({}, case_of(threads=2), "no threads"),
    ({"bs": 3000}, case_of(), "no multiple of bs"),
    ({"nrfiles": 3}, case_of(), "in 3 files is no multiple"),
    ({"size": None, "bytes_total": MIB}, case_of(nodes=3), "does not divide into 3"),
    ({"bs": 128, "rw": "write"}, case_of("bypass"), "multiples of 512"),
    ({"ioengine": "rados", "size": 1 << 40, "nrfiles": 64}, case_of(), "above 128MiB"),
    (job("direct=00"), case_of("bypass"), "says direct=00"),
]


@pytest.mark.parametrize(("options", "case", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_say_why(options: dict[str, Any], case: Case, text: str) -> None:
    given = {key: value for key, value in ({"size": MIB} | options).items() if value is not None}
    assert text in Fio(FioOptions.model_validate(given)).refusal(case)


def test_what_the_engine_cannot_do() -> None:
    case = case_of()
    assert workload().unsupported(case, "path", OLD) == ""
    assert "has no ioengine libaio" in workload(ioengine="libaio").unsupported(case, "path", NEW)
    assert "needs rados access" in workload(ioengine="rados").unsupported(case, "path", OLD)
    assert "needs a path" in workload(ioengine="psync").unsupported(case, "rados", OLD)
    assert "needs rbdname" in workload(ioengine="rbd").unsupported(case, "rados", OLD)
    assert "no multiple" in workload(size=MIB + 4096).misfit(case, "rados")
    assert workload(size=MIB + 4096).misfit(case, "path") == ""
    assert workload(size=64 * MIB).unsupported(case, "rados", OLD) == ""
    assert "has no ioengine dfs" in workload().unsupported(case, "dfs", OLD)


# -- parse -----------------------------------------------------------------------------------
def recorded_output(number: int, step: str = "mixed") -> Output:
    stem = f"3.33-randrw-node{number}."
    files = {p.name.removeprefix(stem): p.read_text() for p in DATA.glob(stem + "*.log")}
    text = (DATA / f"{stem}json").read_text()
    return Output(step, f"node{number}", number, stdout=text, files=files)


def test_every_node_and_job_must_answer() -> None:
    work = workload(rw="randrw", runtime=1)
    outputs = [recorded_output(1), recorded_output(2)]
    good = work.parse(case_of("warm", nodes=2, processes_per_node=2), outputs)
    assert good.failure == ""
    assert good.phases[0].facts["overlap"] > 0.95
    case = case_of("warm", nodes=2, processes_per_node=2)
    assert "fio answered on 1 of 2 nodes" in work.parse(case, outputs[:1]).failure
    more = case_of("warm", nodes=2, processes_per_node=4)
    assert "fio ran 4 jobs, not 8" in work.parse(more, outputs).failure
    with pytest.raises(ParseError, match="no node"):
        work.parse(case, [])
    fixed = workload(rw="randrw", bytes_total=4 * MIB, size=None)
    assert re.search(r"fio moved \d+ of 4194304 bytes", fixed.parse(case, outputs).failure)
    other = workload(rw="read", runtime=1)
    reads = [recorded_output(1, "read"), recorded_output(2, "read")]
    assert "fio gave mixed, asked was read" in other.parse(case, reads).failure


def test_cold_reads_of_the_same_data_again_are_noted() -> None:
    case = case_of("cold", nodes=1, processes_per_node=2)
    run = workload(rw="randrw", runtime=1).parse(case, [recorded_output(1)])
    assert "reread" in {note.key for note in run.notes}


def test_a_clock_that_is_wrong_is_put_right() -> None:
    case = case_of("warm", nodes=1, processes_per_node=2)
    work = workload(rw="randrw", runtime=1)
    plain = recorded_output(1)
    (phase,) = work.parse(case, [plain]).phases
    ends = phase.began + float(phase.end.max())

    def seen(ahead: float) -> Parsed:
        began, ended = phase.began - 0.3 - ahead, ends + 0.2 - ahead
        output = Output(
            "mixed", "n", 0, stdout=plain.stdout, files=plain.files, began=began, ended=ended
        )
        return work.parse(case, [output])

    assert seen(0.0).phases[0].began == phase.began
    moved = seen(100.0)
    (late,) = moved.phases
    assert "clock-shifted" in {note.key for note in moved.notes}
    assert abs(late.began - (phase.began - 100)) <= late.clock_uncertainty
    assert 0 < late.clock_uncertainty < 0.6

"""nmon, sar and collectl: tests/data/nodes holds outputs of Debian's packages."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.results.evidence.nodes import unit_of
from fsmatrix.results.formats.nodes.node_series import (
    EVER,
    Clock,
    NodeSeries,
    Spans,
    Text,
    counted,
    known,
)
from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import Floats

DATA = Path(__file__).parents[2] / "data" / "nodes"
BERLIN = ZoneInfo("Europe/Berlin")
EXAMPLES = {
    "nmon": ("berlin.nmon", "german.nmon"),
    "sar": ("sar.json", "sar-german.json", "sar-local.json", "sar-restart.json"),
    "collectl": ("collectl.tab.gz", "collectl-berlin.tab", "collectl-stdout.txt"),
}


def content(name: str) -> bytes:
    data = (DATA / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def parsed(tool: str, data: bytes, zone: tzinfo | None = UTC, wanted: Spans = EVER) -> NodeSeries:
    made = known(tool)
    text = Text("file", lambda: [data[at : at + 1000] for at in range(0, len(data), 1000)])
    head = made.head(text)
    clock = Clock(head.zone or zone)
    return made.parse(text, head, clock, wanted)


def series(found: NodeSeries, name: str) -> list[float]:
    """Values along all samples."""
    values: Floats = np.full(found.time.size, np.nan)
    for columns in found.columns:
        if name in columns.names:
            values[columns.rows] = columns.values[:, columns.names.index(name)]
    return [round(float(value), 6) for value in values]


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_nmon_writes_local_times_kib_and_percent() -> None:
    found = parsed("nmon", content("berlin.nmon"), BERLIN)
    assert found.host == "node1"
    assert found.time.tolist() == [at("2026-11-29T14:26:49Z") + i for i in range(4)]
    assert found.begins.tolist() == [time - 1 for time in found.time]
    assert series(found, "cpu_user") == pytest.approx([0.903, 0.95, 0.96, 0.9], abs=1e-6)
    assert series(found, "cpu_system")[0] == pytest.approx(0.091)
    assert series(found, "disk_read:vda")[0] == pytest.approx(403.9 * 1024)
    assert series(found, "disk_busy:vda")[1] == pytest.approx(0.08)
    assert series(found, "link_packets_received:eth0")[0] == pytest.approx(1.4)
    used = (24105.1 - 18885.1 - 73.6 - 2930.2) * 2**20
    assert series(found, "memory_used")[0] == pytest.approx(used, rel=1e-6)
    assert found.moved[0] == pytest.approx(0.2 * 1024)  # of eth0, both ways; not of lo
    assert not any(name.endswith(":lo") for columns in found.columns for name in columns.names)


def test_nmon_sorted_by_lines_as_its_notes_advise() -> None:
    data = content("berlin.nmon")
    whole, again = (parsed("nmon", d) for d in (data, b"".join(sorted(data.splitlines(True)))))
    assert again.time.tolist() == whole.time.tolist()
    names = {name for columns in whole.columns for name in columns.names}
    assert {name: series(again, name) for name in names} == {n: series(whole, n) for n in names}


def test_sar_in_utc_with_the_queue_and_latency_of_devices() -> None:
    found = parsed("sar", content("sar.json"), BERLIN)
    assert found.time[0] == at("2026-11-29T14:26:48Z")
    first = json.loads(content("sar.json"))["sysstat"]["hosts"][0]["statistics"][0]
    (disk,) = (d for d in first["disk"] if d["disk-device"] == "vda")
    assert series(found, "disk_read:vda")[0] == pytest.approx(disk["rkB"] * 1024)
    assert series(found, "disk_queue:vda")[0] == pytest.approx(disk["aqu-sz"])
    assert series(found, "disk_latency:vda")[0] == pytest.approx(disk["await"] / 1000)
    assert np.isnan(series(found, "disk_latency:loop3")).all()  # no request, no latency
    assert series(found, "link_drops:eth0") == [0, 0, 0, 0]
    assert series(found, "cpu_core_max") == [1, 1, 1, 1]
    assert series(found, "memory_used")[0] == pytest.approx(first["memory"]["memused"] * 1024)


def test_sar_of_before_11_7_counts_caches_as_used_and_sectors() -> None:
    document = json.loads(content("sar.json"))
    for values in document["sysstat"]["hosts"][0]["statistics"]:
        memory = values["memory"]
        memory["memused"] = 1_000_000 - memory["memfree"] % 1000
        memory["memfree"], memory["buffers"], memory["cached"] = 500_000, 20_000, 30_000
        memory["memused-percent"] = 100 * memory["memused"] / (memory["memused"] + 500_000)
        for disk in values["disk"]:
            disk["rd_sec"], disk["wr_sec"] = 10.0, 20.0
            del disk["rkB"], disk["wkB"], disk["aqu-sz"]
            disk["avgqu-sz"] = 3.0
    found = parsed("sar", json.dumps(document).encode())
    first = document["sysstat"]["hosts"][0]["statistics"][0]["memory"]["memused"]
    assert series(found, "memory_used")[0] == pytest.approx((first - 50_000) * 1024)
    assert series(found, "disk_read:vda")[0] == 5120
    assert series(found, "disk_queue:vda")[0] == 3


def test_sar_written_in_local_time_needs_a_zone() -> None:
    head = known("sar").head(Text("f", lambda: [content("sar-local.json")]))
    assert head.zone is None  # its field `timezone` says UTC: of who took it, not of its times
    german = parsed("sar", content("sar-german.json"))
    assert german.time[0] == at("2026-11-29T14:26:48Z")


def test_collectl_says_its_zone_and_its_files_go_together() -> None:
    whole = parsed("collectl", content("collectl.tab.gz"), BERLIN)
    assert whole.time[0] == at("2026-11-29T14:26:51Z")
    assert {name for columns in whole.columns for name in columns.names} == {
        "cpu_user", "cpu_system", "cpu_iowait", "cpu_idle", "memory_used",
    }  # fmt: skip
    berlin = parsed("collectl", content("collectl-berlin.net"))
    assert berlin.time[0] == at("2026-11-29T14:26:50.505Z")
    assert berlin.begins[0] == pytest.approx(berlin.time[0] - 0.5)
    disks = parsed("collectl", content("collectl.dsk.gz"))
    assert series(disks, "disk_written:vda")[3] == 14144 * 1024
    assert np.isnan(series(disks, "disk_latency:vda")[0])  # "0" ms: below one, or none
    assert series(disks, "disk_latency:vda")[3] == pytest.approx(0.005)
    cores = parsed("collectl", content("collectl.cpu.gz"))
    assert series(cores, "cpu_core_max") == [1, 1, 1, 1]
    with pytest.raises(ParseError, match="-on: its values are not per second"):
        parsed("collectl", content("collectl.tab.gz").replace(b"-P -c4", b"-P -on"))


def test_all_series_are_known_and_have_values() -> None:
    for tool, names in EXAMPLES.items():
        for name in names:
            found = parsed(tool, content(name))
            for columns in found.columns:
                assert columns.values.shape == (len(columns.rows), len(columns.names))
                assert all(unit_of(each) for each in columns.names)


def test_collectl_that_went_on_after_a_restart_has_a_gap() -> None:
    data = content("collectl.tab.gz")
    later = data.replace(b" 14:26:5", b" 14:28:5")
    found = parsed("collectl", data + later)
    assert found.time.size == 8
    assert found.begins[4] == found.time[4] - 1 > found.time[3]


def test_an_hour_that_a_zone_has_twice() -> None:
    clock = Clock(BERLIN)
    day = (2026, 10, 25)
    times = [clock.unix(day, hour * 3600) for hour in (1.5, 2.5, 2.4, 3.4)]
    assert np.diff(times).tolist() == pytest.approx([3600, 3240, 3600])
    other = Clock(timezone(timedelta(hours=-5)))
    assert other.unix((2026, 1, 1), 0) == at("2026-01-01T05:00:00Z")


def test_what_is_kept_lies_near_what_is_wanted() -> None:
    data = content("berlin.nmon")
    begin = at("2026-11-29T15:26:52Z")
    near = parsed("nmon", data, UTC, Spans.of([(begin + 1, begin + 2)]))
    assert near.time.size == near.moved.size == 4
    assert not np.isnan(near.moved).any()  # of all: for the clock's bound
    assert all(columns.rows.min() > 0 for columns in near.columns)
    far = parsed("nmon", data, UTC, Spans.of([(begin + 900, begin + 901)]))
    assert far.columns == ()
    assert far.time.size == 4


def test_partitions_do_what_their_disk_does() -> None:
    names = [
        "sda",
        "sda1",
        "sdaa",
        "nvme0n1",
        "nvme0n1p2",
        "loop1",
        "loop10",
        "dm-1",
        "dm-10",
        "md1",
    ]
    kept = counted(f"disk_read:{name}" for name in names)
    assert kept == [f"disk_read:{n}" for n in names if n not in ("sda1", "nvme0n1p2")]


@pytest.mark.parametrize(
    ("tool", "old", "new", "reason"),
    [
        ("nmon", ",95.0,5.0,0.0,0.0,0.0,,2", ",95,0,5,0,0,0,0,0,0,0,,2", "12 values for 7 columns"),
        ("nmon", "15:26:50,29-NOV", "15:26:50,29-XYZ", "is no time as ZZZZ,T0001"),
        ("nmon", "ZZZZ,T0002", "ZZZZ,T0001", "T0001 is there twice"),
        ("nmon", "CPU_ALL,T0002,95.0", "CPU_ALL,T0002,9x.0", "line 60: '9x.0' is not a number"),
        ("sar", '"tps": ', '"tps": x', "no JSON as sadf writes it"),
        ("sar", '"time": "14:26:49"', '"time": "25:26:49"', "not as sadf writes it"),
        ("sar", '"rxpck"', '"rx"', "KeyError"),
        ("collectl", "20261129 14:26:52", "20261329 14:26:52", "is no time as 20261129"),
        ("collectl", "20261129 14:26:52 ", "20261129 14:26:52 9 ", "71 values for 70 columns"),
    ],
)
def test_what_is_damaged_inside_is_named(tool: str, old: str, new: str, reason: str) -> None:
    text = content(EXAMPLES[tool][0]).decode()
    assert old in text
    with pytest.raises(ParseError, match=reason):
        parsed(tool, text.replace(old, new, 1).encode())


def test_a_cut_file_gives_what_it_has_whole() -> None:
    nmon = content("berlin.nmon")
    found = parsed("nmon", nmon[:-3])
    assert any("cut off" in note for note in found.notes)
    assert np.isnan(series(found, "disk_written:vda")).sum() <= 1
    sar = content("sar.json")
    found = parsed("sar", sar[: sar.rindex(b'"cpu-load"')])
    assert found.time.size == 3
    assert found.notes
    with pytest.raises(ParseError, match="holds no sample"):
        parsed("sar", sar[: sar.index(b'"cpu-load"')])


@pytest.mark.parametrize("tool", sorted(EXAMPLES))
def test_what_is_of_another_tool_is_refused_with_what_is_read(tool: str) -> None:
    others = [names[0] for other, names in EXAMPLES.items() if other != tool]
    for name in (*others, "sar-12h.txt"):
        with pytest.raises(ParseError, match=r"is not .*: .*"):
            parsed(tool, content(name))
    with pytest.raises(ParseError, match="is not text"):
        parsed(tool, b"\x96\xd5\0\0")


@settings(max_examples=60, deadline=None)
@given(
    tool=st.sampled_from(sorted(EXAMPLES)),
    place=st.floats(0, 1),
    junk=st.binary(max_size=8),
    drop=st.integers(0, 200),
)
def test_damage_is_an_error_or_a_series(tool: str, place: float, junk: bytes, drop: int) -> None:
    data = content(EXAMPLES[tool][0])
    begin = int(place * len(data))
    try:
        found = parsed(tool, data[:begin] + junk + data[begin + drop :])
    except ParseError:
        return
    assert (np.diff(found.time) > 0).all()


@pytest.mark.skipif(not shutil.which("nmon"), reason="nmon is not installed")
def test_the_nmon_of_this_machine(tmp_path: Path) -> None:
    subprocess.run(["nmon", "-F", tmp_path / "now", "-s1", "-c1"], check=True, cwd=tmp_path)
    made = tmp_path / "now"
    for _ in range(200):
        if made.exists() and b"ZZZZ" in made.read_bytes():
            break
        time.sleep(0.1)
    found = parsed("nmon", made.read_bytes(), None)
    assert abs(found.time[-1] - made.stat().st_mtime) < 60


@pytest.mark.skipif(not shutil.which("sadf"), reason="sysstat is not installed")
def test_the_sar_of_this_machine(tmp_path: Path) -> None:
    subprocess.run(["sar", "-o", tmp_path / "now", "1", "1"], check=True, capture_output=True)
    command = ["sadf", "-j", str(tmp_path / "now"), "--", "-A"]
    made = subprocess.run(command, check=True, capture_output=True).stdout
    found = parsed("sar", made)
    assert {"cpu_user", "memory_used"} <= {n for c in found.columns for n in c.names}

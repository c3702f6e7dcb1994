"""The archive: complete, checked, the same bytes again, and without secrets if so wished."""

import hashlib
import io
import json
import os
import re
import tarfile
from dataclasses import fields, replace
from datetime import datetime

import h5py
import numpy as np
import pytest

from fsmatrix.results import histogram
from fsmatrix.results.case import Case
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.files.run.runfile import read_run
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Finding, Latency, Monitor, Phase, RunRecord
from fsmatrix.results.sharing.bundle import Options, bundle
from tests.archives import unpack

# made up; none is part of a word that may stay
SECRETS = {
    "host": "mars17", "fqdn": "venus.hpc.geheim.example", "user": "xaverius", "home": "joergina",
    "path": "projekt471", "file": "plan9daten", "ipv4": "10.47.11.8", "ipv6": "2001:db8:47::11",
    "mac": "00:1b:44:11:3a:b7", "serial": "S4EVNX0R47", "wwid": "naa.5000c500a1b2c3d4",
    "job": "8123456", "uuid": "ce350c37-197a-40f6-9b10-8dafde0f8e81", "mail": "chef@geheim.example",
    "account": "m2geheim", "export": "saturn03",
}  # fmt: skip
HOST, FQDN, USER, JOB = (SECRETS[name] for name in ("host", "fqdn", "user", "job"))
PATH = f"/lustre/{SECRETS['path']}/{USER}/{SECRETS['file']}"
# one sentence with all of them
SENTENCE = (
    f"{USER} in job {JOB} on {HOST} ({FQDN}, {SECRETS['ipv4']}, [{SECRETS['ipv6']}]:67, "
    f"{SECRETS['mac']}): {PATH} and /home/{SECRETS['home']}/x, disks {SECRETS['serial']} and "
    f"{SECRETS['wwid']}, {SECRETS['uuid']}; {SECRETS['account']} asks {SECRETS['mail']}, "
    f"{SECRETS['export']}:/export"
)
TOLD = {
    "host": HOST, "hosts": [FQDN, f"{HOST}ib0"], "user": USER, "account": SECRETS["account"],
    "serial": SECRETS["serial"], "wwid": SECRETS["wwid"], "job_id": int(JOB), "text": SENTENCE,
    "mount_point": PATH, "mount_source": f"{SECRETS['export']}:/{SECRETS['path']}",
    HOST: {"busy": 0.5}, PATH: [SENTENCE], "address": f"{SECRETS['ipv4']}:6789",
}  # fmt: skip
CAMPAIGN = f"""# by {USER}, {SENTENCE}
campaign: geheim-study
description: "{SENTENCE}"
targets:
  {HOST}: {{backend: directory, options: {{path: {PATH}}}}}
launcher: {{hosts: [{HOST}, {FQDN}]}}
"""


def phase(seed, name="write"):
    random = np.random.default_rng(seed)
    counts = np.zeros(histogram.BINS, dtype=np.int64)
    counts[random.integers(0, histogram.BINS, 50)] = random.integers(1, 99, 50)
    return Phase(
        name, start=np.zeros(2), end=1 + random.random(2),
        bytes=random.integers(1, 2**40, 2), operations=random.integers(1, 2**20, 2),
        errors=np.zeros(2, np.int64), began=1.7e9,
        latency={"write": Latency(counts, random.random(), 1e-6, 1e-2)},
        interval=0.1, interval_bytes=random.integers(0, 99, 5), interval_operations=None,
        errors_by_errno={f"E{HOST}": 1}, facts=dict(TOLD),
    )  # fmt: skip


def secretive(repetition):
    """A run with a secret in every field that holds text."""
    case = Case(HOST, "pattern", {"chunk": 4096, "file": PATH}, level={"place": FQDN})
    severity = "invalid" if repetition == 2 else "warning"
    return RunRecord(
        case=case.canonical, case_id=case.case_id, work_id=case.work_id, repetition=repetition,
        attempt=1, block=repetition, attachment=f"b{repetition:03d}-{HOST}-5073ecf9",
        session=f"s-{HOST}", status="failed" if repetition == 1 else "ok", engine=f"e-{HOST}",
        engine_version=f"3.33-{HOST}", started=f"2026-11-22T02:59:5{repetition}+00:00",
        duration=1.5, job=f"{JOB}_{repetition}", error=SENTENCE if repetition == 1 else "",
        failure=dict(TOLD), argv=((PATH, "--host", HOST, f"--user={USER}"), (SENTENCE,)),
        coordinates={"target": HOST, "workload": "pattern", "chunk": 4096, "place": FQDN,
                     f"f-{HOST}": PATH},
        environment={"machine": dict(TOLD) | {"cpus": 2, "kernel": "6.1.0"}, **TOLD},
        companions=(f"x-{HOST}",), ranks=(dict(TOLD), {"host": FQDN}),
        phases=(phase(repetition), phase(repetition, f"p-{HOST}")),
        monitor=Monitor((HOST, FQDN), np.arange(3.0), {f"m-{HOST}": np.ones((2, 3))},
                        {f"m-{HOST}": f"u-{HOST}"}),
        evidence={"cpu": {"write": {HOST: {"busy": 0.5}, FQDN: {"busy": 0.25}}}, **TOLD},
        findings=(Finding(f"a-{HOST}", 1, severity, SENTENCE, SENTENCE, f"p-{HOST}", TOLD),),
        texts={f"out.{HOST}": f"{SENTENCE}\n" * 200, "plain": SENTENCE},
    )  # fmt: skip


def plan(text=CAMPAIGN):
    return {
        "campaign": "geheim-study", "description": SENTENCE, "seed": 7, "fingerprint": "f",
        "source": {"file": f"{PATH}/c.yaml", "text": text},
        "request": {"sets": [f"targets.{HOST}.options.path={PATH}"], "only": [f"target={HOST}"],
                    "shard": [1, 4]},
        "settings": [
            {"key": "repetitions", "value": 3, "origin": f"/home/{SECRETS['home']}/site.yaml:3"},
            {"key": "cache", "value": "cold", "origin": f"{PATH}/c.yaml:9"},
            {"key": "launcher.hosts", "value": [HOST], "origin": "/etc/fsmatrix/site.yaml:1"},
        ],
        "site": {"slurm": {"account": SECRETS["account"]}},
    }  # fmt: skip


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "out")
    made.append(secretive(repetition) for repetition in range(3))
    (made.directory / "campaign.json").write_text(json.dumps(plan()))
    for name in ("report.html", "engines.json"):
        (made.directory / name).write_text(SENTENCE)
    for name in ("locks", "journal", "state"):
        (made.directory / name).mkdir()
        (made.directory / name / "x").write_text(SENTENCE)
    return made


def contents(path):
    """Every file of the archive by name: its bytes, and all that HDF5 unpacks from it."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            data = archive.extractfile(member).read() if member.isfile() else b""
            found[member.name] = data + (unhidden(data) if member.name.endswith(".h5") else b"")
    return found


def unhidden(data):
    """Names, attributes, strings and the bytes of texts in an HDF5 file."""
    parts = []

    def look(name, item):
        parts.append(name.encode())
        for key, value in item.attrs.items():
            parts.extend([key.encode(), str(value).encode()])
        if isinstance(item, h5py.Dataset):
            values = item[...]
            if values.dtype.kind == "O":
                parts.extend(v if isinstance(v, bytes) else str(v).encode() for v in values.flat)
            else:
                parts.append(values.tobytes())

    with h5py.File(io.BytesIO(data)) as file:
        look("/", file)
        file.visititems(look)
    return b"\n".join(parts)


def test_every_field_of_the_record_holds_a_secret():
    """What the next test hides is everything that there is to hide."""
    one = secretive(1)
    no_names = {"case_id", "work_id", "repetition", "attempt", "block", "status", "started",
                "duration"}  # fmt: skip
    for field in fields(RunRecord):
        value = repr(getattr(one, field.name))
        assert (HOST in value or JOB in value or PATH in value) != (field.name in no_names), (
            field.name
        )


def test_no_secret_is_in_any_byte_of_the_archive(store, tmp_path):
    target = tmp_path / "a.tar.gz"
    made = bundle(store.directory, target, Options(anonymise=True))
    assert made.runs == {"total": 3, "ok": 2, "failed": 1, "timeout": 0, "invalid": 1}
    found = contents(target)
    assert len([name for name in found if "/runs/" in name and name.endswith(".h5")]) == 3
    shown = "".join(data.decode("latin1") for data in found.values())
    assert shown.count("host-1") > 100  # what is searched is really seen
    words = [*SECRETS.values(), "hpc.geheim", "venus", os.uname().nodename * 2]
    for name, data in found.items():
        lower = data.lower() + name.encode().lower()
        for word in words:
            assert word.lower().encode() not in lower, (word, name)


def test_the_search_finds_what_is_there(store, tmp_path):
    bundle(store.directory, tmp_path / "plain.tar.gz")
    found = contents(tmp_path / "plain.tar.gz")
    files = [name for name in found if name.endswith(".h5")]
    assert len(files) == len(store.ids()) + 1  # and the campaign
    for name in files:
        for word in SECRETS.values():
            assert word.encode() in found[name], (word, name)


@pytest.mark.parametrize("runs", [True, False])
def test_numbers_and_ids_are_the_same(store, tmp_path, runs):
    bundle(store.directory, tmp_path / "a.tar.gz", Options(anonymise=True, runs=runs))
    inside = unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    with h5py.File(store.merge()) as before, h5py.File(inside / "campaign.h5") as after:
        compared = 0
        for name, variable in before.items():
            if isinstance(variable, h5py.Dataset) and variable.dtype.kind in "if":
                np.testing.assert_array_equal(variable[...], after[name][...], err_msg=name)
                compared += variable.size > 0
        assert compared > 40
        for name in ("run_id", "case_id", "work_id", "status", "worst_finding"):
            assert before[name][...].tolist() == after[name][...].tolist()
        assert len(set(after["attachment"][...])) == 3
    if not runs:
        assert list((inside / "runs").iterdir()) == []
        return
    for run_id in store.ids():
        one, other = store.read(run_id), Store.open(inside).read(run_id)
        assert one.run_id == other.run_id
        for first, second in zip(one.phases, other.phases, strict=True):
            assert first.bytes.tolist() == second.bytes.tolist()
            assert first.end.tolist() == second.end.tolist()


def test_the_same_name_has_one_pseudonym_in_all_files(store, tmp_path):
    bundle(store.directory, tmp_path / "a.tar.gz", Options(anonymise=True))
    inside = unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    records = [Store.open(inside).read(run_id) for run_id in store.ids()]
    (host,) = {record.coordinates["target"] for record in records}
    assert re.fullmatch(r"host-\d+", host)
    assert {record.ranks[0]["host"] for record in records} == {host}
    assert {record.monitor.hosts[0] for record in records} == {host}
    assert {json.loads(record.case)["target"] for record in records} == {host}
    assert len({record.job for record in records}) == 3
    campaign = (inside / "campaign.yaml").read_text()
    assert f"  {host}: {{backend: directory" in campaign
    stored = json.loads((inside / "campaign.json").read_text())
    assert stored["request"]["only"] == [f"target={host}"]
    (path,) = {record.coordinates[f"f-{host}"] for record in records}
    assert f"path: {path}}}" in campaign
    assert f"--set targets.{host}.options.path={path}" in (inside / "README.md").read_text()


def test_the_folder_is_a_store_with_checksums(store, tmp_path):
    store.merge()
    made = bundle(store.directory, tmp_path / "plain.tar.gz")
    inside = unpack(made.path, tmp_path / "there")
    assert {path.name for path in inside.iterdir()} == {
        "README.md", "SHA256SUMS", "campaign.h5", "campaign.json", "campaign.yaml", "report.html",
        "runs", "store.json", "versions.json",
    }  # fmt: skip
    lines = (inside / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == made.files - 1
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((inside / name).read_bytes()).hexdigest() == digest
    assert Store.open(inside).ids() == store.ids()
    for path in Store.open(inside).files():
        assert path.read_bytes() == store.path(path.stem).read_bytes()
    assert (inside / "campaign.yaml").read_text() == CAMPAIGN
    readme = (inside / "README.md").read_text()
    assert "3 runs: 2 ok, 1 failed, 0 past their deadline;" in readme
    assert "--seed 7 --set repetitions=3 --set 'launcher.hosts" in readme
    versions = json.loads((inside / "versions.json").read_text())
    assert versions["engines"] == {f"e-{HOST}": [f"3.33-{HOST}"]}
    assert versions["measured_with"]["kernel"] == ["6.1.0"]


class LaterClock:
    """Every look is an hour later."""

    hours = 0

    @classmethod
    def now(cls, zone):
        cls.hours += 1
        return datetime(2030, 1, 1, cls.hours, tzinfo=zone)


def test_the_same_results_give_the_same_bytes_of_nobody(store, tmp_path, monkeypatch):
    monkeypatch.setattr("fsmatrix.results.files.campaign.campaignfile.datetime", LaterClock)
    first = bundle(store.directory, tmp_path / "one.tar.gz").path.read_bytes()
    (tmp_path / "again").mkdir()
    second = bundle(store.directory, tmp_path / "again" / "one.tar.gz").path.read_bytes()
    assert LaterClock.hours == 2
    assert first == second
    newest = int(max(path.stat().st_mtime for path in store.files()))
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        members = archive.getmembers()
    assert [m.name for m in members[2:]] == sorted(m.name for m in members[2:])
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", newest)}


@pytest.mark.parametrize("anonymise", [True, False])
def test_damaged_files_and_links_are_named_and_left_out(store, tmp_path, anonymise):
    first, second, third = store.files()
    second.write_bytes(second.read_bytes()[:3000])
    third.rename(tmp_path / "elsewhere.h5")
    third.symlink_to(tmp_path / "elsewhere.h5")
    (store.runs / "stray.h5").write_bytes(first.read_bytes())
    made = bundle(store.directory, tmp_path / "a.tar.gz", Options(anonymise))
    assert made.runs["total"] == 1
    reasons = {name.rpartition("/")[2]: reason for name, reason in made.left_out}
    assert reasons.keys() == {second.name, third.name, "stray.h5"}
    assert "truncated or damaged" in reasons[second.name]
    assert reasons[third.name] == "is a symbolic link"
    inside = unpack(made.path, tmp_path / "there")
    assert [path.name for path in Store.open(inside).files()] == [first.name]
    assert second.name in (inside / "README.md").read_text()
    with h5py.File(inside / "campaign.h5") as file:
        assert len(json.loads(file.attrs["left_out"])) == 3


def test_links_in_the_results_directory_are_not_followed(store, tmp_path):
    for name in ("report.html", "campaign.json"):
        (store.directory / name).rename(tmp_path / name)
        (store.directory / name).symlink_to(tmp_path / name)
    made = bundle(store.directory, tmp_path / "a.tar.gz")
    names = {path.name for path in unpack(made.path, tmp_path / "there").iterdir()}
    assert not names & {"report.html", "campaign.json", "campaign.yaml"}
    assert ("campaign.json", "is a symbolic link") in made.left_out


def test_what_is_there_is_never_overwritten(store, tmp_path):
    target = tmp_path / "a.tar.gz"
    target.write_text("mine")
    with pytest.raises(ResultError, match="is there already"):
        bundle(store.directory, target)
    assert target.read_text() == "mine"
    target.unlink()
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ResultError, match="is there already"):
        bundle(store.directory, target)


@pytest.mark.parametrize("name", ["a.zip", ".tar.gz", "-x.tar.gz", "a b.tar.gz", "none/a.tar.gz"])
def test_names_that_cannot_be(store, tmp_path, name):
    with pytest.raises(ResultError, match=r"NAME\.tar\.gz|no directory"):
        bundle(store.directory, tmp_path / name)


def test_nothing_is_left_when_it_fails(store, tmp_path, monkeypatch):
    before = sorted(tmp_path.iterdir())

    def break_off(what, done, total):
        raise OSError(28, "No space left on device", "archive")

    with pytest.raises(OSError, match="No space"):
        bundle(store.directory, tmp_path / "a.tar.gz", Options(), break_off)
    for path in store.files():
        path.write_bytes(b"")
    with pytest.raises(ResultError, match="holds no run"):
        bundle(store.directory, tmp_path / "a.tar.gz")
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_changes_meanwhile_is_refused(store, tmp_path):
    def change(what, done, total):
        if what == "checksums" and done == total:
            path = store.files()[0]
            path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(ResultError, match="changed while"):
        bundle(store.directory, tmp_path / "a.tar.gz", Options(), change)
    assert not (tmp_path / "a.tar.gz").exists()


def test_a_damaged_campaign_is_refused(store, tmp_path):
    (store.directory / "campaign.json").write_text('{"seed": 1')
    with pytest.raises(ResultError, match=r"campaign\.json: damaged"):
        bundle(store.directory, tmp_path / "a.tar.gz")


def test_without_a_campaign_it_says_so(store, tmp_path):
    (store.directory / "campaign.json").unlink()
    made = bundle(store.directory, tmp_path / "a.tar.gz", Options(anonymise=True))
    inside = unpack(made.path, tmp_path / "there")
    assert not (inside / "campaign.yaml").exists()
    assert "nothing to run again" in (inside / "README.md").read_text()


def test_runs_that_only_differ_in_names_stay_apart(store, tmp_path):
    one = secretive(5)
    store.write(replace(one, attachment="b005-mars18-50", ranks=({"host": "mars18"},)))
    made = bundle(store.directory, tmp_path / "a.tar.gz", Options(anonymise=True))
    inside = Store.open(unpack(made.path, tmp_path / "there"))
    told = read_run(inside.path(one.run_id))
    assert told.attachment != inside.read(store.ids()[0]).attachment
    assert told.ranks[0]["host"] != told.coordinates["target"]

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

from fsmatrix.results.files.runfile import read_run
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord
from fsmatrix.results.sharing.bundle import Options, bundle
from tests.archives import unpack
from tests.ranks import rank
from tests.results.sharing.bundled import CAMPAIGN, HOST, JOB, PATH, SECRETS, secretive


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
    no_names = {
        "case_id",
        "work_id",
        "repetition",
        "attempt",
        "block",
        "status",
        "started",
        "duration",
    }
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
    assert {record.ranks[0].host for record in records} == {host}
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
        "README.md",
        "SHA256SUMS",
        "campaign.h5",
        "campaign.json",
        "campaign.yaml",
        "report.html",
        "runs",
        "store.json",
        "versions.json",
    }
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
    monkeypatch.setattr("fsmatrix.results.files.campaignfile.datetime", LaterClock)
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


def test_runs_that_only_differ_in_names_stay_apart(store, tmp_path):
    one = secretive(5)
    store.write(replace(one, attachment="b005-mars18-50", ranks=(rank("mars18"),)))
    made = bundle(store.directory, tmp_path / "a.tar.gz", Options(anonymise=True))
    inside = Store.open(unpack(made.path, tmp_path / "there"))
    told = read_run(inside.path(one.run_id))
    assert told.attachment != inside.read(store.ids()[0]).attachment
    assert told.ranks[0].host != told.coordinates["target"]

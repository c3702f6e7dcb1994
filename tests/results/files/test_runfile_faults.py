"""Newer, foreign, truncated and damaged files are named errors, never a traceback."""

import random
from dataclasses import replace

import h5py
import pytest

from fsmatrix.results.files import hdf
from fsmatrix.results.files.runfile import read_run, read_status, write_run
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import DamagedFileError, ForeignFileError, NewerSchemaError
from fsmatrix.results.record import Finding, RunRecord


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.h5"
    finding = Finding("a", 1, "info", "m")
    record = RunRecord(
        case='{"target":"xfs","workload":"pattern"}',
        case_id="0" * 16,
        work_id="1" * 16,
        repetition=0,
        attempt=1,
        block=0,
        attachment="a",
        session="s",
        status="ok",
        engine="player-c",
        engine_version="1",
        started="2026-01-01T00:00:00Z",
        environment={"kernel": "6.1"},
        findings=(finding,),
    )
    write_run(path, record)
    return path


def test_a_newer_schema_is_refused_with_both_numbers(path):
    with h5py.File(path, "r+") as file:
        file.attrs["schema_version"] = 7
    for read in (read_run, read_status):
        with pytest.raises(NewerSchemaError) as caught:
            read(path)
        assert "made by a newer fsmatrix (schema 7, this one reads up to 1)" in str(caught.value)
        assert str(path) in str(caught.value)
        assert caught.value.path == path


def test_an_older_schema_is_upgraded_on_reading(path, monkeypatch):
    with h5py.File(path, "r+") as file:
        file.attrs["schema_version"] = 0
        file.attrs["program"] = file.attrs["engine"]
        del file.attrs["engine"]
    before = path.read_bytes()

    def upgrade(file):
        file.attrs["engine"] = file.attrs["program"]

    with pytest.raises(ResultError, match="schema 0 is not known"):
        read_run(path)
    monkeypatch.setitem(hdf.UPGRADES, 0, upgrade)
    assert read_run(path).engine == "player-c"
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"#!/bin/sh\n", b"CDF\x01classic"])
def test_a_file_that_is_not_hdf5(path, content):
    path.write_bytes(content)
    with pytest.raises(ForeignFileError, match="not an HDF5 file"):
        read_run(path)


def test_hdf5_of_another_program(path):
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with pytest.raises(ForeignFileError, match="an HDF5 file of another program"):
        read_run(path)


def test_another_file_of_ours(path):
    with h5py.File(path, "r+") as file:
        file.attrs["format"] = "fsmatrix campaign"
    with pytest.raises(ForeignFileError, match="'fsmatrix campaign' file, not a 'fsmatrix run'"):
        read_run(path)


def test_truncated_at_every_length(path):
    whole = path.read_bytes()
    body = len(whole) - hdf.SEAL_SIZE
    for length in [*range(12), *range(12, body, max(1, body // 60)), body - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFileError, match="truncated"):
            read_run(path)


def test_without_its_checksum_a_whole_file_is_read(path):
    """Another HDF5 program that changes the file removes it."""
    whole = path.read_bytes()
    record = read_run(path)
    for cut in (1, hdf.SEAL_SIZE - 1, hdf.SEAL_SIZE):
        path.write_bytes(whole[:-cut])
        assert read_run(path) == record


def test_zeros_instead_of_data(path):
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DamagedFileError, match="signature is not whole"):
        read_run(path)


def test_a_missing_attribute_is_damage(path):
    with h5py.File(path, "r+") as file:
        del file.attrs["argv"]
    with pytest.raises(DamagedFileError, match="argv"):
        read_run(path)


def test_flipped_bytes_are_noticed(path):
    """The HDF5 library itself may crash on such files, or give wrong numbers."""
    whole = path.read_bytes()
    body = len(whole) - hdf.SEAL_SIZE
    dice = random.Random(1)
    for _ in range(200):
        broken = bytearray(whole)
        broken[dice.randrange(len(hdf.SIGNATURE), body)] ^= 1 << dice.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(DamagedFileError, match="do not fit its checksum"):
            read_run(path)


def test_a_directory_is_no_run_file(tmp_path):
    with pytest.raises(ResultError, match="cannot be read: Is a directory"):
        read_run(tmp_path)


def test_two_files_open_at_once_are_two(path, tmp_path):
    """The conductor reads one run's status while another is being written by the RecordWriter."""
    other = tmp_path / "other.h5"
    write_run(other, replace(read_run(path), attempt=2, status="failed", error="no space"))
    with hdf.reading(other, "fsmatrix run") as held:
        assert read_status(path) == "ok"
        assert hdf.image(lambda file: file.attrs.update(status="new"))
        assert held.attrs["status"] == "failed"

    def look(file):
        file.attrs["status"] = "being written"
        assert (read_status(path), read_status(other)) == ("ok", "failed")

    hdf.image(look)

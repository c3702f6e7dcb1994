"""Campaign files that somebody sends: a named error, never a traceback, little memory."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.results.files import campaignread
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from tests.results import hostile
from tests.results.hostile import SECRET, record

MEMORY = 2 << 30  # bytes of address space: xarray and its friends take most of it


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    store = Store.create(tmp_path / "out")
    store.append([record(), record("ext4")])
    return store.merge(tmp_path / "c.h5")


def refused(path: Path) -> str:
    """The reason that both readers give."""
    with pytest.raises(ResultError) as caught:
        open_campaign(path)
    with pytest.raises(ResultError), campaignread.reading(path) as file:
        list(campaignread.entries(file, path))
    assert str(path) in str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize("name", hostile.HDF5)
def test_what_hdf5_could_be_led_to_is_refused(campaign: Path, name: str) -> None:
    how, reason = hostile.HDF5[name]
    hostile.craft(campaign, how)
    found = refused(campaign)
    assert re.search(reason, found), found
    assert SECRET not in found


def test_neither_much_memory_nor_much_time(campaign: Path, tmp_path: Path) -> None:
    campaign.rename(tmp_path / "whole.h5")
    hostile.read_with_little(tmp_path, "fsmatrix.analysis.data.load:open_campaign", MEMORY)


def value(name: str, new: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file[name][0] = new

    return change


def attribute(name: str, new: object) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.__setitem__(name, new)


def instead(name: str, new: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = new

    return change


MISFITS = {
    "environment": (value("environment_index", 99), "environment_index leads to rows"),
    "case": (value("case_index", -1), "case_index leads to rows"),
    "kind": (value("latency_kind", 7), "latency_kind leads to rows"),
    "bin": (value("latency_bin", 1 << 20), "latency_bin leads to rows"),
    "run": (value("worker_run", 5), "worker_run leads to rows"),
    "first": (value("worker_first", 9), "worker_first leads to rows"),
    "size": (value("worker_size", 3), "lead beyond its end"),
    "status": (value("status", b"xx"), "status 'xx'"),
    "no factors": (attribute("factors", "[]"), "factors are no columns"),
    "factors": (attribute("factors", '{"target": "nowhere"}'), "factors are no columns"),
    "campaign": (attribute("campaign", 3), "factors are no columns"),
    "rows": (instead("bandwidth", np.ones(7)), "'bandwidth' has not as many rows"),
    "type": (instead("bandwidth", [b"a", b"b"]), "'bandwidth' is of another type"),
    "text": (instead("error", [1, 2]), "'error' is of another type"),
    "dimensions": (instead("error", np.ones((2, 2))), "'error' has not one dimension"),
    "group": (lambda file: file.create_group("g"), "'g' is no variable"),
    "iteration run": (value("iteration_run", 5), "iteration_run leads to rows"),
    "iteration first": (value("iteration_first", 9), "iteration_first leads to rows"),
    "iteration size": (value("iteration_size", 5), "iteration_size leads to rows"),
    "iterations beyond": (value("iteration_size", 4), "lead beyond its end"),
    "a negative time": (value("iteration_open", -1.0), "iteration_open holds what cannot"),
    "an infinite rate": (value("iteration_bandwidth", np.inf), "iteration_bandwidth holds what"),
    "negative bytes": (value("iteration_bytes", -1), "iteration_bytes holds what cannot"),
    "words": (instead("iteration_open", [b"a"] * 4), "iteration_open is of another type"),
    "half a byte": (instead("iteration_bytes", [0.5] * 4), "iteration_bytes is of another type"),
    "lengths": (instead("iteration_open", np.ones(3)), "variables of iteration are not of one"),
    "no column": (lambda file: file.__delitem__("iteration_open"), "without all of their columns"),
    "no summary": (lambda file: file.__delitem__("own_iops_max"), "without all of their columns"),
    "no size": (lambda file: file.__delitem__("iteration_size"), "do not fit|without all"),
    "a latency": (value("interval_latency_max", -1.0), "interval_latency_max holds what cannot"),
    "a summary": (value("own_bandwidth_max", -1.0), "own_bandwidth_max holds what cannot"),
    "no id": (lambda file: file.__delitem__("run_id"), "no run_id"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit(campaign: Path, name: str) -> None:
    how, reason = MISFITS[name]
    with h5py.File(campaign, "r+") as file:
        how(file)
    assert re.search(reason, refused(campaign))


@pytest.mark.parametrize("kind", ["fifo", "loop", "device", "folder"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "c.h5"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        os.mkfifo(path / "campaign.h5")
    else:
        path.symlink_to({"loop": path, "device": "/dev/zero"}[kind])
    for read in (open_campaign, lambda one: campaignread.reading(one).__enter__()):
        with pytest.raises(ResultError):
            read(path)


def test_a_link_that_the_user_names_is_followed(campaign: Path, tmp_path: Path) -> None:
    (tmp_path / "link.h5").symlink_to(campaign)
    assert open_campaign(tmp_path / "link.h5").sizes["run"] == 2
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/campaign.h5").symlink_to(campaign)
    with pytest.raises(ResultError, match="is a symbolic link"):
        open_campaign(tmp_path / "folder")

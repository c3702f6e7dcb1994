"""Bundles of damaged, linked or foreign results: named, refused, and nothing is lost."""

import json

import h5py
import pytest

from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from fsmatrix.results.sharing.bundle import Options, bundle
from tests.archives import unpack


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

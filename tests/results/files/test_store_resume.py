"""The store: one file per run, resume, refusals."""

import json
import multiprocessing

import pytest

from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import SCHEMA_VERSION, NewerSchemaError
from fsmatrix.results.files.store import Store, StoreError
from fsmatrix.results.record import Case, RunRecord
from tests.waiting import PATIENCE

CASE = Case("xfs", "pattern", {"chunk_size": 4096})


def record(case=CASE, repetition=0, attempt=1, status="ok"):
    return RunRecord(
        case=case.canonical,
        case_id=case.case_id,
        work_id=case.work_id,
        repetition=repetition,
        attempt=attempt,
        block=repetition,
        attachment="a",
        session="s",
        status=status,
        engine="player-c",
        engine_version="1",
        started="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "out")


def test_write_read_and_list(store):
    one, other = record(), record(Case("ext4", "pattern"))
    path = store.write(one)
    assert path == store.runs / one.run_id[:2] / f"{one.run_id}.h5"
    assert store.append([other, record(repetition=1)]) == 2
    assert set(store.ids()) == {one.run_id, other.run_id, record(repetition=1).run_id}
    assert one.run_id in store
    assert record(repetition=7).run_id not in store
    assert "../../etc/passwd" not in store
    assert 3 not in store
    assert store.read(one.run_id) == one
    assert store.status(one.run_id) == "ok"
    again = Store.open(store.directory)
    assert again.ids() == store.ids()


def test_ids_are_ordered_by_number(store):
    store.append(record(attempt=attempt) for attempt in (10, 2, 1))
    assert [run_id.rpartition("-a")[2] for run_id in store.ids()] == ["1", "2", "10"]


def test_a_run_is_never_overwritten(store):
    store.write(record())
    with pytest.raises(StoreError, match="stored already"):
        store.write(record(status="failed"))
    assert store.status(record().run_id) == "ok"


def test_what_is_not_there(store):
    for read in (store.read, store.status):
        with pytest.raises(KeyError):
            read(record().run_id)


@pytest.mark.parametrize("case_id", ["../x", "..", "a/b", "", "a b", "x\0"])
def test_ids_that_would_leave_the_store(store, case_id):
    with pytest.raises(StoreError, match="is not the id of a run"):
        store.path(f"{case_id}-r0000-a1")


def test_resume(store):
    assert not store.done(CASE.case_id, 0)
    assert store.next_attempt(CASE.case_id, 0) == 1
    store.write(record(status="failed"))
    assert store.done(CASE.case_id, 0)
    assert not store.done(CASE.case_id, 0, retry_failed=True)
    assert store.next_attempt(CASE.case_id, 0) == 2
    assert not store.done(CASE.case_id, 1)
    store.write(record(attempt=2, status="timeout"))
    assert not store.done(CASE.case_id, 0, retry_failed=True)
    store.write(record(attempt=3))
    assert store.done(CASE.case_id, 0, retry_failed=True)
    assert store.attempts(CASE.case_id, 0) == [1, 2, 3]
    assert store.next_attempt(CASE.case_id, 0) == 4


def test_a_damaged_attempt_does_not_count_but_keeps_its_number(store):
    path = store.write(record())
    path.write_bytes(path.read_bytes()[:500])
    assert not store.done(CASE.case_id, 0)
    assert store.next_attempt(CASE.case_id, 0) == 2
    assert [found for found, _ in store.damaged()] == [path]
    assert "truncated" in store.damaged()[0][1]
    with pytest.raises(ResultError, match="truncated"):
        store.status(record().run_id)


def test_what_a_crash_left_is_no_run(store):
    path = store.write(record())
    (path.parent / f".{path.stem[:-1]}2.h5.tmp").write_bytes(b"half")
    assert store.ids() == [record().run_id]
    assert store.attempts(CASE.case_id, 0) == [1]
    assert store.damaged() == []


def test_the_marker(store):
    marker = json.loads((store.directory / "store.json").read_text())
    assert marker["format"] == "fsmatrix store"
    assert marker["schema"] == SCHEMA_VERSION


def test_create_refuses_what_is_not_its_own(tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match=r"is not empty \(holds 'thesis.tex'\)"):
        Store.create(taken)
    with pytest.raises(StoreError, match="is a file"):
        Store.create(taken / "thesis.tex")
    assert [entry.name for entry in taken.iterdir()] == ["thesis.tex"]


def test_create_takes_empty_and_new_directories(tmp_path):
    (tmp_path / "empty" / "lost+found").mkdir(parents=True)
    for path in (tmp_path / "empty", tmp_path / "deep" / "new"):
        made = Store.create(path)
        made.write(record())
        assert Store.open(path).read(record().run_id) == record()
    assert (tmp_path / "empty" / "lost+found").is_dir()


def test_create_and_an_existing_store(store):
    store.write(record())
    with pytest.raises(StoreError, match="is a store already"):
        Store.create(store.directory)
    assert Store.create(store.directory, exist_ok=True).ids() == store.ids()


def create(path, barrier, told):
    barrier.wait()
    try:
        Store.create(path)
    except StoreError as error:
        told.put(str(error))
    else:
        told.put("made")


def test_of_several_that_create_one_at_once_one_does(tmp_path):
    apart = multiprocessing.get_context("fork")
    barrier, told = apart.Barrier(4), apart.Queue()
    arguments = (tmp_path / "out", barrier, told)
    processes = [apart.Process(target=create, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    said = [told.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join()
    assert said.count("made") == 1
    assert sum("is a store already" in text for text in said) == 3


def test_a_shard_opens_what_another_made_after_it_looked(tmp_path, monkeypatch):
    out, make_folder = tmp_path / "out", safefile.make_folder

    def meanwhile(path):
        monkeypatch.setattr(safefile, "make_folder", make_folder)
        Store.create(path, exist_ok=True)
        (path / ".campaign.json.node1.17.tmp").write_text("{")

    monkeypatch.setattr(safefile, "make_folder", meanwhile)
    assert Store.create(out, exist_ok=True).ids() == []
    monkeypatch.setattr(safefile, "make_folder", make_folder)
    full = tmp_path / "full"
    full.mkdir()
    (full / ".campaign.json.node1.17.tmp").write_text("{")
    with pytest.raises(StoreError, match="is not empty"):  # nobody's marker beside it
        Store.create(full, exist_ok=True)


def test_create_inside_another_store(store):
    with pytest.raises(StoreError, match="is inside another store"):
        Store.create(store.directory / "runs" / "deep" / "nested")


def test_create_beside_a_store_named_from_inside(store, monkeypatch):
    """`-o ../again`, said in a store's own directory, is not inside it."""
    monkeypatch.chdir(store.directory)
    assert Store.create("../again").directory.resolve() == store.directory.parent / "again"


def test_open_refuses_other_directories(tmp_path):
    with pytest.raises(StoreError, match="is not a store"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text('{"format": "shop"}')
    with pytest.raises(StoreError, match="of another program"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text('{"format": "fsmatrix store", "schema": 7}')
    with pytest.raises(NewerSchemaError, match=r"schema 7"):
        Store.open(tmp_path)


def test_links_are_not_followed(store, tmp_path):
    elsewhere = Store.create(tmp_path / "elsewhere")
    elsewhere.write(record())
    (store.runs / "link").symlink_to(elsewhere.runs, target_is_directory=True)
    assert store.ids() == []

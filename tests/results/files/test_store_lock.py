"""The lock of a shard: live holders are refused, dead ones are not in the way."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from fsmatrix.results.files.lock import Holder, LockedError, ShardLock
from fsmatrix.results.files.store import Store
from fsmatrix.results.process import NO_JOB, CurrentJob, start_of
from tests.waiting import PATIENCE

HOLD = (
    "import sys; from fsmatrix.results.files.lock import ShardLock\n"
    "from fsmatrix.results.process import CurrentJob\n"
    "job = CurrentJob('slurm', 'job9')\n"
    "with ShardLock(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), job):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


class Other:
    """Another process that holds a lock until it is told to go, or is killed."""

    def __init__(self, directory, k, n):
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", HOLD, str(directory), str(k), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "held\n"

    def __enter__(self):
        return self.process

    def __exit__(self, *args):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def out(tmp_path):
    return Store.create(tmp_path / "out").directory


def locks(out):
    return sorted(entry.name for entry in (out / "locks").iterdir())


def assert_taken(lock):
    """This process holds the lock, and another run sees that it does."""
    content = json.loads(lock.path.read_text())
    assert (content["pid"], content["started"]) == (os.getpid(), start_of(os.getpid()))
    assert lock.lost() == ""
    with pytest.raises(LockedError, match=rf"pid {os.getpid()} on "):
        ShardLock(lock.directory).acquire()


def test_taken_and_given_back(out):
    with ShardLock(out, 1, 2, CurrentJob("slurm", "77")) as lock:
        assert locks(out) == ["shard-1-of-2.json"]
        content = json.loads(lock.path.read_text())
        names = ("pid", "scheduler", "job", "k")
        assert [content[name] for name in names] == [os.getpid(), "slurm", "77", 1]
    assert locks(out) == []
    with ShardLock(out) as lock:
        assert_taken(lock)


def test_given_back_after_an_error(out):
    with pytest.raises(RuntimeError), ShardLock(out):
        raise RuntimeError
    assert locks(out) == []


def test_the_same_shard_is_refused_and_other_shards_are_not(out):
    with Other(out, 1, 2) as process:
        with pytest.raises(LockedError) as caught:
            ShardLock(out, 1, 2).acquire()
        text = str(caught.value)
        assert f"another fsmatrix run (pid {process.pid} on {os.uname().nodename} since" in text
        assert f"is writing to {out}" in text
        assert "job9" in text
        with ShardLock(out, 2, 2):
            assert len(locks(out)) == 2


def test_another_number_of_shards_is_refused(out):
    with Other(out, 1, 2):
        with pytest.raises(LockedError, match="divides the campaign into 2, not 3"):
            ShardLock(out, 2, 3).acquire()
        with pytest.raises(LockedError, match="divides the campaign into 2, not 1"):
            ShardLock(out).acquire()
        assert locks(out) == ["shard-1-of-2.json"]


@pytest.mark.parametrize(("k", "n"), [(1, 2), (1, 1)])
def test_a_killed_holder_is_not_in_the_way(out, k, n):
    with Other(out, 1, 2) as process:
        process.kill()
        process.wait()
        assert locks(out) == ["shard-1-of-2.json"]
        with ShardLock(out, k, n):
            assert locks(out) == [f"shard-{k}-of-{n}.json"]


KILLED_WHILE_IT_REMOVES = (
    "import os, pathlib, signal, sys; from fsmatrix.results.files.lock import ShardLock\n"
    "real = pathlib.Path.unlink\n"
    "def unlink(path, *args, **more):\n"
    "    if path.name == 'shard-1-of-1.json':\n"
    "        os.kill(os.getpid(), signal.SIGKILL)\n"
    "    real(path, *args, **more)\n"
    "pathlib.Path.unlink = unlink\n"
    "ShardLock(sys.argv[1]).acquire()\n"
)


def test_killed_while_it_removes_a_dead_one_s_lock_and_its_successor_too(out):
    forge(out, started=1)
    for count in (1, 2):
        argv = [sys.executable, "-P", "-c", KILLED_WHILE_IT_REMOVES, str(out)]
        assert subprocess.run(argv, timeout=PATIENCE).returncode == -signal.SIGKILL
        assert len(locks(out)) == 1 + count, "each left its claim"
    with ShardLock(out) as lock:
        assert_taken(lock)
        assert locks(out) == ["shard-1-of-1.json"]


def test_who_is_slower_leaves_the_lock_of_who_was_faster_alone(out, monkeypatch):
    forge(out, started=1)
    with ExitStack() as stack:
        seen = []

        def gone(holder, *args):
            if not seen:
                seen.append(holder)
                stack.enter_context(Other(out, 1, 1))
                seen.append((out / "locks" / "shard-1-of-1.json").stat().st_ino)
                return True
            return dead(holder, *args)

        dead = Holder.gone
        monkeypatch.setattr(Holder, "gone", gone)
        with pytest.raises(LockedError, match="job9"):
            ShardLock(out).acquire()
        assert (out / "locks" / "shard-1-of-1.json").stat().st_ino == seen[1]
        assert locks(out) == ["shard-1-of-1.json"]


def forge(out, **changes):
    """A lock file of a holder that differs from this process."""
    (out / "locks").mkdir(exist_ok=True)
    content = {**vars(Holder.me(1, 1, NO_JOB)), **changes}
    (out / "locks" / "shard-1-of-1.json").write_text(json.dumps(content))


def test_a_pid_that_was_given_to_another_process(out):
    forge(out, started=1)
    with ShardLock(out) as lock:
        assert_taken(lock)
    assert locks(out) == []


def test_the_machine_was_booted_since(out):
    forge(out, boot_id="another")
    with ShardLock(out) as lock:
        assert_taken(lock)
    assert locks(out) == []


@pytest.mark.parametrize("change", [{"host": "far", "boot_id": "b"}, {"namespace": "pid:[1]"}])
def test_a_holder_that_cannot_be_seen_counts_as_live(out, change):
    forge(out, **change, pid=2**22)
    with pytest.raises(LockedError, match=r"if it does not, remove .*shard-1-of-1\.json"):
        ShardLock(out).acquire()
    assert locks(out) == ["shard-1-of-1.json"]


def test_a_job_that_is_known_to_have_ended(out):
    forge(out, host="far", boot_id="b", scheduler="plain", job="77")
    for other in (("plain", "78"), ("slurm", "77")):
        with pytest.raises(LockedError, match="plain job 77"):
            ShardLock(out, job_ended=lambda *asked, dead=other: asked == dead).acquire()
    with ShardLock(out, job_ended=lambda *asked: asked == ("plain", "77")) as lock:
        assert_taken(lock)


def test_the_same_job_queued_again(out):
    forge(out, host="far", boot_id="b", scheduler="plain", job="77", restart=0)
    for job in (CurrentJob("plain", "77"), CurrentJob("slurm", "77", 1)):
        with pytest.raises(LockedError):
            ShardLock(out, job=job).acquire()
    with ShardLock(out, job=CurrentJob("plain", "77", 1)) as lock:
        assert_taken(lock)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": 1}'])
def test_a_damaged_lock_file_is_named(out, text):
    (out / "locks").mkdir()
    (out / "locks" / "shard-1-of-1.json").write_text(text)
    with pytest.raises(LockedError, match=r"lock file .*shard-1-of-1.json is damaged"):
        ShardLock(out).acquire()


def test_somebody_elses_lock_is_not_removed(out):
    lock = ShardLock(out)
    lock.acquire()
    forge(out, host="far", boot_id="b")
    lock.release()
    assert locks(out) == ["shard-1-of-1.json"]


@pytest.mark.parametrize(("k", "n"), [(0, 1), (2, 1), (-1, 3)])
def test_shards_that_do_not_exist(out, k, n):
    with pytest.raises(ValueError, match="k must lie between 1 and n"):
        ShardLock(out, k, n)


def _compete(out, start, results):
    start.wait()
    try:
        ShardLock(out).acquire()  # kept until the process ends: it is not released
        results.put(True)
    except LockedError:
        results.put(False)
    start.wait()


@pytest.mark.parametrize("attempt", range(5))
def test_only_one_of_many_gets_it(out, attempt):
    forge(out, started=1)  # and a stale one is in the way
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(9), context.Queue()
    processes = [context.Process(target=_compete, args=(out, start, results)) for _ in range(8)]
    for process in processes:
        process.start()
    start.wait(60)
    won = [results.get(timeout=PATIENCE) for _ in processes]
    start.wait(60)
    for process in processes:
        process.join(60)
    assert sum(won) == 1

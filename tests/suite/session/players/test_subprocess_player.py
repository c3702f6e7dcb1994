"""A player in a process of its own gives what the same player gives inside its rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing
import psutil
import pytest

from fsmatrix.backends.player.lanes import Latencies, PlayerOptions
from fsmatrix.backends.player.ops import OUTCOME, Chunk, Flag, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.suite.session import players, programs
from fsmatrix.suite.session.players import SubprocessPlayer
from tests.backends.playing import (
    SEED,
    chunk,
    data_stream,
    facts,
    metadata_stream,
    op,
)
from tests.waiting import PATIENCE

OPTIONS = PlayerOptions(slots=8, max_op_bytes=1 << 20, seed=SEED, stop_on_error=False)
Made = Callable[..., SubprocessPlayer]


pytestmark = pytest.mark.needs("c player")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """What makes a player of its own process."""
    players: list[SubprocessPlayer] = []

    def make(options: PlayerOptions = OPTIONS, **environment: str) -> SubprocessPlayer:
        root = tmp_path / "apart"
        root.mkdir(exist_ok=True)
        players.append(SubprocessPlayer("posix", str(root), options, environment))
        return players[-1]

    yield make
    for player in players:
        player.close()


def inside(folder: Path, *chunks: Chunk) -> Any:
    """What the driver posix gives for the same, in this process."""
    folder.mkdir()
    player = open_player("posix", str(folder), OPTIONS)
    for each in chunks:
        player.play(each)
    result = player.result()
    player.close()
    return result


def content(folder: Path) -> dict[str, bytes]:
    """All files below."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def process_of(player: SubprocessPlayer) -> psutil.Process:
    """The process in which it works."""
    assert player._process is not None
    return psutil.Process(player._process.pid)


def test_data_are_those_of_posix(made: Made, tmp_path: Path) -> None:
    stream = chunk(*data_stream(np.random.default_rng(3), 150), names=(b"file", b"none"))
    player = made()
    assert player.play(stream) == len(stream.ops)
    player.drain()
    wanted = inside(tmp_path / "posix", stream)
    result = player.result()
    assert facts(result) == facts(wanted)
    assert result.first_error == replace(wanted.first_error, op=result.first_error.op)
    assert content(tmp_path / "apart") == content(tmp_path / "posix")


def test_metadata_are_those_of_posix(made: Made, tmp_path: Path) -> None:
    ops, names = metadata_stream()
    player = made()
    player.play(chunk(*ops, names=names))
    assert facts(player.result()) == facts(inside(tmp_path / "posix", chunk(*ops, names=names)))
    assert not (tmp_path / "x").exists()


def test_a_result_is_whole(made: Made) -> None:
    """With intended times there are two sets of latencies."""
    player = made(replace(OPTIONS, count_metadata=True))
    player.begin(time.monotonic_ns())
    player.play(chunk(op(Kind.CREATE, time=1000), op(Kind.WRITE, 0, 0, 5000, time=2_000_000),
                      names=(b"f",)))  # fmt: skip
    result = player.result()
    assert (result.bytes, result.operations, result.errors) == (5000, 2, 0)
    assert result.service is not None
    for latencies in (result, result.service):
        assert latencies.counts.sum() == 2
    for each in fields(Latencies):
        assert getattr(result, each.name).dtype == getattr(result.service, each.name).dtype
    assert result.interval_bytes.sum() == 5000


def test_outcomes_and_a_deadline(made: Made) -> None:
    player = made()
    ops = [op(Kind.CREATE), op(Kind.WRITE, 0, 0, 1000), op(Kind.READ, 0, 0, 2000)]
    outcomes = np.zeros(3, dtype=OUTCOME)
    assert player.play(replace(chunk(*ops, names=(b"f",)), outcomes=outcomes)) == 3
    assert outcomes["result"].tolist()[1:] == [1000, 1000]
    player.stop_at(1)  # long ago
    rest = chunk(*[op(Kind.READ, 0, 0, 500)] * 5)
    assert player.play(rest) == 0
    numpy.testing.assert_array_equal(player.left(rest).ops, rest.ops)
    player.stop_at(0)
    assert player.play(rest) == 5


def test_errors_are_those_of_a_player_inside(made: Made, tmp_path: Path) -> None:
    player = made()
    with pytest.raises(ValueError, match="chunk"):
        player.play(Chunk(np.zeros(3, dtype=np.int8)))
    with pytest.raises(ValueError, match=r"slot|file"):
        player.play(chunk(op(Kind.CREATE, 100), names=(b"f",)))
    assert player.play(chunk(op(Kind.CREATE), names=(b"f",))) == 1
    with pytest.raises(OSError, match="No such file"):
        SubprocessPlayer("posix", str(tmp_path / "none"), OPTIONS, {})


def test_its_environment_and_its_last_words(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        "atexit.register(lambda: print('seen', os.environ['GIVEN'], file=sys.stderr))\n"
    )
    player = made(GIVEN="by the backend", PYTHONPATH=str(tmp_path))
    player.play(chunk(op(Kind.CREATE), names=(b"f",)))
    assert player.printed == ""
    player.close()
    assert "seen by the backend\n" in player.printed
    player.close()  # once more
    assert "GIVEN" not in os.environ


EARLY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>

static int ready;
__attribute__((constructor)) static void begin(void) { ready = 1; }

/* As libioil, which needs what its constructor makes. */
#define OPENS(name) \\
    int name(const char *path, int flags, ...) { \\
        if (!ready) abort(); \\
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \\
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \\
    }
OPENS(open)
OPENS(open64)
"""


@pytest.fixture
def early(tmp_path: Path) -> str:
    """A library that aborts if a file is opened before its constructor ran."""
    source, library = tmp_path / "early.c", tmp_path / "libearly.so"
    source.write_text(EARLY)
    words = ["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return str(library)


@pytest.mark.needs("compiler")
def test_only_the_player_gets_a_library_that_is_not_ready_for_other_programs(
    made: Made, tmp_path: Path, early: str
) -> None:
    """What ends the player with its rank opens files before the library can take that over."""
    stream = chunk(*data_stream(np.random.default_rng(3), 50), names=(b"file", b"none"))
    player = made(LD_PRELOAD=early)
    assert any(early == each.path for each in process_of(player).memory_maps())
    player.play(stream)
    player.drain()
    assert facts(player.result()) == facts(inside(tmp_path / "posix", stream))
    words = programs.given({"LD_PRELOAD": early}, ["sh", "-c", "cat /proc/self/maps"])
    done = programs.run(words, str(tmp_path), PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert early in done.stdout


def test_its_process_is_killed(made: Made) -> None:
    player = made(FSMATRIX_ODD="1")
    process = process_of(player)
    process.send_signal(signal.SIGKILL)
    with pytest.raises(OSError, match=r"the player's own process ended by SIGKILL$"):
        player.play(chunk(op(Kind.CREATE), names=(b"f",)))
    player.close()
    assert not process.is_running()


def test_its_process_hangs_at_the_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    player = made()
    process = process_of(player)
    monkeypatch.setattr(players, "END_SECONDS", 0.5)
    for each in (*process.children(recursive=True), process):
        each.suspend()
    player.close()
    assert not process.is_running()


def test_it_ends_with_its_rank(tmp_path: Path) -> None:
    code = (
        "import time, sys\n"
        "from fsmatrix.backends.player.player import PlayerOptions\n"
        "from fsmatrix.suite.session.players import SubprocessPlayer\n"
        "options = PlayerOptions(slots=1, max_op_bytes=1)\n"
        "player = SubprocessPlayer('posix', sys.argv[1], options, {})\n"
        "print(player._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    argv = [sys.executable, "-P", "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout is not None
        process = psutil.Process(int(rank.stdout.readline()))
        family = [process, *process.children(recursive=True)]
        rank.kill()
        _, alive = psutil.wait_procs(family, PATIENCE)
    assert alive == []


# -- the C driver ------------------------------------------------------------------------------
def test_where_others_may_put_links_it_does_not_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match="does not belong to this user alone"):
        SubprocessPlayer("posix", str(tmp_path), OPTIONS, {})


def test_links_at_the_end_of_a_path_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir(mode=0o700)
    (tmp_path / "foreign").write_bytes(b"precious")
    (tmp_path / "root/link").symlink_to("../foreign")
    ops = [
        op(Kind.CREATE),
        op(Kind.OPEN),
        op(Kind.OPEN, flags=Flag.TRUNCATE),
        op(Kind.WRITE, 0, 0, 9),
    ]
    player = open_player("posix-libc", str(tmp_path / "root"), OPTIONS, "c")
    player.play(chunk(*ops, names=(b"link",)))
    result = player.result()
    player.close()
    assert result.errors == 4
    assert (tmp_path / "foreign").read_bytes() == b"precious"

"""Storage nodes read over ssh: one fixed command on each, which ends with its connection.

The command prints the node's links and disks once, and then, for each line that it is sent, what
/proc says.  It needs a POSIX shell; with Python 3.6 or newer it needs less CPU.  The nodes' clocks
date nothing: a look counts when it was asked for.  How far they are off is measured all the same.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fsmatrix.backends.system import tools
from fsmatrix.results.evidence.nodes import WatchedNode
from fsmatrix.suite.nodes.counters import Look, of_proc
from fsmatrix.suite.nodes.node_watch import ANSWER_WITHIN, Asked, Seen, Source, Unwatched, told

HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
ROUND_TRIPS = 5  # by which a clock's offset is measured
LAST_WITHIN = 1.0  # seconds that the answers to the last look are waited for
ENDED_WITHIN = 1.0
MOST_KEPT = 1 << 20  # bytes that a node may send before a line of ours ends: then it is not read
SAID = 200  # characters of what ssh printed, for a reason
OPTIONS = (
    "-T", "-oBatchMode=yes", f"-oConnectTimeout={ANSWER_WITHIN:g}", "-oLogLevel=ERROR",
    "-oServerAliveInterval=5", "-oServerAliveCountMax=2", "-oClearAllForwardings=yes",
    "-oForwardAgent=no", "-oForwardX11=no", "-oPermitLocalCommand=no",
)  # fmt: skip
HELLO = "@ hello 0 0"
# No single quote, no newline, no ! in it: every login shell passes it on to sh as it is.
_PYTHON = (
    "import sys,time;w=sys.stdout;o=lambda p:open(p).read();"
    'any(w.write(\\"@ %s %.6f %.6f\\n%s%s%s%s.\\n\\" % (n.strip(),time.time(),time.monotonic(),'
    '\\"\\".join(l for l in open(\\"/proc/stat\\") if l[:3]==\\"cpu\\"),o(\\"/proc/meminfo\\"),'
    'o(\\"/proc/diskstats\\"),o(\\"/proc/net/dev\\"))) and w.flush() '
    'for n in iter(sys.stdin.readline,\\"\\"))'
)
_SHELL = (
    f'export LC_ALL=C; echo "{HELLO}"; '
    "for d in /sys/class/net/*; do [ -e $d/device ] && "
    "echo L ${d##*/} $(cat $d/speed 2>/dev/null); done; "
    "for d in /sys/block/*; do [ -e $d/device ] && echo B ${d##*/}; done; echo .; "
    'if python3 -c "import time;time.monotonic" 2>/dev/null; then exec python3 -u -c "'
    + _PYTHON
    + '"; fi; '
    "while read n; do read u r < /proc/uptime; echo @ $n $(date +%s.%N) $u; "
    "grep ^cpu /proc/stat; cat /proc/meminfo /proc/diskstats /proc/net/dev; echo .; done"
)
COMMAND = f"exec sh -c '{_SHELL}'"


def argv(host: str) -> list[str]:
    """The command for a node; Unwatched for what is no host name."""
    if not HOST.fullmatch(host):
        raise Unwatched(f"{host!r:.80} is not the name of a host: letters, digits, . _ -")
    return ["ssh", *OPTIONS, "--", host, COMMAND]


@dataclass
class Reader:
    """The connection to one node.  Its thread alone reads and changes what is here."""

    host: str
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    lines: list[str] = field(default_factory=list)  # of the answer that is being read
    links: dict[str, float] = field(default_factory=dict)  # -> bytes/s; 0: not known
    disks: frozenset[str] = frozenset()
    greeted: bool = False
    asked: dict[int, tuple[float, float]] = field(default_factory=dict)  # -> `at`, monotonic
    trips: list[tuple[float, float]] = field(default_factory=list)  # round trip, offset
    looks: list[Look] = field(default_factory=list)
    late: int = 0
    why_not: str = ""

    def send(self, number: int, at: float) -> None:
        """Ask for a look; a node that takes nothing is not waited for."""
        if self.why_not:
            return
        self.asked[number] = (at, time.monotonic())
        try:
            assert self.process.stdin is not None
            os.write(self.process.stdin.fileno(), b"%d\n" % number)
        except BlockingIOError:
            self.asked.pop(number)
        except OSError:
            self.asked.pop(number)  # it has ended: what it said tells why

    def take(self, data: bytes, interval: float) -> None:
        """Read what came; `why_not` if it is not what the command prints."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            if text == HELLO or (self.greeted and text.startswith("@ ")):
                self.lines = [text]  # what came before is a banner
            elif text == "." and self.lines:
                self._answer(interval)
                self.lines = []
            elif self.lines:
                self.lines.append(text)
        if len(self.rest) + sum(map(len, self.lines)) > MOST_KEPT:
            self.why_not = "what it sends has no end"

    def _answer(self, interval: float) -> None:
        try:
            _, number, wall, own = self.lines[0].split()
            if self.lines[0] == HELLO:
                self._greet()
                return
            if int(number) not in self.asked:
                return  # of a run before
            at, sent = self.asked.pop(int(number))
            now, received = time.monotonic(), time.time()
            middle = received - (now - sent) / 2
            counters = of_proc(self.lines[1:], frozenset(self.links) or None, self.disks or None)
            with suppress(ValueError):
                self.trips.append((now - sent, float(wall) - middle))
        except (ValueError, IndexError, KeyError):
            self.why_not = f"its answer is not understood: {self.lines[0][:SAID]!r}"
            return
        if now - sent > interval / 2 and now - sent > 2 * min(self.trips)[0]:
            self.late += 1  # nobody knows when it was looked at
        else:
            self.looks.append(Look(at, float(own), counters))

    def _greet(self) -> None:
        words = [line.split() for line in self.lines[1:]]
        speed = {w[1]: w[2] if len(w) > 2 else "" for w in words if len(w) > 1 and w[0] == "L"}
        self.links = {
            name: int(text) * 125_000.0 if text.isdigit() else 0.0 for name, text in speed.items()
        }
        self.disks = frozenset(w[1] for w in words if len(w) == 2 and w[0] == "B")
        self.greeted = True

    @property
    def clock(self) -> tuple[float, float]:
        """By how many seconds its clock was ahead, and how uncertain that is."""
        if not self.trips:
            return 0.0, 0.0
        trip, offset = min(self.trips)
        return offset, trip / 2


class SshSource(Source):
    """A connection to each node, read by a thread of its own."""

    name = "ssh"

    @classmethod
    def words(cls, asked: Asked) -> list[str]:
        """The command on each node."""
        nodes = told(asked.nodes) or "the hosts that the storage names"
        return [f"ssh {' '.join(OPTIONS)} -- NODE {COMMAND}", f"NODE: {nodes}"]

    @classmethod
    def open(cls, asked: Asked) -> SshSource:
        """Connects to all nodes at once, within ANSWER_WITHIN; one that fails says why later."""
        if not asked.nodes:
            raise Unwatched("no node is known: name them (monitor.nodes)")
        program = tools.find("ssh")
        if program is None:
            raise Unwatched(tools.lacking("ssh"))
        commands = {host: [str(program), *argv(host)[1:]] for host in asked.nodes}
        return cls(commands, asked.interval)

    def __init__(self, commands: Mapping[str, Sequence[str]], interval: float) -> None:
        self._interval, self._number = interval, 0
        self._lock, self._over = threading.Lock(), False
        self._readers: list[Reader] = []
        for host, command in commands.items():
            process = subprocess.Popen(  # a fixed command, and an allowed name
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # no terminal to ask for a password on
            )
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
            self._readers.append(Reader(host, process))
        self._thread = threading.Thread(target=self._read, name="ssh nodes", daemon=True)
        self._thread.start()
        self._until(lambda reader: reader.greeted, ANSWER_WITHIN)
        for reader in self._readers:
            if not reader.greeted and not reader.why_not:
                reader.why_not = f"no answer within {ANSWER_WITHIN:g} s"
        deadline = time.monotonic() + LAST_WITHIN
        for trip in range(1, ROUND_TRIPS + 1):
            self._ask(time.time())
            self._until(_answered(trip), deadline - time.monotonic())
        with self._lock:
            for reader in self._readers:
                reader.looks, reader.late = [], 0

    def _until(self, done: Callable[[Reader], bool], seconds: float) -> None:
        """Until it holds for all readers that are not lost."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                if all(reader.why_not or done(reader) for reader in self._readers):
                    return
            time.sleep(0.002)

    def _read(self) -> None:
        """The thread: until `close`, whatever the nodes send."""
        with selectors.DefaultSelector() as pipes:
            for reader in self._readers:
                assert reader.process.stdout is not None
                pipes.register(reader.process.stdout, selectors.EVENT_READ, reader)
            while not self._over and pipes.get_map():
                for ready, _ in pipes.select(0.2):
                    if not self._goes_on(ready.data, os.read(ready.fd, 1 << 16)):
                        pipes.unregister(ready.fileobj)

    def _goes_on(self, reader: Reader, data: bytes) -> bool:
        """Take what came; whether more can come."""
        words = "" if data else f"its connection ended: {_last_words(reader.process)}"
        with self._lock:
            reader.take(data, self._interval)
            reader.why_not = reader.why_not or words
        if reader.why_not:
            _end([reader.process])
        return not reader.why_not

    def _ask(self, at: float) -> None:
        self._number += 1
        with self._lock:
            for reader in self._readers:
                reader.send(self._number, at)

    def look(self, at: float) -> None:
        """Asks every node; the answers come when they come."""
        self._ask(at)

    def taken(self, began: float, ended: float) -> Mapping[str, Seen]:
        """After the answers to the last look, or LAST_WITHIN."""
        del began, ended
        self._until(lambda reader: self._number not in reader.asked, LAST_WITHIN)
        found = {}
        with self._lock:
            for reader in self._readers:
                offset, uncertainty = reader.clock
                late = reader.late + len(reader.asked)
                why_not = reader.why_not or (f"{late} looks were answered late" if late else None)
                watched = WatchedNode(
                    source=self.name,
                    interval=self._interval,
                    offset=offset,
                    uncertainty=uncertainty,
                    link_limits={name: limit for name, limit in reader.links.items() if limit},
                    why_not=why_not,
                )
                found[reader.host] = Seen(watched, reader.looks)
                reader.looks, reader.late = [], 0
                reader.asked.clear()
        return found

    def close(self) -> None:
        """The commands end with their input; a connection that does not is killed."""
        self._over = True
        self._thread.join(ENDED_WITHIN)
        _end([reader.process for reader in self._readers])


def _answered(trips: int) -> Callable[[Reader], bool]:
    """Whether a node has answered so often."""
    return lambda reader: len(reader.trips) >= trips


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """What ssh said, in one line."""
    assert process.stderr is not None
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDED_WITHIN)
    said = b""
    with suppress(OSError):
        said = os.read(process.stderr.fileno(), 1 << 16)
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join(lines)[-SAID:] or f"ssh ended with status {process.poll()}"


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Close their input, wait, and kill what is still there."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
    deadline = time.monotonic() + ENDED_WITHIN
    for process in alive:
        try:
            process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

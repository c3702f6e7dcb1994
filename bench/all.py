"""Every bench with its command and what it printed, and the machine, in one Markdown file.

    python -P bench/all.py [--whole] [--only NAME ...] [--busy LOOPS] [FILE]

Each bench runs in a process of its own, first on the machine as it is, then with busy loops beside
it (default: one for each processor), and is ended when its time is over.  Short settings, unless
`--whole` asks for those that the documents are of.  FILE is written after each bench, so what an
interruption leaves is true; beside each table stands the load that was there before and after.
A bench whose peer is not installed, or that takes too long for the short settings, says so.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # also under -P

from tables_of_docs import table

ROOT = Path(__file__).resolve().parents[1]
SHORT, LONG = 300, 4 * 3600  # seconds that one bench may take
GRACE = 60.0  # seconds in which one that is stopped clears up
HEAD = (  # of every page in docs
    "[Docs](README.md) · [install](install.md) · [words](glossary.md) · [troubles](troubles.md)\n\n"
)
WIDTH = "150"  # columns of what a bench prints
QUICKSTART = "runs a whole quickstart, some minutes"
STATISTICS = "an hour of simulations; its tables are in docs/statistics.md"


@dataclass(frozen=True)
class Bench:
    """One program of this folder."""

    name: str
    whole: tuple[str, ...] = ()  # its words with --whole
    short: tuple[str, ...] = ()  # and without
    needs: tuple[str, ...] = ()  # programs without which it shows nothing
    long: str = ""  # why it only runs with --whole

    def command(self, whole: bool) -> list[str]:
        """After the interpreter's name."""
        return ["-P", f"bench/{self.name}.py", *(self.whole if whole else self.short)]


BENCHES = (
    Bench("player", ("--rounds", "101"), ("--rounds", "7")),
    Bench("uring", (), ("--here", "--rounds", "6", "--seconds", "0.5"), ("fio",)),
    Bench("session", (), ("--runs", "20")),
    Bench("engines", ("--bytes", "128MiB"), ("--rounds", "2", "--bytes", "16MiB")),
    Bench("merge", (), ("--runs", "500")),
    Bench("analysis", ("--others",), ("--runs", "50000")),
    Bench("targets", (), ("--targets", "25", "50")),
    Bench("replay", (), ("--only", "rate", "--rounds", "5"), ("cc",)),
    Bench("rate", (), ("--only", "issue", "--seconds", "1"), ("cc",)),
    Bench("capture", (), ("--rounds", "3", "--megabytes", "10"), ("strace",)),
    Bench("submission", (), ("--runs", "5000"), ("slurmctld", "sbatch")),
    Bench("findings", long=QUICKSTART),
    Bench("estimates", ("quickstart",), long=QUICKSTART),
    Bench("scale", ("--runs", "3"), long="starts 128 ranks: minutes in which nothing else gets on"),
    Bench("tpcc_load", needs=("postgres",), long="loads a database 24 times"),
    Bench("lhcb", needs=("root",), long="writes and reads a file of a million events"),
    Bench("ceph", needs=("ceph", "ceph-osd", "fio"), long="brings up a Ceph"),
    Bench("testbed", needs=("ceph", "ceph-osd"), long="brings up twenty Cephs"),
    Bench("daos", needs=("dmg", "ior", "fio"), long="needs a pool: FSMATRIX_DAOS_POOL"),
    Bench("laws", long=STATISTICS),
    Bench("intervals", long=STATISTICS),
    Bench("simulations", long=STATISTICS),
)
# what else is here -> the bench that uses it
PARTS = {
    "analysis_data": "analysis",
    "ceph_play": "ceph",
    "daos_names": "daos",
    "scale_rank": "scale",
    "simulations_capacity": "simulations",
    "simulations_many": "simulations",
    "tables_of_docs": "intervals",
}
PEERS = {
    "fio": ("--version",),
    "ior": ("-V",),
    "mpirun": ("--version",),
    "cc": ("--version",),
    "strace": ("-V",),
    "slurmctld": ("-V",),
    "postgres": ("--version",),
    "ceph": ("--version",),
}


@dataclass
class Trial:
    """What one start of a bench gave."""

    busy: int  # loops beside it
    ended: str
    load: tuple[float, float]  # before and after, of one minute
    printed: str

    def words(self) -> str:
        """Under which circumstances, and how it ended."""
        beside = f"{self.busy} busy loops beside it" if self.busy else "nothing of ours beside it"
        before, after = self.load
        return f"{beside}; load {before:.1f} before, {after:.1f} after; {self.ended}"


@dataclass
class Told:
    """One bench in the file."""

    bench: Bench
    missing: str = ""  # why it did not run
    trials: list[Trial] = field(default_factory=list)


def tried(bench: Bench, whole: bool, busy: int) -> Trial:
    """Run it, with that many busy loops beside it."""
    environment = os.environ | {"COLUMNS": WIDTH, "NO_COLOR": "1"}
    limit = LONG if whole else SHORT
    with beside(busy):
        load, begin = os.getloadavg()[0], time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *bench.command(whole)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=limit)
            ended = f"{time.monotonic() - begin:.0f} s"
        except subprocess.TimeoutExpired:
            out, errors = stopped(process)
            ended = f"ended after the {limit} s that it may take"
        except BaseException:
            stopped(process)
            raise
        after = os.getloadavg()[0]
    if process.returncode > 0:
        ended += f", status {process.returncode}"  # 1: a limit of its own is not kept
        out = out if out.strip() else errors.strip().rpartition("\n")[2]  # why it shows nothing
    return Trial(
        busy,
        ended,
        (load, after),
        "\n".join(line.rstrip() for line in out.strip("\n").splitlines()),
    )


def stopped(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End it as Ctrl-C does, so that it clears up; by force if that takes too long."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """So many processes that do nothing but use a processor."""
    loops = [subprocess.Popen([sys.executable, "-Sc", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def machine() -> list[list[str]]:
    """The machine and the versions, as rows of a table."""
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        cpu = cpu or (line.partition(":")[2].strip() if line.startswith("model name") else "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = [
        ["processors", f"{os.cpu_count()} x {cpu or platform.machine()}"],
        ["memory", f"{memory / 2**30:.1f} GiB"],
        ["kernel", platform.release()],
        ["Python", platform.python_version()],
        *([name, metadata.version(name)] for name in ("numpy", "pandas", "xarray", "h5py")),
    ]
    return facts + [[name, version(name, *words)] for name, words in PEERS.items()]


def version(program: str, *words: str) -> str:
    """The first line that a program says of itself."""
    if not shutil.which(program):
        return "not installed"
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    return next(iter((done.stdout or done.stderr).splitlines()), "").strip().replace("|", "/")


def why_not(bench: Bench, whole: bool) -> str:
    """Why a bench is not run here; "" if it is."""
    missing = [name for name in bench.needs if not shutil.which(name)]
    if missing:
        return f"not run: {', '.join(missing)} not installed"
    return f"not run without `--whole`: {bench.long}" if bench.long and not whole else ""


def page(every: Sequence[Told], whole: bool, head: str = "") -> str:
    """The whole file; `head` stands below its title."""
    made = "make bench" + (" WHOLE=1" if whole else "")
    text = (
        f"# Performance\n\n{head}"
        f"Written by `{made}`, on {time.strftime('%Y-%m-%d', time.gmtime())}: every bench with its "
        "command and what it\nprinted, first with nothing of ours beside it, then beside busy "
        "loops. Run it on your own machine and lay the two\nfiles side by side. Ratios to a peer "
        "of the same run survive another machine and another load; seconds do not.\nLoad is the "
        "kernel's mean of the last minute: where it is high before the first bench, others were at "
        "work too.\n\n"
    )
    text += table(["machine", ""], machine())
    for told in every:
        command = " ".join(["python", *told.bench.command(whole)])
        text += f"\n## {told.bench.name}\n\n`{command}`"
        text += f": {told.missing}.\n" if told.missing else "\n"
        for trial in told.trials:
            text += f"\n{trial.words()}:\n\n```text\n{trial.printed}\n```\n"
    return text


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [bench.name for bench in BENCHES]
    parser.add_argument("file", nargs="?", type=Path, default=Path("bench-out/performance.md"))
    parser.add_argument("--whole", action="store_true", help="the settings of the documents: hours")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="0: only as it is")
    options = parser.parse_args()
    options.file.parent.mkdir(parents=True, exist_ok=True)
    every = [
        Told(bench, why_not(bench, options.whole))
        for bench in BENCHES
        if bench.name in options.only
    ]
    head = HEAD if options.file.resolve().parent == ROOT / "docs" else ""
    for busy in dict.fromkeys((0, options.busy)):
        for told in every:
            if not told.missing:
                told.trials.append(tried(told.bench, options.whole, busy))
                print(f"{told.bench.name}: {told.trials[-1].words()}", flush=True)
            options.file.write_text(page(every, options.whole, head), encoding="utf-8")
    print(f"written: {options.file}")


if __name__ == "__main__":
    main()

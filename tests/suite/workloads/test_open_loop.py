"""Open loops: arrivals, latencies in virtual time beside queueing theory, backlogs, options."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.player import python_player as twin
from fsmatrix.backends.player.lanes import Player, PlayerOptions, PlayerResult
from fsmatrix.backends.player.ops import OP, Chunk, CountingChunks, Kind, Place
from fsmatrix.backends.player.player import open_player
from fsmatrix.backends.player.python_posix import File, NullCalls
from fsmatrix.results import histogram
from fsmatrix.results.evidence.workloads import BEGUN, DUE, PLAYED, SPAN, open_loop
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Geometry, Phase
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.session.messages import Stream
from fsmatrix.suite.session.stream import Played, Source, play_paced
from fsmatrix.suite.workloads.metadata import Metadata, MetadataOptions
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from fsmatrix.suite.workloads.streams import metadata, pattern
from fsmatrix.suite.workloads.streams.chunks import LEAD_NS, Arrivals, Schedule

US, MS, S = 1_000, 1_000_000, 1_000_000_000
DATA = (int(Kind.READ), int(Kind.WRITE))
ENGINE, ACCESS = Engine("player-c", "1"), PathAccess("directory", "t")
Times = np.ndarray[Any, np.dtype[np.int64]]


def place(rank: int = 0, ranks: int = 1, threads: int = 1, seed: int = 1) -> Place:
    return Place(rank, ranks, 0, 1, threads, seed)


def arrivals(rate: float, seconds: float = 1.0, poisson: bool = False) -> Arrivals:
    return Arrivals(rate=rate, poisson=poisson, until=LEAD_NS + round(seconds * S))


def schedule(given: Arrivals, where: Place, step: str = "read") -> Schedule:
    return Schedule(given, where, step)


# -- arrivals ----------------------------------------------------------------------------------
def test_constant_arrivals_of_all_ranks_are_evenly_spaced() -> None:
    every = [schedule(arrivals(250), place(rank, 4)).next(100) for rank in range(4)]
    together = np.sort(np.concatenate(every))
    assert together.tolist() == (LEAD_NS + np.arange(400) * MS).tolist()
    assert every[1][0] == LEAD_NS + MS


def test_poisson_arrivals_come_from_the_seed_the_rank_and_the_step() -> None:
    def some(seed: int = 1, rank: int = 0, step: str = "read") -> Times:
        return schedule(arrivals(1000, poisson=True), place(rank, 2, seed=seed), step).next(50_000)

    first = some()
    assert np.array_equal(first, some())
    for other in (some(seed=2), some(rank=1), some(step="write")):
        assert abs(np.corrcoef(np.diff(first), np.diff(other))[0, 1]) < 0.02
    gaps = np.diff(first) / MS
    assert abs(gaps.mean() - 1) < 4 / math.sqrt(len(gaps))
    assert abs(gaps.std() - 1) < 0.03  # that of exponential gaps is their mean
    assert abs((gaps > 2).mean() - math.exp(-2)) < 0.006
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.02


@pytest.mark.parametrize("poisson", [False, True])
def test_arrivals_do_not_depend_on_the_chunks(poisson: bool) -> None:
    whole = schedule(arrivals(1000, poisson=poisson), place()).next(1000)
    parts = schedule(arrivals(1000, poisson=poisson), place())
    assert np.concatenate([parts.next(n) for n in (1, 0, 9, 990)]).tolist() == whole.tolist()
    assert (np.diff(whole) >= 0).all()
    assert whole[0] >= LEAD_NS


def test_a_rank_that_opens_its_files_late_begins_later_between_the_others() -> None:
    late = schedule(arrivals(100), place(1, 2))
    late.opened(LEAD_NS + 3 * MS)
    assert late.next(2).tolist() == [LEAD_NS + 25 * MS, LEAD_NS + 35 * MS]  # 2 gaps, and its half
    soon = schedule(arrivals(100), place(1, 2))
    soon.opened(MS)
    assert soon.next(1).tolist() == [LEAD_NS + 5 * MS]


@pytest.mark.parametrize("poisson", [False, True])
def test_what_was_due_is_counted_though_nobody_asked_for_it(poisson: bool) -> None:
    asked, not_asked = (schedule(arrivals(1e5, 3, poisson), place()) for _ in range(2))
    times = asked.next(400_000)
    not_asked.next(7)
    due = int((times < LEAD_NS + 3 * S).sum())
    for one in (asked, not_asked):
        assert one.tallies(endless=True) == {DUE: due, SPAN: 3 * S}
    assert poisson or due == 300_000


# -- virtual time --------------------------------------------------------------------------------
class Clock:
    """A clock that stands still while nobody sleeps or serves; the module `time` of the player."""

    def __init__(self) -> None:
        self.now = 10 * S

    def monotonic_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * S)


class Server(NullCalls):
    """The driver `null` with a known time for each operation; some take longer."""

    def __init__(self, clock: Clock, ns: int, longer: dict[int, int]) -> None:
        self._clock, self._ns, self._longer = clock, ns, longer
        self.served = 0

    def execute(
        self, kind: int, flags: int, file: File, file2: File, offset: int, buffer: memoryview, /
    ) -> tuple[int, int]:
        done = super().execute(kind, flags, file, file2, offset, buffer)
        if kind not in (Kind.OPEN, Kind.CLOSE, Kind.FSYNC):
            self._clock.now += self._ns + self._longer.get(self.served, 0)
            self.served += 1
        return done


@dataclass(frozen=True)
class Heard:
    """Of one phase of one rank."""

    result: PlayerResult
    played: Played
    tallies: dict[str, Any]
    times: Times  # of the operations that have one, in order


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(twin, "time", made)
    monkeypatch.setattr(twin, "SPIN_NS", 0)
    return made


def noting(chunks: CountingChunks, times: list[Times]) -> CountingChunks:
    """The chunks, and the times in them."""
    answer: bool | None = None
    try:
        while True:
            chunk = chunks.send(answer) if answer else next(chunks)
            own = chunk.ops["time"].astype(np.int64)
            times.append(own[own > 0])
            answer = yield chunk
    except StopIteration as end:
        return end.value or {}


def heard(player: Player, chunks: Any, stream: Stream, origin: int) -> Heard:
    """Play as a session does."""
    times: list[Times] = []
    source = Source(noting(chunks, times))
    source.peek()
    player.begin(origin)
    try:
        played = play_paced(player, source, stream, origin)
        result = player.result()
    finally:
        player.close()
    assert result.first_error is None
    return Heard(result, played, dict(source.tallies or {}), np.concatenate(times))


def reading(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    given: Arrivals,
    service: int,
    longer: dict[int, int] | None = None,
    *,
    limit: float = 0.0,
    seed: int = 1,
    endless: bool = True,
    blocks: int = 1000,
) -> Heard:
    """Reads of a server in virtual time."""
    monkeypatch.setattr(twin, "NullCalls", lambda: Server(clock, service, longer or {}))
    task = pattern.Task(
        step="read", operation="read", layout="file-per-process", chunk=4096,
        bytes=4096 * blocks, random="permutation", endless=endless, arrivals=given,
    )  # fmt: skip
    end = given.until / S
    stream = Stream("", {}, arrivals_end=end, seconds=limit or (end + 1000 if endless else 0.0))
    player = open_player("null", "/", PlayerOptions(slots=1, max_op_bytes=4096), "python")
    chunks = pattern.generate(json.loads(json.dumps(task.document())), place(seed=seed))
    return heard(player, chunks, stream, clock.now + MS)


def latencies_of(times: Times, service: Times) -> Times:
    """Lindley 1952: each begins when it is due and the one before has ended.  ns until its end."""
    ends = np.zeros(len(times), dtype=np.int64)
    free = 0
    for index, (due, takes) in enumerate(zip(times.tolist(), service.tolist(), strict=True)):
        free = max(due, free) + takes
        ends[index] = free
    return ends - times


def counted(latencies: Times) -> list[int]:
    counts = np.bincount(histogram.bin_of(latencies), minlength=histogram.BINS)
    return [int(n) for n in counts]


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("load", [0.4, 0.9])
def test_every_operation_that_was_due_has_its_latency(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, poisson: bool, load: float
) -> None:
    service = round(load * MS)
    one = reading(clock, monkeypatch, arrivals(1000, 20, poisson), service)
    right = latencies_of(one.times, np.full(len(one.times), service))
    assert one.result.counts[Kind.READ].tolist() == counted(right)
    assert one.result.total_ns[Kind.READ] == right.sum()
    assert one.result.service is not None
    assert one.result.service.counts[Kind.READ].tolist() == counted(np.full(len(right), service))
    assert one.tallies[DUE] == len(right) == one.played.tallies[PLAYED]
    assert poisson or len(right) == 20_000


def test_deterministic_arrivals_never_wait(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """D/D/1 below its capacity: every latency is the service time."""
    one = reading(clock, monkeypatch, arrivals(1000, 5), 990 * US)
    assert one.result.min_ns[Kind.READ] == one.result.max_ns[Kind.READ] == 990 * US


def waiting(t: float, load: float, service: float) -> float:
    """Probability that an M/D/1 arrival waits for at most `t`.

    Erlang 1909; in this form Iversen and Staalhagen, Electronics Letters 35 (25), 1999.
    """
    x = [load / service * (t - k * service) for k in range(int(t // service) + 1)]
    terms = ((-y) ** k / math.factorial(k) * math.exp(y) for k, y in enumerate(x))
    return (1 - load) * math.fsum(terms)


def quantile(q: float, load: float, service: float) -> float:
    low, high = 0.0, 40 * service
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if waiting(middle, load, service) < q else (low, middle)
    return service + high


def test_the_formula_gives_the_mean_of_pollaczek_and_khinchine() -> None:
    steps = np.linspace(0, 30, 30_001)
    mean = float(np.trapezoid([1 - waiting(t, 0.7, 1.0) for t in steps], steps))
    assert mean == pytest.approx(0.7 / (2 * 0.3), rel=1e-3)


def test_poisson_arrivals_wait_as_theory_says(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M/D/1: percentiles and mean of ten seeds, within three standard errors and half a bin."""
    load, service = 0.7, 700 * US
    found: dict[Any, list[float]] = {q: [] for q in (0.5, 0.9, 0.99, "wait")}
    for seed in range(10):
        one = reading(clock, monkeypatch, arrivals(1000, 15, poisson=True), service, seed=seed)
        counts = one.result.counts[Kind.READ]
        for q in (0.5, 0.9, 0.99):
            found[q].append(histogram.percentile(counts, q) * S)
        assert one.result.service is not None
        waited = one.result.total_ns[Kind.READ] - one.result.service.total_ns[Kind.READ]
        found["wait"].append(float(waited) / counts.sum())
    right = {q: quantile(q, load, service) for q in (0.5, 0.9, 0.99)}
    right["wait"] = load * service / (2 * (1 - load))  # Pollaczek 1930, Khinchine 1932
    for name, values in found.items():
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        assert error < 0.1 * right[name], name  # the test could fail
        assert abs(np.mean(values) - right[name]) < 3 * error + 0.008 * right[name], name


@pytest.mark.parametrize("at", [500, 4900])
def test_a_stall_is_seen_by_every_operation_that_was_due_in_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Also at the very end, where the time of the phase is over before the stall is."""
    service, stall = 100 * US, 200 * MS
    one = reading(clock, monkeypatch, arrivals(1000, 5), service, {at: stall})
    takes = np.full(5000, service)
    takes[at] += stall
    right = latencies_of(one.times, takes)
    assert one.result.counts[Kind.READ].tolist() == counted(right)
    assert one.result.max_ns[Kind.READ] == stall + service
    assert (right[at : min(at + 200, 5000)] >= stall - MS * np.arange(min(200, 5000 - at))).all()
    assert one.tallies[DUE] == one.played.tallies[PLAYED] == 5000
    assert one.tallies[DUE] - one.played.tallies[BEGUN] == (0 if at == 500 else 99)


def test_a_server_that_is_too_slow_leaves_a_backlog_and_is_stopped(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the offered rate can be served, and half a second more is given for what is late."""
    given = arrivals(1000, 10)
    one = reading(clock, monkeypatch, given, 2 * MS, limit=given.until / S + 0.5)
    assert one.tallies[DUE] == 10_000
    assert one.played.tallies == {BEGUN: 5000, PLAYED: 5250}
    assert one.played.facts == {"stonewall_seconds": pytest.approx(given.until / S)}
    assert one.result.counts[Kind.READ].sum() == 5250
    assert one.result.counts[Kind.CLOSE].sum() == 1


def test_fixed_work_is_done_however_late_it_is(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = reading(clock, monkeypatch, arrivals(1000, 1), 4 * MS, endless=False)
    assert one.played.tallies == {BEGUN: 250, PLAYED: 1000}
    assert one.tallies[DUE] == 1000
    assert one.result.max_ns[Kind.READ] == 1000 * 4 * MS - 999 * MS


def test_calls_of_an_item_follow_the_one_that_is_due(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creates are due; writes and closes come at once, and count from their calls."""
    monkeypatch.setattr(twin, "NullCalls", lambda: Server(clock, 100 * US, {}))
    task = metadata.Task(phase="create", items=2000, bytes=10, arrivals=arrivals(1000, 2))
    stream = Stream("", {}, arrivals_end=2.05)
    options = PlayerOptions(metadata.slots(task), 4096)
    one = heard(
        open_player("null", "/", options, "python"),
        metadata.generate(task.document(), place()),
        stream,
        clock.now + MS,
    )
    assert len(one.times) == 2000
    assert (np.diff(one.times) == MS).all()
    assert one.played.tallies == {BEGUN: 2000, PLAYED: 2000}
    for kind, ns in ((Kind.CREATE, 100 * US), (Kind.WRITE, 100 * US), (Kind.CLOSE, 0)):
        assert one.result.counts[kind].sum() == 2000
        assert one.result.max_ns[kind] == ns
    assert one.result.service is not None
    assert one.result.service.counts.sum(axis=1)[Kind.CREATE] == 2000
    assert one.result.service.counts.sum() == 2000


def test_syncs_of_writes_have_no_time_of_their_own() -> None:
    task = pattern.Task(
        step="write", operation="write", layout="file-per-process", chunk=4096,
        bytes=4096 * 100, fsync="per-write", endless=True, arrivals=arrivals(1000, 0.25),
    )  # fmt: skip
    chunks = [chunk.ops for chunk in pattern.generate(task.document(), place(threads=2))]
    ops = np.concatenate(chunks)
    writes, syncs = (ops[ops["kind"] == kind] for kind in (Kind.WRITE, Kind.FSYNC))
    assert len(writes) == len(syncs) == 250
    assert writes["time"].tolist() == (LEAD_NS + np.arange(250) * MS).tolist()
    assert not syncs["time"].any()
    assert (np.flatnonzero(ops["kind"] == Kind.FSYNC) > 0).all()
    before = ops["kind"][np.flatnonzero(ops["kind"] == Kind.FSYNC) - 1]
    assert (before == Kind.WRITE).all()


# -- the C player --------------------------------------------------------------------------------
@pytest.mark.needs("c player")
@pytest.mark.parametrize(
    ("driver", "depth", "threads"), [("null", 1, 1), ("null", 1, 3), ("posix-threads", 8, 2)]
)
def test_nothing_is_left_out_at_any_depth(
    tmp_path: Any, driver: str, depth: int, threads: int
) -> None:
    (tmp_path / pattern.name_of("file-per-process", 0)).write_bytes(bytes(4096 * 64))
    given = arrivals(20_000, 0.2, poisson=True)
    task = pattern.Task(
        step="read", operation="read", layout="file-per-process", chunk=4096,
        bytes=4096 * 64, random="permutation", endless=True, arrivals=given,
    )  # fmt: skip
    options = PlayerOptions(1, 4096, threads=threads, depth=depth)
    player = open_player(driver, str(tmp_path), options, "c")
    stream = Stream("", {}, arrivals_end=given.until / S, seconds=600)
    origin = time.monotonic_ns()
    one = heard(player, pattern.generate(task.document(), place(threads=threads)), stream, origin)
    assert one.result.counts[Kind.READ].sum() == one.tallies[DUE] == one.played.tallies[PLAYED]
    assert one.result.service is not None
    assert one.result.service.counts[Kind.READ].sum() == one.tallies[DUE]
    assert (one.result.service.total_ns <= one.result.total_ns).all()
    assert one.result.last_ns >= origin + one.times.max()
    assert 0 <= one.played.tallies[BEGUN] <= one.tallies[DUE]


def pausing(pause: int) -> Iterator[Chunk]:
    """Ten reads, due 5 ms apart, after which nothing comes for a while; then ten more."""
    ops = np.zeros(10, dtype=OP)
    ops["kind"], ops["size"] = Kind.READ, 1
    for first in (0, 10):
        ops = ops.copy()
        ops["time"] = (np.arange(first, first + 10) + 1) * 5 * MS
        yield Chunk(ops, due=10)
        time.sleep(pause / S)


@pytest.mark.needs("c player")
def test_a_real_stall_is_whole_in_the_latencies() -> None:
    """The 11th is due 5 ms after the 10th, and begins 200 ms after it at the earliest."""
    player = open_player("null", "/", PlayerOptions(1, 1), "c")
    player.play(Chunk(np.array([(Kind.OPEN, 0, 0, 0, 0, 0, 0, 0)], dtype=OP), (b"f",)))
    player.close()
    player = open_player("null", "/", PlayerOptions(1, 1), "c")

    def chunks() -> Any:
        yield Chunk(np.array([(Kind.OPEN, 0, 0, 0, 0, 0, 0, 0)], dtype=OP), (b"f",))
        yield from pausing(200 * MS)
        return {}

    stream = Stream("", {}, arrivals_end=0.1, seconds=600)
    one = heard(player, chunks(), stream, time.monotonic_ns())
    assert one.played.tallies[PLAYED] == one.result.counts[Kind.READ].sum() == 20
    late = 200 * MS - np.arange(1, 11) * 5 * MS  # of those due in the stall
    above = histogram.lower_edges()
    for least in late.tolist():
        seen = int(one.result.counts[Kind.READ][above >= least * 0.98].sum())
        assert seen >= int((late >= least).sum())
    assert one.result.total_ns[Kind.READ] >= late.sum()


# -- options, refusals and facts -----------------------------------------------------------------
def case_of(workload: str = "pattern", **geometry: int) -> Case:
    return Case("t", workload, geometry=Geometry(**geometry))


TIMED = {"fixed": "time", "seconds": 2.0, "rate": 1000}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rate": 0}, "greater than 0"),
        ({"rate": -1}, "greater than 0"),
        ({"rate": 2e9}, "less than or equal to 1000000000"),
        ({"rate": math.nan}, "less than or equal"),
        ({"rate": math.inf}, "less than or equal"),
        ({"rate": "fast"}, "valid number"),
        ({"rate": 1, "arrivals": "uniform"}, "'constant' or 'poisson'"),
        ({"rate": 1, "rate_per": "thread"}, "'total' or 'process'"),
        ({"arrivals": "poisson"}, "arrivals: only with a rate"),
        ({"rate_per": "process", "arrivals": "poisson"}, "rate_per and arrivals: only with"),
    ],
)
@pytest.mark.parametrize("model", [PatternOptions, MetadataOptions])
def test_wrong_options(model: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        model.model_validate(options)


def test_a_wear_out_means_nothing_with_a_rate() -> None:
    with pytest.raises(ValidationError, match="wear_out: with a rate"):
        PatternOptions.model_validate({**TIMED, "wear_out": 1.0})


@pytest.mark.parametrize("model", [PatternOptions, MetadataOptions])
def test_what_is_derived_is_the_same_case_as_what_is_written(model: Any) -> None:
    short = model.model_validate({"rate": 5})
    written = model.model_validate({"rate": 5, "rate_per": "total", "arrivals": "constant"})
    assert short == written
    assert written.model_dump(exclude_defaults=True) == {"rate": 5}
    assert model.model_validate({}).model_dump(exclude_defaults=True) == {}


@pytest.mark.parametrize(
    ("options", "geometry", "match"),
    [
        ({**TIMED, "rate": 9e8}, {"threads": 2}, "more than the player can begin, at most 1e+07"),
        ({**TIMED, "rate": 1, "seconds": 1.5}, {"threads": 2}, "nothing to do in 1.5 s"),
        ({"rate": 1e-9}, {}, "at most 1e+06 s"),
        ({**TIMED, "rate": 9e8, "rate_per": "process"}, {}, "more than the player can begin"),
    ],
)
def test_rates_that_cannot_be(options: Any, geometry: dict[str, int], match: str) -> None:
    work = Pattern(PatternOptions.model_validate(options))
    assert match in work.refusal(case_of(**geometry))


def test_a_rate_that_is_too_low_for_some_phase_of_metadata() -> None:
    work = Metadata(MetadataOptions.model_validate({"rate": 1e-6, "files_per_process": 5}))
    assert "at most 1e+06 s" in work.refusal(case_of("metadata"))


def timed_stream(work: Any, case: Case) -> Stream:
    step = work.steps(case, ACCESS, ENGINE)[-1]
    assert isinstance(step.what, Stream)
    return step.what


def test_the_rate_is_of_all_or_of_each() -> None:
    case = case_of(processes_per_node=4, threads=2)
    for given, each in (({}, 250), ({"rate_per": "process"}, 1000)):
        options = PatternOptions.model_validate({**TIMED, **given})
        work = Pattern(options)
        assert work.refusal(case) == ""
        assert work.footprint(case).seconds == 2.0
        stream = timed_stream(work, case)
        own = json.loads(json.dumps(stream.params))["arrivals"]
        assert own == {"rate": each, "poisson": False, "until": LEAD_NS + 2 * S}
        assert stream.arrivals_end == 2.05
        assert stream.seconds == pytest.approx(2.05 + 5)


def test_fixed_work_takes_as_long_as_its_rate_says() -> None:
    options = {"rate": 100, "bytes_total": 1 << 20, "chunk": 1024}
    case = case_of(processes_per_node=4)
    work = Pattern(PatternOptions.model_validate(options))
    assert work.footprint(case).seconds == pytest.approx(10.24)
    stream = timed_stream(work, case)
    assert (stream.arrivals_end, stream.seconds) == (pytest.approx(10.29), 0.0)
    items = Metadata(MetadataOptions.model_validate({"rate": 50, "files_per_process": 100}))
    made = items.footprint(case_of("metadata", processes_per_node=2)).seconds
    assert made == pytest.approx(5 * 4 + 2 * 10_000 / 25)


def test_only_the_timed_steps_have_a_rate() -> None:
    options = {**TIMED, "pattern": "rand-write", "verify": False}
    for work, case in (
        (Pattern(PatternOptions.model_validate(options)), case_of()),
        (Metadata(MetadataOptions.model_validate({"rate": 5})), case_of("metadata")),
    ):
        for step in work.steps(case, ACCESS, ENGINE):
            assert isinstance(step.what, Stream)
            assert (step.what.arrivals_end > 0) == (step.role == "timed")
            assert (step.what.params.get("arrivals") is not None) == (step.role == "timed")


def test_what_ranks_counted_becomes_a_fact_of_the_phase() -> None:
    two = np.array([0.0, 0.1])
    ints = np.array([100, 100])
    counts = {DUE: 20_000, SPAN: 19_900 * MS, BEGUN: 19_000, PLAYED: 19_999}
    phase = Phase(
        "read", two, two + 11, ints, ints, ints * 0, facts={"tallies": counts, "clock": "tsc"}
    )
    options = PatternOptions.model_validate({**TIMED, "arrivals": "poisson"})
    (made,) = Pattern(options).told(Parsed(phases=(phase,)), case_of(processes_per_node=2)).phases
    loop = open_loop(made.facts)
    assert loop is not None
    assert (loop.rate, loop.arrivals, loop.seconds) == (1000, "poisson", 9.95)
    assert (loop.due, loop.backlog, loop.unplayed) == (20_000, 1000, 1)
    assert loop.offered == pytest.approx(2010.05, abs=0.01)
    assert loop.achieved == pytest.approx(loop.offered * 0.95)
    assert loop.saturated
    assert not replace(loop, backlog=200, unplayed=0).saturated
    assert replace(loop, backlog=201, unplayed=0).saturated
    assert replace(loop, backlog=0, unplayed=1).saturated
    assert made.facts.keys() == {"clock", "open_loop"}
    assert made.start.tolist() == [0.05, 0.1]
    for wrong in ({}, {"open_loop": 1}, {"open_loop": replace(loop, due=0).document()}):
        assert open_loop(wrong) is None

"""Nodes as a Prometheus has scraped them: the real server and exporter, and false servers."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest

from fsmatrix.backends.system import tools
from fsmatrix.suite.nodes.node_watch import ANSWER_WITHIN, Asked, NodeWatch, Unwatched
from fsmatrix.suite.nodes.prometheus import PrometheusSource
from tests.suite.nodes.ssh_server import free_port
from tests.waiting import until

CONFIG = """
scrape_configs:
  - {{job_name: quick, scrape_interval: 1s, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}
  - job_name: slow
    scrape_interval: 10s
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{instance: "slow:1"}}}}]
  - job_name: dead
    scrape_interval: 1s
    static_configs: [{{targets: ["127.0.0.1:{dead}"], labels: {{instance: "dead:1"}}}}]
"""


def started(*words: str) -> subprocess.Popen[bytes]:
    program = tools.find(words[0])
    if program is None:
        pytest.skip(tools.lacking(words[0]))
    return subprocess.Popen([program, *words[1:]], stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has scraped this machine every second, and every ten."""
    place = tmp_path_factory.mktemp("prometheus")
    exporter, port, dead = free_port(), free_port(), free_port()
    (place / "conf.yml").write_text(CONFIG.format(port=exporter, dead=dead))
    with ExitStack() as stack:
        for words in (
            ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{exporter}"],
            ["prometheus", f"--config.file={place}/conf.yml", f"--storage.tsdb.path={place}/db",
             f"--web.listen-address=127.0.0.1:{port}"],
        ):  # fmt: skip
            process = started(*words)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        address = f"http://127.0.0.1:{port}"
        until(lambda: scrapes(address, "slow:1") >= 1 and scrapes(address, "127.0.0.1") >= 3)
        yield address


def scrapes(address: str, instance: str) -> int:
    url = f'{address}/api/v1/query?query=node_memory_MemFree_bytes{{instance=~"{instance}.*"}}[1m]'
    try:
        with urllib.request.urlopen(url) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:
        return 0
    return len(result[0]["values"]) if result else 0


def watched(address: str, seconds: float, *nodes: str) -> NodeWatch:
    watch = NodeWatch(Asked(1.0, nodes, prometheus=address), {"prometheus": PrometheusSource})
    with watch.step():
        time.sleep(seconds)
    return watch


def test_a_run_of_seconds_has_the_samples_as_they_were_scraped(server: str) -> None:
    monitor, seen = watched(server, 4.0, "127.0.0.1").taken()
    assert monitor is not None
    assert monitor.hosts == ("127.0.0.1",)
    node = seen["127.0.0.1"]
    assert node.why_not is None
    assert node.interval == pytest.approx(1.0, abs=0.3)
    assert abs(node.offset) < 1 + node.uncertainty
    shares = sum(
        monitor.series[f"cpu_{mode}"][0, 1:] for mode in ("user", "system", "iowait", "idle")
    )
    assert ((shares > 0.9) & (shares < 1.001)).all()  # the rest was taken by a hypervisor
    busiest = monitor.series["cpu_core_max"][0, 1:]
    assert ((busiest >= 0) & (busiest <= 1)).all()
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (monitor.series["memory_used"] < whole).all()
    assert np.diff(monitor.time).mean() == pytest.approx(1.0, abs=0.3)
    assert not any(name.endswith(":lo") for name in monitor.series)


def test_a_slow_scrape_is_too_coarse_for_a_short_run(server: str) -> None:
    _, seen = watched(server, 0.3, "slow").taken()
    why_not = seen["slow"].why_not or ""
    assert "too coarse for a run of 0.3" in why_not or "it was scraped once" in why_not


def test_a_node_that_is_not_scraped_is_named_with_those_that_are(server: str) -> None:
    monitor, seen = watched(server, 2.5, "dead", "127.0.0.1", os.uname().nodename).taken()
    assert monitor is not None
    assert "dead" not in monitor.hosts
    assert "no exporter of it; there are: " in (seen["dead"].why_not or "")
    assert "127.0.0.1" in (seen["dead"].why_not or "")
    assert seen["127.0.0.1"].why_not is None


def test_without_names_every_node_is_there_once(server: str) -> None:
    """By its own name, as it is scraped most often."""
    _, seen = watched(server, 0.1).taken()
    assert set(seen) == {os.uname().nodename}
    assert seen[os.uname().nodename].interval == pytest.approx(1.0, abs=0.3)


@contextmanager
def answering(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def elsewhere(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/secret")
    handler.end_headers()


def nonsense(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"<html>it works</html>")


def slowly(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):  # nobody reads any more
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(elsewhere, "answered 302"), (nonsense, "Expecting value"), (slowly, "slower than")],
)
def test_a_server_that_is_none_says_so(
    answer: Callable[[http.server.BaseHTTPRequestHandler], None], reason: str
) -> None:
    with answering(answer) as address:
        began = time.monotonic()
        with pytest.raises(Unwatched, match=reason):
            PrometheusSource.open(Asked(1.0, ("n1",), prometheus=address))
        assert time.monotonic() - began < 3 * ANSWER_WITHIN


def test_no_server_costs_the_series_and_no_run() -> None:
    monitor, seen = watched(f"http://127.0.0.1:{free_port()}", 0.0, "n1").taken()
    assert monitor is None
    assert "Connection refused" in (seen["n1"].why_not or "")
    monitor, seen = watched("", 0.0, "n1").taken()
    assert "the site file names no server" in (seen["n1"].why_not or "")

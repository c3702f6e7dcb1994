"""What OSDs on this machine count, against known amounts of data (a real cluster)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from fsmatrix.backends.ceph import ceph_state, facts
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, CephTestbedOptions, down, up
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.loop, pytest.mark.needs("ceph")]  # OSDs on emulated drives
MIB = 1 << 20
SLACK = 64 << 10  # what monitors and managers write meanwhile


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephTestbed]:
    folder = tmp_path_factory.mktemp("bed") / "b"
    options = CephTestbedOptions(
        nodes=2, interface="sata", osd_size=1 << 30, redundancy="size=2", pg_num=16
    )
    yield up(options, folder)
    assert [line for line in down(folder) if "left" in line] == []


@pytest.fixture
def login(bed: CephTestbed) -> Iterator[Login]:
    login = Login(bed.conf, bed.user, bed.keyring)
    yield login
    ceph_state.forget(login)


def looked(bed: CephTestbed, login: Login) -> dict[str, float]:
    with bed.cluster() as cluster:
        return ceph_state.counters(facts.addresses(cluster), login)


def test_clients_bytes_are_counted_once_and_devices_bytes_with_all_copies(
    bed: CephTestbed, login: Login
) -> None:
    before = looked(bed, login)
    assert before["network_counting_osds"] == 2
    data = bytes(range(256)) * (MIB // 256)
    with bed.cluster() as cluster, cluster.ioctx(bed.pools["rados"], namespace="n") as pool:
        for number in range(8):
            pool.write_full(f"o{number}", data)
        written = looked(bed, login)
        for number in range(8):
            assert pool.read(f"o{number}", MIB, 0) == data
        read = looked(bed, login)
    moved = {name: written[name] - before[name] for name in before}
    assert 8 * MIB <= moved["network_sent_bytes"] <= 8 * MIB + SLACK
    assert moved["network_received_bytes"] <= SLACK
    assert moved["server_device_written_bytes"] >= 16 * MIB
    moved = {name: read[name] - written[name] for name in before}
    assert 8 * MIB <= moved["network_received_bytes"] <= 8 * MIB + SLACK
    assert moved["network_sent_bytes"] <= SLACK
    assert moved["server_device_read_bytes"] >= 8 * MIB


def test_without_a_login_nothing_is_asked(bed: CephTestbed) -> None:
    with bed.cluster() as cluster:
        assert ceph_state.counters(facts.addresses(cluster)) == {}


def test_in_the_background_only_a_share_of_the_looks_is_taken(
    bed: CephTestbed, login: Login
) -> None:
    with bed.cluster() as cluster:
        addresses = facts.addresses(cluster)
    seen: set[tuple[bool, bool]] = set()  # whether (clients', servers') bytes were told

    def look() -> None:
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 2 and time.monotonic() < deadline:
            told = ceph_state.counters(addresses, login)
            seen.add(("network_sent_bytes" in told, "server_device_read_bytes" in told))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == {(True, True), (False, True)}
    assert "network_sent_bytes" in looked(bed, login)


def test_an_osd_that_does_not_answer_is_left_alone_and_nothing_is_guessed(
    bed: CephTestbed, login: Login
) -> None:
    with bed.cluster() as cluster:
        addresses = facts.addresses(cluster)
    assert ceph_state.counters(addresses, login)
    bed.stop("osd.1")
    try:
        assert ceph_state.counters(addresses, login) == {}
        assert login not in ceph_state.kept()
    finally:
        bed.resume("osd.1")
    assert ceph_state.counters(addresses, login) == {}  # not asked again at once
    ceph_state.forget(login)
    assert ceph_state.counters(addresses, login)["network_counting_osds"] == 2


def test_an_osd_that_counts_anew_is_no_difference(bed: CephTestbed, login: Login) -> None:
    with bed.cluster() as cluster:
        addresses = facts.addresses(cluster)
        with cluster.ioctx(bed.pools["rados"], namespace="n") as pool:
            for number in range(8):
                pool.write_full(f"o{number}", b"x" * MIB)
    assert ceph_state.counters(addresses, login)
    bed.kill("osd.0")
    bed.restart("osd.0")
    bed.wait_clean(60)
    assert "network_sent_bytes" not in ceph_state.counters(addresses, login)


def test_emulated_drives_are_flash_to_the_osds(bed: CephTestbed) -> None:
    with bed.cluster() as cluster:
        told = cluster.mon("osd metadata")
    assert [one["bluestore_bdev_rotational"] for one in told] == ["0", "0"]
    assert [one["bluestore_bdev_type"] for one in told] == ["ssd", "ssd"]

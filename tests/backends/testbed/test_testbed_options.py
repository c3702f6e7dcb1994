"""Options of the Ceph test bed: what cannot be is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.testbed.ceph_bed_options import STUDY_OSDS
from fsmatrix.backends.testbed.ceph_testbed import CephTestbedOptions, up


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 2, "redundancy": "size=3"}, "needs 3 hosts, and there are 2"),
        ({"nodes": 2, "redundancy": "ec=2+1", "osds_per_node": 2}, "needs 3 hosts"),
        ({"nodes": 1, "redundancy": "size=3", "failure_domain": "osd"}, "needs 3 OSDs"),
        ({"osds_per_node": "study"}, "choose sata or pcie"),
        ({"network": "1Gbit", "address": "127.0.0.1"}, "exclude each other"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    asked = CephTestbedOptions(**options)
    assert words in asked.refusal()
    with pytest.raises(BackendError, match=words):
        up(asked, tmp_path / "bed")
    assert not (tmp_path / "bed").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"redundancy": "size=0"}, {"redundancy": "ec=1+1"}, {"redundancy": "raid5"},
        {"network": "fast"}, {"network": "0Gbit"}, {"osd_size": "1MiB"}, {"scale": 0},
        {"interface": "nvme"}, {"address": "localhost"}, {"node": 3},
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CephTestbedOptions(**options)


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({"nodes": 3}, 512),
        ({"nodes": 3, "redundancy": "size=3"}, 128),
        ({"nodes": 3, "redundancy": "ec=2+1", "osds_per_node": 2}, 256),
        ({"nodes": 2, "pg_num": 32}, 32),
    ],
)
def test_placement_groups_are_a_power_of_two_of_at_least_100_per_osd_and_copy(
    options: dict[str, Any], groups: int
) -> None:
    asked = CephTestbedOptions(**options)
    assert asked.placement_groups == groups
    if asked.pg_num is None:
        least = 100 * asked.osds / asked.copies.size
        assert least <= groups < 2 * least


def test_the_studys_number_of_drives() -> None:
    for interface, number in STUDY_OSDS.items():
        asked = CephTestbedOptions.model_validate(
            {"nodes": 2, "interface": interface, "osds_per_node": "study"}
        )
        assert (asked.per_node, asked.osds) == (number, 2 * number)
        assert asked.node_of(number - 1) == 1
        assert asked.node_of(number) == 2

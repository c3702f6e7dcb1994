"""Which storage hosts form a level."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.contract import choose_hosts


@given(number=st.integers(1, 12), more=st.integers(0, 5), block_seed=st.text(max_size=8))
def test_a_larger_level_adds_hosts(number: int, more: int, block_seed: str) -> None:
    hosts = [f"h{i:02d}" for i in range(12)]
    small, large = (
        choose_hosts(hosts, number, block_seed),
        choose_hosts(hosts[::-1], number + more, block_seed),
    )
    assert len(small) == number
    assert set(small) <= set(large)
    assert small == sorted(small)


def test_blocks_draw_other_hosts() -> None:
    hosts = [f"h{i}" for i in range(5)]
    times = dict.fromkeys(hosts, 0)
    for block in range(500):
        for host in choose_hosts(hosts, 2, f"7/{block}"):
            times[host] += 1
    # each is expected in 200 of 500 blocks; standard deviation sqrt(500 * 0.4 * 0.6) = 11
    assert all(abs(count - 200) < 5 * 11 for count in times.values())

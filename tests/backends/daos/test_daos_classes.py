"""Object classes: what they need of a pool."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fsmatrix.backends.daos.levels import Shape, class_refusal, factor_refusal, parse_class

ONE_SERVER = Shape(servers=1, engines=2, targets=16)
THREE = Shape(servers=3, engines=6, targets=48)


@pytest.mark.parametrize(
    ("name", "domains", "targets", "outlives", "redundancy"),
    [
        ("S1", 1, 1, 0, "size=1"),
        ("S2", 1, 2, 0, "size=1"),
        ("S32", 1, 32, 0, "size=1"),
        ("SX", 1, 1, 0, "size=1"),
        ("RP_2G1", 2, 2, 1, "size=2"),
        ("RP_2GX", 2, 2, 1, "size=2"),
        ("RP_3G4", 3, 12, 2, "size=3"),
        ("RP_XSF", 1, 1, 0, "size=all"),
        ("EC_2P1G1", 3, 3, 1, "ec=2+1"),
        ("EC_2P1GX", 3, 3, 1, "ec=2+1"),
        ("EC_4P2G8", 6, 48, 2, "ec=4+2"),
        ("EC_16P2GX", 18, 18, 2, "ec=16+2"),
    ],
)
def test_what_a_class_needs(
    name: str, domains: int, targets: int, outlives: int, redundancy: str
) -> None:
    parsed = parse_class(name)
    assert (parsed.domains, parsed.targets, parsed.outlives) == (domains, targets, outlives)
    assert parsed.redundancy == redundancy


@given(st.text(max_size=12))
def test_other_words_are_no_classes(text: str) -> None:
    assume(not text.isascii() or not text.startswith(("S", "RP_", "EC_")))
    with pytest.raises(ValueError, match="write S1, S2, SX"):
        parse_class(text)


@pytest.mark.parametrize("name", ["", "S", "S0", "s1", "RP_1G1", "EC_3P1G1", "RP_XS", "S1\n", "OC"])
def test_words_near_to_classes(name: str) -> None:
    with pytest.raises(ValueError, match="object class"):
        parse_class(name)


@pytest.mark.parametrize(
    ("name", "shape", "level", "reason"),
    [
        ("SX", ONE_SERVER, "node", ""),
        ("S16", ONE_SERVER, "node", ""),
        ("S32", ONE_SERVER, "node", "needs 32 targets, and the pool has 16"),
        ("RP_2G1", ONE_SERVER, "node", "needs 2 servers, and the pool has 1; engines of one"),
        ("RP_2G1", ONE_SERVER, "rank", ""),
        ("RP_3G1", ONE_SERVER, "rank", "needs 3 engines, and the pool has 2"),
        ("EC_2P1GX", THREE, "node", ""),
        ("EC_2P2GX", THREE, "node", "needs 4 servers, and the pool has 3"),
        ("EC_4P2GX", THREE, "rank", ""),
        ("RP_2G32", THREE, "node", "needs 64 targets, and the pool has 48"),
        ("RP_2G32", Shape(3, 6, None), "node", ""),
        ("RP_XSF", ONE_SERVER, "node", ""),
    ],
)
def test_what_a_pool_cannot_hold(name: str, shape: Shape, level: str, reason: str) -> None:
    refusal = class_refusal(name, shape, level)
    assert reason in refusal
    assert bool(refusal) is bool(reason)


@pytest.mark.parametrize(
    ("rd_fac", "level", "refused"),
    [(0, "node", False), (1, "node", True), (1, "rank", False), (2, "rank", True)],
)
def test_a_redundancy_factor_needs_one_domain_more(rd_fac: int, level: str, refused: bool) -> None:
    reason = factor_refusal(rd_fac, ONE_SERVER, level)
    assert bool(reason) is refused
    assert not refused or f"needs {rd_fac + 1} " in reason

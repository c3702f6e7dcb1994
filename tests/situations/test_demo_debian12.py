"""`make demo` by root on a bare Debian 12: it installs what it needs and compares."""

from __future__ import annotations

import pytest

from tests.situations.checkout import PATTERNS, demo
from tests.situations.debian import bare, entering


@pytest.mark.needs("bare debian")
def test_the_demo_on_a_bare_debian_12() -> None:
    with bare("bookworm") as root:
        done = demo(root / "fsmatrix", "out", before=entering(root), inside=root)
        assert done.status == 0, done.text
        assert "system packages: installed" in done.text
        assert done.compared == dict.fromkeys(("xfs", "ext4", "btrfs"), PATTERNS), done.text
        assert done.engines == {"player-c"}
        assert not (root / "usr/sbin/policy-rc.d").exists()

"""The C extension that is there belongs to the Python that uses it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsmatrix.backends.player import lanes, player

SEAM = Path(player.__file__).resolve().with_name("_player.pyi")


@pytest.mark.parametrize("old", [SimpleNamespace(), SimpleNamespace(INTERFACE=lanes.INTERFACE - 1)])
def test_one_of_another_version_is_not_taken(
    old: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a clone that was updated and not built again."""
    assert player.usable_extension(old) is None
    monkeypatch.setattr(player, "_native", player.usable_extension(old))
    assert player.engine_name() == lanes.ENGINE_PYTHON
    with pytest.raises(ValueError, match="another version"):
        player.engine_name("c")


def test_a_changed_seam_has_another_number() -> None:
    """Whoever changes the text of the seam raises INTERFACE here, there and in module.c."""
    digest = hashlib.sha256(SEAM.read_bytes()).hexdigest()[:16]
    assert (lanes.INTERFACE, digest) == (6, "bc3b76ed409df9c9")

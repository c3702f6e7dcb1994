"""ext4 on an image or a device."""

from __future__ import annotations

from fsmatrix.backends.ext2 import Ext2


class Ext4(Ext2):
    """mkfs.ext4 with its defaults, journal included, everything initialised at once."""

    name = "ext4"
    fstype = "ext4"
    program = "mkfs.ext4"
    extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"

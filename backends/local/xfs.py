"""XFS on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.allowed import NUMBER, SIZE, SWITCH, Keys, Words, label, one_of, plain
from fsmatrix.backends.local.local import LocalBackend, LocalOptions
from fsmatrix.backends.local.own_mounts import mount_keys

_GEOMETRY = plain(NUMBER, "sunit swidth sw") | plain(SIZE, "su sectsize")


class XfsOptions(LocalOptions):
    """mkfs.xfs 4 to 6: everything is on the one device, so no logdev, rtdev, file, name, -p."""

    mkfs_words = Words(
        "mkfs.xfs",
        {
            "-b": Keys({"size": SIZE}),
            "-d": Keys(_GEOMETRY | plain(NUMBER, "agcount") | plain(SIZE, "agsize size")
                       | plain(SIZE, "cowextsize extszinherit")
                       | {"noalign": None, "concurrency": NUMBER}),
            "-i": Keys(plain(SIZE, "size") | plain(NUMBER, "perblock maxpct attr")
                       | plain(SWITCH, "projid32bit sparse nrext64 exchange")),
            "-l": Keys(plain(NUMBER, "agnum sunit version concurrency")
                       | plain(SIZE, "size su sectsize") | {"lazy-count": SWITCH}
                       | {"internal": one_of("1")}),
            "-L": label(12),
            "-m": Keys(plain(SWITCH, "crc finobt rmapbt reflink inobtcount bigtime autofsck")),
            "-n": Keys({"size": SIZE, "version": one_of("2", "ci"), "ftype": SWITCH}),
            "-s": Keys(plain(SIZE, "size")),
        },
    )  # fmt: skip
    mount_words = mount_keys(
        "attr2 noattr2 discard nodiscard filestreams grpid nogrpid bsdgroups sysvgroups ikeep "
        "noikeep inode32 inode64 largeio nolargeio noalign swalloc nouuid wsync noquota quota "
        "uquota usrquota uqnoenforce gquota grpquota gqnoenforce pquota prjquota pqnoenforce",
        plain(SIZE, "allocsize logbsize")
        | plain(NUMBER, "logbufs sunit swidth")
        | {"dax": one_of("inode", "never", "always")},
    )


class Xfs(LocalBackend):
    """mkfs.xfs with its defaults."""

    name = "xfs"
    fstype = "xfs"
    program = "mkfs.xfs"
    dry_run = ("-N",)
    Options = XfsOptions

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """-K: no discard, which would undo that the image was written once."""
        return [cls.program, "-q", "-f", "-K", "-m", f"uuid={identity}", *options, device]

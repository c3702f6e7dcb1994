"""F2FS on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from fsmatrix.backends.allowed import (
    NUMBER,
    PERCENT,
    SWITCH,
    Form,
    Keys,
    Words,
    label,
    one_of,
    plain,
)
from fsmatrix.backends.contract import NO_LEVEL, Foreseen
from fsmatrix.backends.local.cleaner import GC
from fsmatrix.backends.local.local import LocalBackend, LocalOptions
from fsmatrix.backends.local.own_mounts import mount_keys
from fsmatrix.results.evidence.stored import Level

_EXTENSIONS = Form("extensions of names: mp3,gif", r"[A-Za-z0-9]{1,8}(,[A-Za-z0-9]{1,8}){0,63}")
_FEATURES = (
    "casefold compression encrypt extra_attr flexible_inline_xattr inode_checksum inode_crtime "
    "lost_found project_quota quota sb_checksum verity"
)
_BACKGROUND, _OTHER_GC = "background_gc", ("gc_merge", "atgc")  # options of its garbage collection
_ALGORITHM = Form("lzo, lz4, lz4:3, zstd, zstd:3, lzo-rle", r"lzo|lzo-rle|(lz4|zstd)(:\d{1,2})?")


class F2fsOptions(LocalOptions):
    """mkfs.f2fs 1.11 to 1.16: no other devices (-c), nothing for zones (-m)."""

    mkfs_words = Words(
        "mkfs.f2fs",
        {
            "-a": SWITCH,
            "-C": Form("an encoding: utf8, utf8:strict", r"utf8(-\d+\.\d+)?(:(no_)?strict)?"),
            "-e": _EXTENSIONS,
            "-E": _EXTENSIONS,
            "-i": None,
            "-l": label(255),
            "-o": PERCENT,
            "-O": Keys(plain(None, _FEATURES)),
            "-s": NUMBER,
            "-w": NUMBER,
            "-z": NUMBER,
        },
    )
    mount_words = mount_keys(
        "acl noacl age_extent_cache atgc barrier nobarrier compress_cache compress_chksum "
        "data_flush discard nodiscard extent_cache noextent_cache fastboot flush_merge "
        "noflush_merge gc_merge nogc_merge grpquota heap no_heap inline_data noinline_data "
        "inline_dentry noinline_dentry inline_xattr noinline_xattr lazytime nolazytime prjquota "
        "quota noquota user_xattr nouser_xattr usrquota",
        plain(NUMBER, "active_logs compress_log_size inline_xattr_size")
        | {"alloc_mode": one_of("default", "reuse"), "background_gc": one_of("on", "off", "sync")}
        | {"checkpoint": one_of("enable"), "compress_algorithm": _ALGORITHM}
        | {"discard_unit": one_of("block", "segment", "section")}
        | {"compress_extension": Form("an extension of names", r"[A-Za-z0-9]{1,8}|\*")}
        | {"compress_mode": one_of("fs", "user"), "fsync_mode": one_of("posix", "strict")}
        | {"memory": one_of("normal", "low"), "mode": one_of("adaptive", "lfs")},
    )


class F2fs(LocalBackend):
    """mkfs.f2fs with its defaults; its own reserve is large on a small device."""

    name = "f2fs"
    fstype = "f2fs"
    program = "mkfs.f2fs"
    Options = F2fsOptions

    def foreseen(self, level: Level = NO_LEVEL) -> Foreseen:
        """Its garbage collection: the factor `gc`, as its mount options have it."""
        chosen = cast(F2fsOptions, self.options).mount_options.split(",")
        background = [word for word in chosen if word.startswith(f"{_BACKGROUND}=")]
        others = [word for word in _OTHER_GC if word in chosen]
        own = {GC: ",".join([*(background[-1:] or [f"{_BACKGROUND}=on"]), *others])}
        return replace(super().foreseen(level), attributes=own)

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """-t 0: no discard, which would undo that the image was written once."""
        return [cls.program, "-q", "-f", "-t", "0", "-U", identity, *options, device]

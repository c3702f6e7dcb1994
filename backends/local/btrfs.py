"""btrfs on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.allowed import (
    NUMBER,
    SIZE,
    Form,
    Keys,
    Words,
    features,
    label,
    one_of,
    plain,
)
from fsmatrix.backends.local.local import LocalBackend, LocalOptions
from fsmatrix.backends.local.own_mounts import mount_keys

_PROFILE = one_of("single", "dup")  # the others need more devices than the one
_CHECKSUM = one_of("crc32c", "xxhash", "sha256", "blake2")
_FEATURES = features(
    "block-group-tree extent-tree-v2 extref free-space-tree mixed-bg no-holes quota raid56 "
    "raid-stripe-tree skinny-metadata squota zoned"
)
_WORDS: dict[str, Form | Keys | None] = {
    **dict.fromkeys(("-b", "--byte-count"), SIZE),
    **dict.fromkeys(("--csum", "--checksum"), _CHECKSUM),
    **dict.fromkeys(("-d", "--data", "-m", "--metadata"), _PROFILE),
    **dict.fromkeys(("-L", "--label"), label(255)),
    **dict.fromkeys(("-M", "--mixed"), None),
    **dict.fromkeys(("-n", "--nodesize", "-s", "--sectorsize"), SIZE),
    **dict.fromkeys(("-O", "--features", "-R", "--runtime-features"), _FEATURES),
}
_COMPRESSION = Form(
    "no, lzo, zlib or zstd, with a level: zstd:3", r"no|lzo|(zlib|zstd)(:-?\d{1,2})?"
)


class BtrfsOptions(LocalOptions):
    """mkfs.btrfs 5 and 6: no --rootdir and no other device, neither here nor in the mount."""

    mkfs_words = Words("mkfs.btrfs", _WORDS)
    mount_words = mount_keys(
        "acl noacl autodefrag noautodefrag barrier nobarrier clear_cache compress compress-force "
        "datacow nodatacow datasum nodatasum discard nodiscard flushoncommit noflushoncommit "
        "inode_cache nospace_cache space_cache ssd nossd ssd_spread nossd_spread treelog notreelog "
        "user_subvol_rm_allowed",
        plain(NUMBER, "commit thread_pool metadata_ratio")
        | {
            "max_inline": SIZE,
            "space_cache": one_of("v1", "v2"),
            "discard": one_of("sync", "async"),
        }
        | {"compress": _COMPRESSION, "compress-force": _COMPRESSION},
    )


class Btrfs(LocalBackend):
    """mkfs.btrfs with its defaults.

    With checksums (the default) an O_DIRECT write is buffered by newer kernels: evidence
    comes from the counters, not from the flag.
    """

    Options = BtrfsOptions
    name = "btrfs"
    fstype = "btrfs"
    program = "mkfs.btrfs"
    version_option = "--version"

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """--nodiscard: the image stays written."""
        return [cls.program, "-q", "-f", "--nodiscard", "-U", identity, *options, device]

"""ext2 and ext4 on an image or a device."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.backends.allowed import (
    NUMBER,
    PERCENT,
    SIZE,
    SWITCH,
    Form,
    Keys,
    Words,
    features,
    label,
    merged,
    one_of,
    plain,
)
from fsmatrix.backends.local.local import LocalBackend, LocalOptions
from fsmatrix.backends.local.own_mounts import mount_keys

# All of mke2fs 1.47 but journal_dev, which makes a journal for another device.
FEATURES = features(
    "64bit bigalloc casefold dir_index dir_nlink ea_inode encrypt ext_attr extent extents "
    "extra_isize fast_commit filetype flex_bg has_journal huge_file inline_data large_dir "
    "large_file metadata_csum metadata_csum_seed meta_bg mmp orphan_file project quota "
    "resize_inode sparse_super sparse_super2 stable_inodes uninit_bg verity none"
)
_WORDS: dict[str, Form | Keys | None] = {
    "-b": SIZE,
    "-C": SIZE,
    "-E": Keys(
        plain(NUMBER, "stride stripe_width stripe-width num_backup_sb mmp_update_interval")
        | plain(SIZE, "resize orphan_file_size")
        | {"packed_meta_blocks": SWITCH, "quotatype": one_of("usr", "grp", "prj")}
        | {"encoding": Form("an encoding: utf8, utf8-12.1", r"utf8(-\d+\.\d+)?")}
        | {"encoding_flags": one_of("strict", "no_strict")}
    ),
    "-g": NUMBER,
    "-G": NUMBER,
    "-i": SIZE,
    "-I": NUMBER,
    "-j": None,
    "-J": Keys(plain(SIZE, "size fast_commit_size")),
    "-L": label(16),
    "-m": PERCENT,
    "-N": NUMBER,
    "-O": FEATURES,
    "-r": SWITCH,
    "-T": Form("a usage type: largefile, small", r"[a-z][a-z0-9]{0,30}"),
}


class Ext2Options(LocalOptions):
    """Words of mkfs.ext2 (mke2fs 1.43 to 1.47) and of mount that may be given."""

    mkfs_words = Words("mkfs.ext2", _WORDS)
    mount_words = mount_keys(
        "acl noacl bsddf minixdf debug grpid nogrpid bsdgroups sysvgroups nouid32 oldalloc orlov "
        "user_xattr nouser_xattr quota noquota usrquota grpquota",
        {"errors": one_of("continue", "remount-ro")},
    )


class Ext2(LocalBackend):
    """mkfs.ext2 with its defaults, everything initialised at once."""

    name = "ext2"
    fstype = "ext2"
    program = "mkfs.ext2"
    Options = Ext2Options
    extended = "nodiscard,lazy_itable_init=0"

    @classmethod
    def mkfs(cls, device: str, identity: str, options: Sequence[str]) -> list[str]:
        """No discard, and no lazy initialisation: the kernel would do it while we measure.

        Of several -E mke2fs takes the last: the user's keys and ours stand in one.
        """
        kept, asked = merged(options, "-E")
        extended = f"{asked},{cls.extended}" if asked else cls.extended
        return [cls.program, "-q", "-F", "-U", identity, "-E", extended, *kept, device]


class Ext4Options(Ext2Options):
    """As of ext2; mounted without journal_dev, journal_path, sb, usrjquota, noload."""

    mkfs_words = Words("mkfs.ext4", Ext2Options.mkfs_words.options)
    mount_words = mount_keys(
        "acl noacl auto_da_alloc noauto_da_alloc barrier nobarrier block_validity "
        "noblock_validity bsddf minixdf bsdgroups sysvgroups debug delalloc nodelalloc "
        "dioread_lock dioread_nolock discard nodiscard grpid nogrpid i_version init_itable "
        "noinit_itable journal_async_commit journal_checksum nojournal_checksum mblk_io_submit "
        "nomblk_io_submit nombcache no_mbcache no_prefetch_block_bitmaps prefetch_block_bitmaps "
        "nouid32 oldalloc orlov prjquota quota noquota usrquota grpquota user_xattr nouser_xattr",
        plain(
            NUMBER,
            "commit inode_readahead_blks journal_ioprio max_batch_time min_batch_time "
            "max_dir_size_kb stripe mb_optimize_scan",
        )
        | {"barrier": SWITCH, "auto_da_alloc": SWITCH, "dax": one_of("inode", "never", "always")}
        | {"data": one_of("journal", "ordered", "writeback")}
        | {"data_err": one_of("abort", "ignore"), "errors": one_of("continue", "remount-ro")},
    )


class Ext4(Ext2):
    """mkfs.ext4 with its defaults, journal included, everything initialised at once."""

    name = "ext4"
    fstype = "ext4"
    program = "mkfs.ext4"
    Options = Ext4Options
    extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"

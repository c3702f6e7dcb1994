"""ext4 on an image or a device."""

from __future__ import annotations

from fsmatrix.backends.allowed import NUMBER, SWITCH, Words, one_of, plain
from fsmatrix.backends.local.ext2 import Ext2, Ext2Options
from fsmatrix.backends.local.mounts.mounting import mount_keys


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

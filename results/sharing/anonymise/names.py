"""What `anonymise` knows beforehand: which fields hold what, and what may stay."""

from __future__ import annotations

import re
from dataclasses import fields

from fsmatrix.results.files.campaign import campaignspec, rows
from fsmatrix.results.record import Finding, Monitor, Phase, RunRecord

# kinds of names; where one word is of several kinds, the first one counts
KINDS = (
    "host", "user", "account", "partition", "serial", "job", "domain",
    "mail", "ipv4", "ipv6", "mac", "uuid", "path",
)  # fmt: skip

# name of a field (of JSON, YAML, an environment variable; lower case) -> what it holds
FIELDS: dict[str, str] = {
    **dict.fromkeys(
        ("host", "hosts", "hostname", "hostnames", "host_name", "node", "nodes", "node_name",
         "nodename", "node_list", "nodelist", "server", "servers", "machines",
         "mon_host", "mon_addr", "submit_host", "batch_host",
         "slurm_job_nodelist", "slurm_nodelist", "slurm_submit_host", "slurmd_nodename"),
        "host",
    ),
    **dict.fromkeys(
        ("user", "username", "user_name", "login", "owner", "setuser", "mail_user", "by_user",
         "slurm_job_user", "logname"),
        "user",
    ),
    **dict.fromkeys(
        ("account", "project", "wckey", "slurm_job_account", "reservation",
         "slurm_job_reservation"),
        "account",
    ),
    **dict.fromkeys(("partition", "qos", "slurm_job_partition", "slurm_job_qos"), "partition"),
    **dict.fromkeys(
        ("serial", "serial_number", "serialnumber", "disk_serial", "wwid", "wwn", "nguid", "eui",
         "destroy"),  # of the backend device
        "serial",
    ),
    **dict.fromkeys(
        ("job", "job_id", "jobid", "slurm_job", "slurm_job_id", "slurm_jobid", "array_job_id",
         "slurm_array_job_id"),
        "job",
    ),
}  # fmt: skip
SOURCES = ("mount_source", "source", "device")  # "server:/export" names a host

# names that are the same everywhere and tell nothing
COMMON = frozenset(
    {"localhost", "localhost.localdomain", "localdomain", "root", "nobody", "admin", "default",
     "none", "no-signature", "unknown", "auto", "true", "false", ""}
)  # fmt: skip

# words of this project and of the field: a host or user of such a name is replaced in sentences
# and in its own fields, but a single word or a key like that is taken for what it usually means
_FIELD_WORDS = """
    access account active address answer array attachment audit backend bandwidth begin benchmark
    bin block boot btrfs buffer bypass bytes cache campaign case ceph cephfs chunk class client
    clients clock cluster cold compute conductor core count cpu cpus daos data dbench default
    device devices dfs dfuse dir direct directory disk ds duration elbencho emulated end engine
    environment error errors evidence ext2 ext3 ext4 f2fs factor factors file files filesystem
    finding fio fs fsync geometry group hardware home host hosts id image interface interval io
    io500 ior iops job jobs kernel kind latency launcher libcephfs limit limits local lock log
    lustre machine master mdtest memory metadata metric mixed mode model mon monitor mount mpi
    mpirun name network nfs nilfs2 node nodes none null ok op open operation operations ops option
    options order osd out output pattern phase player plot pool private process processes program
    public python queue rados rand random rank ranks read ready remove replay report result
    results root run runs sample scratch seconds seq series server servers service session set
    settle shared size slurm source ssd start started stat state status step storage store stream
    stdout stderr system target targets temporary test text threads time timeout tmp tmpfs total
    type unit units user users value version warm window work worker workers workload world write
    xfs
""".split()  # noqa: SIM905  (a table of 200 lines would be no easier to read)
ORDINARY = frozenset(
    {
        *_FIELD_WORDS,
        *KINDS,
        *rows.METADATA_PHASES,
        *rows.DATA_KINDS,
        *(field.name for kind in (RunRecord, Phase, Finding, Monitor) for field in fields(kind)),
        *campaignspec.NUMBERS,
        *campaignspec.TEXTS,
        *campaignspec.reserved(),
    }
)

# parts of paths that are the same on most machines; the others become path-1, path-2, ...
_PARTS = """
    tmp var home users Users u mnt media opt srv run scratch work data project projects proj group
    groups usr local etc bin sbin lib lib64 libexec share include src spool log cache dev proc sys
    shm lustre gpfs beegfs cephfs ceph daos apps sw software modules spack s sec second op iter
    state journal runs locks campaign.h5 campaign.json campaign.yaml store.json report.html
    ior mdtest fio dbench elbencho mpirun mpiexec mpiexec.hydra srun sbatch orterun prterun python
    python3 ceph-fuse dfuse daos fusermount fusermount3 mount umount
""".split()  # noqa: SIM905
COMMON_PARTS = frozenset(_PARTS)
HOMES = frozenset({"home", "users", "Users", "u"})  # the part after them is a user
# files and folders of the system that every machine has: kept as they are
SYSTEM = re.compile(
    r"/(?:proc|sys)(?:/|$)|/(?:usr/)?(?:bin|sbin|lib|lib64|libexec|include|share)(?:/|$)|"
    r"/dev/(?:null|zero|full|u?random|shm|fuse|stdin|stdout|stderr|tty|ram\d+|loop\d+|dm-\d+|"
    r"md\d+(?:p\d+)?|[shv]d[a-z]+\d*|xvd[a-z]+\d*|nvme\d+(?:n\d+)?(?:p\d+)?|pmem\d+(?:\.\d+)?)$"
)

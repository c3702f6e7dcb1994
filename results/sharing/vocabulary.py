"""The names that a campaign's texts must not show, learnt from fields and by their form.

The same name gives the same pseudonym everywhere, different names give different ones.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator
from dataclasses import fields

from fsmatrix.results.files import campaignfile, run_rows
from fsmatrix.results.record import Finding, Monitor, Phase, RunRecord

# What `anonymise` knows beforehand: which fields hold what, and what may stay.


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
     "none", "no-signature", "unknown", "auto", "true", "false", "services", "*", ""}
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
    options order osd other out output pattern phase player plot pool private process processes
    program public python queue rados rand random rank ranks read ready remove replay report result
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
        *run_rows.METADATA_PHASES,
        *run_rows.DATA_KINDS,
        *(field.name for kind in (RunRecord, Phase, Finding, Monitor) for field in fields(kind)),
        *campaignfile.NUMBERS,
        *campaignfile.TEXTS,
        *campaignfile.reserved(),
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


LONGEST_PATH = 4096
LONGEST_LIST = 100_000  # hosts
PART = 4  # letters: a part of a path of so many is replaced in sentences too

RUN_ID = r"(?<![0-9A-Za-z])[0-9a-f]{16}(?:-r\d{4,}-a\d+)?(?![0-9A-Za-z])"
_PART = r"[^\s/\"'<>|;,()\[\]{}=*?\\`]"
PATH = rf"(?<![\w.~/$}}])(?:/(?!/)|(?<!:)//){_PART}+(?:/+{_PART}+)*/?"
FORMS: dict[str, str] = {
    "uuid": r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
    r"|(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])",
    "serial": r"(?<![0-9A-Za-z])(?:naa|eui|t10|nvme)\.[0-9A-Za-z]+",
    "mac": r"(?<![0-9A-Za-z:.-])(?:(?:[0-9A-Fa-f]{2}:){5,19}[0-9A-Fa-f]{2}"
    r"|(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4})"
    r"(?![0-9A-Za-z:])",
    "ipv4": r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\w|\.[0-9])",
    "ipv6": r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,39}(?:%\w+)?"
    r"(?![\w:]|\.[0-9])",
    "url": r"(?<=://)[^\s\"'<>/,;]+(?:/[^\s\"'<>,;]*)?",
    "mail": r"[\w.+-]+@[A-Za-z0-9][\w-]*(?:\.[\w-]+)*",
    "below": rf"(?:\$\{{?\w+\}}?|(?<![\w.])~[\w.-]*|(?<![\w.])\.{{1,2}})(?:/+{_PART}+)+",
    "path": PATH,
    "list": r"(?<![0-9A-Za-z])[A-Za-z][\w.-]*\[[0-9][0-9,-]*\]",
    "job": r"(?i:(?<![a-z])(?:jobid|job|slurm|array)[\s_=:#.-]*(?:id)?[\s_=:#-]*)[0-9]+",
}
TOKEN = r"\w+(?:[._-]+\w+)*"
PIECE = re.compile(r"[^\W_]+")
STEM = re.compile(r"([^\W\d_](?:[\w.-]*[^\W\d])?)(\d+)")
_PATH = re.compile(PATH)
_UUID = re.compile(FORMS["uuid"])
_SENTENCE = re.compile(r"\n|: | -|.{4096}")
_ODD = re.compile(r"[\s()\[\]{}'=*?]")
_OWN = re.compile(rf"(?<!\w)({'|'.join(KINDS)})(x*)-\d+(?!\d)")


class Pseudonyms:
    """Name -> pseudonym, of each kind numbered in the order of first use."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        self._prefix = {kind: kind for kind in KINDS}
        self._taken: set[str] = set()

    def avoid(self, text: str) -> None:
        """Names in `text` look like pseudonyms: others will be given, so that they differ."""
        for kind, marks in _OWN.findall(text):
            self._taken.add(kind + marks)
            while self._prefix[kind] in self._taken:
                self._prefix[kind] += "x"

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name, made if it is new."""
        given = self._given[kind]
        if name not in given:
            given[name] = f"{self._prefix[kind]}-{len(given) + 1}"
        return given[name]

    def is_one(self, text: str) -> bool:
        """Whether it is one of ours."""
        kind, dash, number = text.rpartition("-")
        return bool(dash) and number.isdecimal() and kind in self._prefix.values()

    def counts(self) -> dict[str, int]:
        """How many different names of each kind were replaced; kinds without any are left out."""
        return {kind: len(given) for kind, given in self._given.items() if given}


class Vocabulary:
    """What was learnt.  Words are casefolded: host names are the same in any case."""

    def __init__(self) -> None:
        self.names = Pseudonyms()
        self.words: dict[str, str] = {}  # word -> kind
        self.stems: set[str] = set()  # of hosts: "node" of node17
        self.parts: set[str] = set()  # of paths
        self.odd: set[str] = set()  # names and paths that are not made of words and . _ - /
        self.chosen: set[str] = set()  # levels and targets: no part of a path makes them go
        self.longest = 1  # pieces of a name

    def learn(self, kind: str, text: str) -> None:
        """A field of that kind holds `text`: one name, or several."""
        for name in _names(kind, text):
            word = name.casefold()
            if word in COMMON or is_address(name) or _UUID.fullmatch(name):
                continue
            self.names.avoid(f"{word}-1" if word in KINDS else word)
            if kind == "host" and self._learn_host(name):
                continue
            if KINDS.index(kind) < KINDS.index(self.words.get(word, KINDS[-1])):
                self.words[word] = kind
            pieces = PIECE.findall(name)
            self.longest = max(self.longest, len(pieces))
            if not re.fullmatch(TOKEN, name):
                self.odd.add(name)

    def _learn_host(self, name: str) -> bool:
        """Its stem; host and domain of a full name apart (then it is learnt)."""
        short, _, domain = name.partition(".")
        stem = STEM.fullmatch(short.casefold())
        if stem and len(stem[1]) > 1 and stem[1] not in ORDINARY:
            self.stems.add(stem[1])
        if not (short and domain):
            return False
        self.learn("host", short)
        self.learn("domain", domain)
        return True

    def learn_text(self, text: str) -> None:
        """Names that any text tells by their form: users by their homes, parts of paths."""
        if "-" in text:
            self.names.avoid(text)
        if "/" not in text:
            return
        if text.startswith("/") and _ODD.search(text) and not _SENTENCE.search(text):
            parts = text.rstrip("/").split("/")
            self.odd |= {
                "/".join(parts[: end + 1]) for end, part in enumerate(parts) if _ODD.search(part)
            }
            self.odd.add("/".join(parts))
        for path in [text, *_PATH.findall(text)] if text.startswith("/") else _PATH.findall(text):
            self._learn_path(path)

    def _learn_path(self, path: str) -> None:
        if SYSTEM.match(path) or len(path) > LONGEST_PATH:
            return
        parts = path.rstrip("/.:,").split("/")
        for before, part in itertools.pairwise(parts):
            if not re.fullmatch(TOKEN, part):
                continue  # a variable, a pattern
            if before in HOMES:
                self.learn("user", part)
            if len(part) >= PART and part not in COMMON_PARTS:
                self.parts.add(part)


def _names(kind: str, text: str) -> Iterator[str]:
    """The names that a field holds: lists are taken apart, ports and slots removed."""
    if kind == "serial":
        if text.strip():
            yield text.strip()
        return
    if kind == "job":
        yield from re.findall(r"^[0-9]+", text) or [text.strip()] * bool(text.strip())
        return
    for item in re.split(r"[\s,;]+(?![^\[]*\])", text.strip()):
        if kind == "host":
            yield from _hosts(item)
        elif item and "/" not in item and "@" not in item:
            yield item


def _hosts(item: str) -> Iterator[str]:
    listed = re.fullmatch(r"([\w.-]*)\[([0-9,-]+)\]([\w.-]*)", item)
    if listed:
        yield item
        for number in _numbers(listed[2]):
            yield f"{listed[1]}{number}{listed[3]}"
    else:
        name = re.sub(r":\d+$", "", item)
        if re.fullmatch(r"[\w.-]*[^\W\d_][\w.-]*", name):
            yield name


def _numbers(ranges: str) -> Iterator[str]:
    """01-03,7 -> 01 02 03 7, the first LONGEST_LIST of each range."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            end = min(int(last or first), int(first) + LONGEST_LIST)
            yield from (str(number).zfill(len(first)) for number in range(int(first), end + 1))


def is_address(text: str) -> bool:
    """Whether it is an IP address, with or without brackets."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True

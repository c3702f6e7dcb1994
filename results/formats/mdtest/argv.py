"""The command line of mdtest 1.9.3 to 4.1 as data, and how many items it means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.results.evidence.stored import Scalar

# letter -> name in the words of the workload, and what follows it
FLAGS: dict[str, str] = {
    "C": "create_only",
    "T": "stat_only",
    "E": "read_only",
    "r": "remove_only",
    "U": "rename",
    "D": "dirs_only",
    "F": "files_only",
    "k": "make_node",
    "L": "leaf_only",
    "P": "print_rate_and_time",
    "R": "random_stat",
    "S": "shared_file",
    "c": "collective_creates",
    "t": "time_unique_dir_overhead",
    "u": "unique_dir",
    "v": "verbose",
    "X": "verify_read",
    "y": "sync",
    "Y": "call_sync",
    "Z": "print_time",
    "g": "global_dir_layout",
}
SIZES: dict[str, str] = {  # 4k means 4096
    "b": "branching_factor",
    "B": "no_barriers",
    "e": "read_bytes",
    "f": "first",
    "G": "buffer_offset",
    "i": "iterations",
    "I": "items_per_directory",
    "l": "last",
    "n": "items",
    "N": "stride",
    "p": "pre_delay",
    "s": "task_stride",
    "V": "verbosity",
    "w": "write_bytes",
    "W": "stonewall",
    "z": "depth",
}
TEXTS: dict[str, str] = {"a": "api", "d": "directory", "x": "stonewall_status"}
LONG_TEXTS = frozenset(
    {
        "dataPacketType",
        "run-cmd-before-phase",
        "run-cmd-after-phase",
        "saveRankPerformanceDetails",
        "savePerOpDataCSV",
    }
)
LONG_SIZES = frozenset({"random-seed", "allocateBufferOnGPU", "GPUid"})
LONG_FLAGS: dict[str, str] = {
    "verify-read": "verify_read",
    "verify-write": "verify_write",
    "print-all-procs": "print_all_procs",
    "warningAsErrors": "warning_as_errors",
    "showRankStatistics": "rank_statistics",
    "gpuDirect": "gpu_direct",
}
MODULE_FLAGS = ("odirect", "rangelocks", "destroy", "olazy", "delay-only-rank0", "showHints")
UNREADABLE = "�"  # stands for bytes that were no text
_SIZE = re.compile(r"([+-]?\d{1,18})\s*([kmgtpKMGTP]?)", re.ASCII)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MODULE = re.compile(r"[a-z]{2,12}\.[A-Za-z_.-]{2,40}", re.ASCII)


def parse_arguments(arguments: Sequence[str]) -> dict[str, Scalar]:
    """Options of mdtest's arguments (without the program); ValueError if one is not known.

    Values of options that have names of their own; flags are True, sizes int.  The long ones
    and those of modules ("--dfs.pool=p") keep their own names: {"dfs.pool": "p"}.
    """
    options: dict[str, Scalar] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("-") or len(name) < 2:
            raise ValueError(f"{word!r} is no option")
        given = value if equals else None
        if name.startswith("--"):
            _long(name[2:], given, rest, options)
        else:
            _short(name[1:], given, rest, options)
    return options


def _short(letters: str, given: str | None, rest: list[str], options: dict[str, Scalar]) -> None:
    """`-n 3`, `-n=3`, `-n3`, `-Fu`: as mdtest reads them; `-R15`, a seed, as 1.9.3 did."""
    for index, letter in enumerate(letters):
        if letter in FLAGS:
            options[FLAGS[letter]] = True
            if letter == "R" and (seed := letters[index + 1 :]).isdecimal():
                options["random-seed"] = size(seed)
                break
            continue
        if index:
            raise ValueError(f"-{letters}: {letter!r} is no flag")
        if letter not in SIZES and letter not in TEXTS:
            raise ValueError(f"-{letter} is no option of mdtest")
        attached = letters[1:]
        if attached and given is not None:
            raise ValueError(f"-{letters}={given} is not understood")
        value = attached or _value(f"-{letter}", given, rest)
        if letter in SIZES:
            options[SIZES[letter]] = size(value)
        else:
            options[TEXTS[letter]] = value
        return
    if given is not None:
        raise ValueError(f"-{letters}={given}: a flag takes no value")


def _long(name: str, given: str | None, rest: list[str], options: dict[str, Scalar]) -> None:
    flag = name in LONG_FLAGS or (_MODULE.fullmatch(name) and name.endswith(MODULE_FLAGS))
    if flag and given is not None:
        raise ValueError(f"--{name}={given}: a flag takes no value")
    if name in LONG_FLAGS:
        options[LONG_FLAGS[name]] = True
    elif name in LONG_SIZES:
        options[name] = size(_value(name, given, rest))
    elif name in LONG_TEXTS:
        options[name] = _value(name, given, rest)
    elif flag:
        options[name] = True
    elif _MODULE.fullmatch(name):
        options[name] = _value(name, given, rest)
    else:
        raise ValueError(f"--{name} is no option of mdtest")


def _value(name: str, given: str | None, rest: list[str]) -> str:
    if given is not None:
        return given
    if not rest:
        raise ValueError(f"{name} has no value")
    return rest.pop(0)


def size(text: str) -> int:
    """A number as mdtest reads it: k, m, g... are powers of 1024; ValueError otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no number")
    return int(match[1]) << _SHIFTS[match[2].lower()]


def parse_command(text: str) -> tuple[tuple[str, ...], dict[str, Scalar]]:
    """argv and options of what follows "Command line used:"; ValueError if it is damaged."""
    argv = tuple(shlex.split(text))
    if not argv:
        raise ValueError("it is empty")
    return argv, parse_arguments(argv[1:])


@dataclass(frozen=True)
class Tree:
    """The directories that mdtest makes before it begins, and the items of one task in them."""

    directories: int
    leaves: int
    items: int  # files, and as many directories, of one task

    @classmethod
    def of(cls, options: Mapping[str, Scalar]) -> Tree:
        """As mdtest 3.2 to 4.1 computes them (src/mdtest.c, "setup total number of items").

        -n is rounded down to a multiple of the directories that hold items; with -I every one
        of these holds that many.  ValueError for a tree that cannot be.
        """
        depth = max(0, int(options.get("depth", 0)))
        factor = int(options.get("branching_factor", 1))
        if depth > 64 or not (depth == 0 or 1 <= factor <= 1_000_000):
            raise ValueError(f"no tree of depth {depth} with {factor} directories in each")
        leaves = factor**depth if depth else 1
        total = depth + 1 if factor <= 1 else (factor ** (depth + 1) - 1) // (factor - 1)
        total = total if depth else 1
        holding = leaves if options.get("leaf_only") else total
        items = int(options.get("items", 0))
        if each := options.get("items_per_directory", 0):
            items = items or int(each) * holding
        else:
            items = items // holding * holding
        return cls(total, leaves, items)

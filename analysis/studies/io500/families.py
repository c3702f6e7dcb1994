"""Families of file systems, by the words with which submissions name theirs.

A product counts to the file system that it is made of: EXAScaler is Lustre, SUSE Enterprise Storage
is Ceph, Elastic Storage System is Spectrum Scale.  A name of a mount ("scratch") tells no family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NOT_TOLD = "other, or not told"
# family -> what its names have in them; the first that is met counts
FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(words, re.IGNORECASE)
    for name, words in {
        "DAOS": r"\bdaos",
        "Ceph": r"ceph|suse enterprise storage",
        "BeeGFS": r"bee ?gfs",
        "Spectrum Scale": r"gpfs|(spectrum|storage) ?scale|elastic storage|\bess\b",
        "WekaIO": r"weka",
        "IME": r"(\b|-)ime(\d|\b)|infinite memory engine",
        "GekkoFS": r"gekko",
        "VAST": r"\bvast(data)?\b|\bvast ?test\b",
        "Qumulo": r"qumulo",
        "Panasas": r"panfs|panasas",
        "OrangeFS": r"orangefs",
        "Quobyte": r"quobyte",
        "OceanStor": r"oceanstor|oceanfs",
        "CHFS": r"\bchfs",
        "Hammerspace": r"hammerspace",
        "MadFS": r"madfs",
        "SuperFS": r"superfs",
        "Expand": r"^expand$",
        "DataWarp": r"datawarp",
        "YRCloudFile": r"yrcloudfile",
        "Lustre": r"lustre|exascaler",
    }.items()
}


def family(names: Iterable[str]) -> str:
    """The family that the first telling name is of; NOT_TOLD if none tells one."""
    for name in names:
        for named, words in FAMILIES.items():
            if words.search(name):
                return named
    return NOT_TOLD

"""What Ceph's OSDs tell of the machines and the media that they run on."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.results.evidence.deployment import FILE, HDD, NVME, RAM, SSD
from fsmatrix.results.evidence.values import Json, JsonObject


def of_osds(metadata: Sequence[JsonObject], here: str, cores: int | None) -> dict[str, Json]:
    """What `osd metadata` tells of machines: memory in bytes, media, object stores.

    An OSD tells no number of cores: `cores` are known where all run on host `here`.
    """
    machines = {str(osd["hostname"]): int(str(osd["mem_total_kb"])) << 10 for osd in metadata}
    media, tables = zip(*(_media(osd) for osd in metadata), strict=True) if metadata else ((), ())
    return {
        "memory": sum(machines.values()),
        "cores": cores if machines.keys() == {here} else None,
        "media": " + ".join(sorted(set(media))) if all(media) else "",
        "metadata_media": " + ".join(sorted(set(tables))) if all(tables) else "",
        "objectstores": sorted({str(osd["osd_objectstore"]) for osd in metadata}),
    }


def _media(osd: JsonObject) -> tuple[str, str]:
    """Where an OSD keeps data, and where its tables: the names of objects, and small values."""
    data = _medium(osd, "bluestore_bdev")
    return data, _medium(osd, "bluefs_db") if osd.get("bluefs_dedicated_db") == "1" else data


def _medium(osd: JsonObject, device: str) -> str:
    """Of the device whose facts begin so; empty if the OSD does not tell."""
    if osd["osd_objectstore"] == "memstore":
        return RAM
    devices = str(osd.get(f"{device}_devices", "")).split(",")
    if osd.get(f"{device}_access_mode") == "file" or all(d.startswith("loop") for d in devices):
        return FILE
    if all(name.startswith("nvme") for name in devices):
        return NVME
    return {"hdd": HDD, "ssd": SSD}.get(str(osd.get(f"{device}_type", "")), "")

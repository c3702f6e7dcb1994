"""The site file: what the administrators of a cluster say about it, and what they forbid.

/etc/fsmatrix/site.yaml, or the file that $FSMATRIX_SITE names.  `defaults` may be overridden
by later layers; `caps`, `forbidden_paths` and `quiet_hours` may not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system.files import expand
from fsmatrix.backends.system.mounts import mounted_at
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import PositiveSize
from fsmatrix.suite.campaign.campaign import Count, Defaults, Section
from fsmatrix.suite.campaign.check import validate
from fsmatrix.suite.campaign.yamlio import CampaignError, Origin, Tree, load, refuse

SITE_FILE = Path("/etc/fsmatrix/site.yaml")
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _clock(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", text):
        raise ValueError(f"{text!r} is not a time of day; write it like 08:30 (up to 24:00)")
    return text


def _zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{text!r} is not a time zone; write it like Europe/Berlin") from error
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError(f"{text!r} is not an absolute path")
    return text


def _server(text: str) -> str:
    parts = urlsplit(text)
    plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(
            f"{text!r} is not the address of a server; write it like http://monitor:9090, without "
            "user and password"
        )
    return text.rstrip("/")


Clock = Annotated[str, AfterValidator(_clock)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class Partition(Section):
    """A partition of the scheduler."""

    nodes: Count | None = Field(default=None, description="largest number of nodes of a job")
    hours: float | None = Field(default=None, gt=0, description="longest time of a job, hours")
    description: str = Field(default="", description="what it is for")


class Mpi(Section):
    """What the site says of its MPI."""

    launcher: str | None = Field(default=None, description="launcher that `auto` means here")
    options: tuple[str, ...] = Field(default=(), description="further arguments of the launcher")
    module: str | None = Field(default=None, description="environment module that provides it")


class Fabric(Section):
    """The network between clients and storage."""

    name: str = Field(default="", description="for example 'InfiniBand HDR'")
    bandwidth: PositiveSize | None = Field(
        default=None, description="bytes per second of one client node"
    )


class Caps(Section):
    """Upper bounds for every campaign; no later layer overrides them."""

    bytes: PositiveSize | None = Field(default=None, description="bytes that a campaign may write")
    nodes: Count | None = Field(default=None, description="client nodes of a campaign")
    hours: float | None = Field(default=None, gt=0, description="estimated hours of a campaign")


class QuietHours(Section):
    """A time in which no campaign runs.  `to` at or before `from` means the next day."""

    days: tuple[Day, ...] = Field(default=DAYS, min_length=1, description="days on which it begins")
    start: Clock = Field(alias="from", description="first minute, 08:30")
    end: Clock = Field(alias="to", description="minute after the last, up to 24:00")
    timezone: Annotated[str, AfterValidator(_zone)] | None = Field(
        default=None, description="IANA name; the machine's own if absent"
    )


class Site(Section):
    """Schema of the site file."""

    defaults: Defaults = Field(default=Defaults(), description="presets of campaign settings")
    modules: tuple[str, ...] = Field(default=(), description="environment modules that jobs load")
    partitions: dict[str, Partition] = Field(default={}, description="partitions of the scheduler")
    mpi: Mpi = Field(default=Mpi(), description="the site's MPI")
    fabric: Fabric = Field(default=Fabric(), description="the network")
    mounts: dict[AbsolutePath, str] = Field(
        default={}, description="mount point -> type of file system that must be mounted there"
    )
    forbidden_paths: tuple[AbsolutePath, ...] = Field(
        default=(), description="paths at or below which nothing is read or written"
    )
    prometheus: Annotated[str, AfterValidator(_server)] | None = Field(
        default=None,
        description="address of the server that scrapes the storage nodes, http://monitor:9090, "
        "for `monitor: {sources: [prometheus]}`",
    )
    caps: Caps = Field(default=Caps(), description="bounds that no campaign overrides")
    quiet_hours: tuple[QuietHours, ...] = Field(
        default=(), description="times in which nothing runs"
    )


class User(Section):
    """Schema of the user file, ~/.config/fsmatrix/settings.yaml."""

    defaults: Defaults = Field(default=Defaults(), description="presets of campaign settings")


@dataclass(frozen=True)
class SiteFile:
    """The site file as read: the model, and the tree that knows the lines."""

    site: Site = field(default_factory=Site)
    tree: Tree = field(default_factory=Tree)

    def origin(self, *path: str | int) -> Origin:
        """Where the site file says this."""
        return self.tree.origin(path)

    def unmounted(self, path: str | Path) -> str:
        """Why `path` is not on the file system that the site promises there (empty: it is)."""
        real = Path(os.path.realpath(path))
        for point, fstype in self.site.mounts.items():
            if not real.is_relative_to(point):
                continue
            mount = mounted_at(point)
            if mount is None or mount.fstype != fstype:
                mounted = f"{mount.fstype} is" if mount else "nothing is"
                origin = self.origin("mounts", point)
                return f"{path}: {mounted} mounted at {point}, {origin} promises {fstype}"
        return ""

    def forbidden(self, path: str | Path) -> str:
        """Why `path` must not be used (empty: it may, or it is no absolute path).

        ~ and variables are replaced as where the path is used, links are followed.
        """
        if "\0" in str(path):
            return ""
        try:
            meant = expand(os.path.expanduser(str(path)))  # noqa: PTH111 (~nobody: as is)
        except BackendError:  # no path, or of variables that are not set here
            meant = Path(path)
        if not meant.is_absolute():
            return ""
        real = Path(os.path.realpath(meant))
        for index, text in enumerate(self.site.forbidden_paths):
            if real.is_relative_to(os.path.realpath(text)):
                origin = self.origin("forbidden_paths", index)
                return f"{path} is at or below {text}, which {origin} forbids"
        return ""


def site_path(environ: Mapping[str, str]) -> Path | None:
    """$FSMATRIX_SITE (empty: none), else /etc/fsmatrix/site.yaml if it is there."""
    named = environ.get("FSMATRIX_SITE")
    if named is not None:
        return Path(named) if named else None
    return SITE_FILE if SITE_FILE.exists() else None


def user_path(environ: Mapping[str, str]) -> Path | None:
    """settings.yaml in the user's configuration folder, if it is there.

    Nothing is there for a user who may not even look: HOME is then somebody else's.
    """
    home = environ.get("HOME", "")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    path = Path(base) / "fsmatrix" / "settings.yaml"
    there = base and os.path.exists(path)  # noqa: PTH110 (False also if it may not be looked at)
    return path if there else None


def load_site(path: Path | None) -> SiteFile:
    """Read and check a site file; None gives an empty one."""
    if path is None:
        return SiteFile()
    tree = load(path)
    if tree.data is None:
        return SiteFile()
    site, problems = validate(Site, tree.data, tree)
    if site is None:
        raise CampaignError(problems)
    return SiteFile(site, tree)


def load_user(path: Path | None) -> Tree:
    """Read and check a user file; None gives an empty tree."""
    tree = load(path) if path is not None else Tree()
    if tree.data is None:
        return Tree()
    if isinstance(tree.data, dict):
        for key in tree.data.keys() & (Site.model_fields.keys() - {"defaults"}):
            message = f"{key!r} belongs to the site file; a user file has only 'defaults'"
            raise refuse(tree.origin((key,)), key, message)
    _, problems = validate(User, tree.data, tree)
    if problems:
        raise CampaignError(problems)
    return tree


def quiet(site: Site, now: datetime) -> datetime | None:
    """The end of the quiet time that `now` lies in; None if campaigns may run.

    Quiet times that follow each other without a gap count as one (up to 14 of them).
    """
    moment = now if now.tzinfo else now.astimezone()
    ends: datetime | None = None
    for _ in range(14):
        end = max(filter(None, (_end(hours, moment) for hours in site.quiet_hours)), default=None)
        if end is None:
            break
        ends = moment = end
    return ends


def _end(hours: QuietHours, moment: datetime) -> datetime | None:
    local = moment.astimezone(ZoneInfo(hours.timezone) if hours.timezone else None)
    start, end = _minutes(hours.start), _minutes(hours.end)
    if end <= start:
        end += 24 * 60
    for back in (0, 1):
        midnight = (local - timedelta(days=back)).replace(hour=0, minute=0, second=0, microsecond=0)
        begins, ends = midnight + timedelta(minutes=start), midnight + timedelta(minutes=end)
        if DAYS[midnight.weekday()] in hours.days and begins <= local < ends:
            return ends
    return None


def _minutes(clock: str) -> int:
    hour, _, minute = clock.partition(":")
    return int(hour) * 60 + int(minute)


def site_presets(file: SiteFile) -> Tree:
    """The site's `defaults` as a campaign tree; `mpi` presets the launcher."""
    presets = file.tree.data.get("defaults") if isinstance(file.tree.data, dict) else None
    origins = {path[1:]: o for path, o in file.tree.origins.items() if path[:1] == ("defaults",)}
    data: dict[str, Json] = dict(presets or {})
    mpi = file.site.mpi
    if mpi.launcher is not None and "launcher" not in data:
        data["launcher"] = {"name": mpi.launcher}
        origins[("launcher",)] = origins[("launcher", "name")] = file.origin("mpi", "launcher")
    return Tree(data, origins)

"""Directories that the user names, each on a device of its own: ours are made in them."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fsmatrix.backends.base import ProvisionContext, Space
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import owned_dirs, tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local.devices.attempts import attempt
from fsmatrix.backends.local.devices.options import DevicesOptions
from fsmatrix.backends.local.directory import Directory, DirectoryOptions, space_of
from fsmatrix.backends.system.files.trusted import shared_refusal
from fsmatrix.backends.system.files.written import expand
from fsmatrix.backends.system.mounts import mount_of
from fsmatrix.results.evidence.values import JsonObject, text, texts


def refusal(options: DevicesOptions) -> str:
    """Why they cannot be used (empty: they can): one that is not there, two on one device."""
    on: dict[int, str] = {}
    for path in options.paths:
        if reason := _each(options, path).refusal():
            return reason
        device = expand(path).stat().st_dev
        if device in on:
            return (
                f"{on[device]} and {path} are on the same file system ({mount_of(path).point}): "
                "each must be on its own device; is one of them not mounted?"
            )
        on[device] = path
    return ""


def memory(options: DevicesOptions) -> str:
    """The type of file system of the first that is in memory (empty: none is)."""
    kinds = (_each(options, path).memory() for path in options.paths)
    return next((kind for kind in kinds if kind), "")


def _each(options: DevicesOptions, path: str) -> Directory:
    return Directory(DirectoryOptions(path=path, expect_fs=options.expect_fs))


def make(options: DevicesOptions, numbers: Sequence[int], context: ProvisionContext) -> JsonObject:
    """A tree of ours in each of these; details of an access."""
    trees: list[str] = []
    details: JsonObject = {"tag": context.tag, "host": socket.gethostname(), "trees": trees}
    try:
        for number in numbers:
            place = expand(options.paths[number]).resolve()
            trees.append(str(owned_dirs.make_tree(place, context.tag, context.journal)))
    except BaseException:
        release(details, context.journal)
        raise
    return details


def paths(details: JsonObject) -> tuple[str, ...]:
    """Where runs work."""
    return tuple(str(Path(folder) / owned_dirs.DATA) for folder in texts(details, "trees"))


def release(details: JsonObject, journal: Journal) -> None:
    """Remove every tree that is there; BackendError that names those that are not."""
    attempt(
        partial(owned_dirs.release_tree, Path(folder), text(details, "tag"), journal)
        for folder in texts(details, "trees")
    )


def look(details: JsonObject) -> None:
    """BackendError unless this kernel sees the very trees that the conductor made."""
    for trouble in troubles(details):
        if trouble:
            raise BackendError(trouble)


def troubles(details: JsonObject) -> list[str]:
    """For each tree why it cannot be worked in (empty: it can)."""
    return [_trouble(Path(folder), details) for folder in texts(details, "trees")]


def _trouble(folder: Path, details: JsonObject) -> str:
    if tree.read_marker(folder) != details["tag"]:
        return (
            f"{folder}, made on host {details['host']}, is not seen on {socket.gethostname()}: is "
            "its device still mounted?"
        )
    if reason := shared_refusal(folder):
        return f"{reason} (on {socket.gethostname()})"
    mount = mount_of(folder)
    return f"{mount.point} has become read-only" if mount.read_only else ""


def space(options: DevicesOptions) -> Space:
    """Of all of them, each as full as the fullest."""
    return together({path: space_of(path) for path in options.paths})


def together(spaces: Mapping[str, Space]) -> Space:
    """Of devices that take the same each; by path."""
    sizes, inodes = [own.bytes for own in spaces.values()], [own.inodes for own in spaces.values()]
    size_of = {path: own.bytes for path, own in spaces.items() if own.bytes is not None}
    fullest = min(size_of, key=size_of.__getitem__, default="")
    source = f"{len(spaces)} times {spaces[fullest].source} of {fullest}" if fullest else "unknown"
    return Space(_times(sizes), _times(inodes), source)


def _times(values: Sequence[int | None]) -> int | None:
    counted = [value for value in values if value is not None]
    return min(counted) * len(values) if counted else None

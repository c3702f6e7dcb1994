"""Images and loop devices, for real: written once, direct, taken down, never another's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.local import images
from fsmatrix.backends.system import devices, files

MIB = 1 << 20


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProvisionContext]:
    state = tmp_path / "state"
    state.mkdir()
    yield ProvisionContext("target", state, Journal(tmp_path / "journals/host.jsonl"), "tag1")
    left = undo_pending(tmp_path / "journals")
    assert not [text for text in left if text.startswith("left alone")], left


def unwritten(path: str | Path) -> list[files.Span] | None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return files.unwritten(descriptor)
    finally:
        os.close(descriptor)


def test_unwritten_parts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 10 * MIB)
    if unwritten(path) is None:
        pytest.skip("this file system does not tell its extents")
    assert unwritten(path) == [files.Span(0, 10 * MIB)]
    with path.open("r+b") as file:
        file.seek(MIB)
        file.write(b"x" * MIB)
    spans = unwritten(path)
    assert spans is not None
    assert sum(span.length for span in spans) == 9 * MIB
    assert not any(span.offset <= MIB < span.offset + span.length for span in spans)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 10 * MIB)
    spans = unwritten(path)
    assert spans is not None
    assert sum(span.length for span in spans) == 9 * MIB


def test_image_is_allocated_and_written_everywhere(context: ProvisionContext) -> None:
    said: list[str] = []
    context = replace(context, progress=said.append)
    size = 41 * MIB + 4096
    entry = images.image_for(context, size)
    path = Path(entry.facts["path"])
    facts = path.stat()
    assert facts.st_size == size
    assert facts.st_blocks * 512 >= size
    assert unwritten(path) in ([], None)
    content = path.read_bytes()
    blocks = {content[at : at + 4096] for at in range(0, size, 4096)}
    assert len(blocks) == size // 4096  # no two are equal, none is zero
    assert bytes(4096) not in blocks
    assert said
    assert path.parent == context.state.resolve()


def test_image_is_used_again_until_it_is_not_whole(context: ProvisionContext) -> None:
    first = images.image_for(context, MIB)
    assert images.image_for(context, MIB) == first
    with open(first.facts["path"], "r+b") as file:  # noqa: PTH123
        file.truncate(MIB // 2)
    second = images.image_for(context, MIB)
    assert second.facts["path"] != first.facts["path"]
    assert not Path(first.facts["path"]).exists()


def test_image_of_another_process_is_not_taken(context: ProvisionContext) -> None:
    first = images.image_for(context, MIB)
    text = context.journal.path.read_text()
    context.journal.path.write_text(text.replace(f'"pid": {os.getpid()}', '"pid": 4194303'))
    assert images.image_for(context, MIB).facts["path"] != first.facts["path"]


def test_existing_file_is_never_an_image(context: ProvisionContext, tmp_path: Path) -> None:
    mine = tmp_path / "mine.img"
    mine.write_text("keep")
    for path in (mine, tmp_path / "link.img"):
        if path != mine:
            path.symlink_to(tmp_path / "nowhere")
        with pytest.raises(BackendError, match="was not made by this campaign"):
            images.image_for(context, MIB, str(path))
    assert mine.read_text() == "keep"
    assert context.journal.pending() == []


def test_somebody_quicker_keeps_his_file(
    context: ProvisionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.img"
    real = images._fill

    def fill(*arguments: object) -> None:
        path.write_text("keep")
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(images, "_fill", fill)
    with pytest.raises(BackendError, match="cannot be made: File exists"):
        images.image_for(context, MIB, str(path))
    assert path.read_text() == "keep"
    assert context.journal.pending() == []


def test_no_room_for_an_image(context: ProvisionContext) -> None:
    with pytest.raises(BackendError, match=r"needs 1EiB .* free"):
        images.image_for(context, 1 << 60)
    assert list(context.state.iterdir()) == []


def test_image_in_a_missing_directory(context: ProvisionContext, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="does not exist"):
        images.image_for(context, MIB, str(tmp_path / "no/x.img"))


@pytest.mark.loop
def test_attach_is_direct_and_detach_frees(context: ProvisionContext) -> None:
    image = images.image_for(context, 8 * MIB)
    device, direct = images.attach(image, context.journal, "required")
    assert direct
    assert Path(f"/sys/block/{Path(device).name}/loop/dio").read_text().strip() == "1"
    behind = devices.loop_backing(device)
    assert behind is not None
    assert behind.file == image.facts["path"]
    assert behind.inode == image.facts["inode"]
    images.detach(device, context.journal)
    assert devices.loop_backing(device) != behind
    assert [entry.kind for entry in context.journal.pending()] == ["image"]


@pytest.mark.loop
def test_refused_direct_io(context: ProvisionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    image = images.image_for(context, 8 * MIB)
    monkeypatch.setattr(devices, "loop_direct_io", lambda *_: False)
    with pytest.raises(BackendError, match="refuses direct I/O"):
        images.attach(image, context.journal, "required")
    facts = image.facts
    assert devices.loops_attached_to(facts["inode"], facts["filesystem"]) == []
    assert context.journal.pending("loop") == []
    device, direct = images.attach(image, context.journal, "preferred")
    assert not direct
    images.detach(device, context.journal)


@pytest.mark.loop
def test_zeroed_ranges_become_written_again(context: ProvisionContext) -> None:
    image = images.image_for(context, 16 * MIB)
    path = image.facts["path"]
    device, _ = images.attach(image, context.journal, "required")
    for kind in ("--zero-range", "--punch-hole"):
        offset = 0 if kind == "--zero-range" else 8 * MIB
        argv = ["fallocate", kind, "--offset", str(offset), "--length", str(4 * MIB), path]
        subprocess.run(argv, check=True)
    before = sum(span.length for span in unwritten(path) or [])
    assert images.rewrite_unwritten(path, device) == before == 8 * MIB
    assert unwritten(path) == []
    content = Path(path).read_bytes()
    assert content[: 4 * MIB] == bytes(4 * MIB) == content[8 * MIB : 12 * MIB]
    assert bytes(4096) not in (content[4 * MIB : 4 * MIB + 4096], content[12 * MIB :][:4096])
    images.forbid_discard(device)
    refused = subprocess.run(["blkdiscard", "--force", device], capture_output=True, check=False)
    assert refused.returncode != 0
    assert unwritten(path) == []


@pytest.mark.loop
def test_only_our_own_loop_devices_are_detached(context: ProvisionContext, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.img"
    theirs.write_bytes(bytes(MIB))
    argv = ["losetup", "--find", "--show", str(theirs)]
    their_device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        image = images.image_for(context, 8 * MIB)
        device, _ = images.attach(image, context.journal, "required")
        done = undo_pending(tmp_path / "journals")
        assert f"detached {device} from {image.facts['path']}" in done
        assert f"removed image {image.facts['path']}" in done
        behind = devices.loop_backing(their_device)
        assert behind is not None
        assert behind.file == str(theirs)
        # a journal that names their device, but our image, does not detach it either
        named = {"image": image.facts["path"], "device": their_device}
        context.journal.begin("loop", inode=1, filesystem=1, **named)
        undo_pending(tmp_path / "journals")
        assert devices.loop_backing(their_device) == behind
    finally:
        subprocess.run(["losetup", "--detach", their_device], check=True)
    assert theirs.exists()


@pytest.mark.loop
def test_image_in_use_by_somebody_stays(context: ProvisionContext, tmp_path: Path) -> None:
    image = images.image_for(context, 8 * MIB)
    argv = ["losetup", "--find", "--show", image.facts["path"]]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        assert "still attached" in undo_pending(tmp_path / "journals")[0]
        with pytest.raises(BackendError, match="still attached"):
            images.remove_image(image, context.journal)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)

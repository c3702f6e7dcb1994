"""Importing: what is added, kept, refused."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.questions.findings import findings
from fsmatrix.results.files.campaignread import texts_of
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats.parsed import Parsed, totals
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.importing.imported import Source, case_id, records
from fsmatrix.suite.importing.importing import Import, labeller
from fsmatrix.suite.importing.recognise import find
from tests.suite.toy_import import FORMATS, do, results_in, tree


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return results_in(tmp_path / "results")


def test_runs_with_their_labels_go_through_the_analysis(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    outcome = do(out, results, pattern="results/{target}/{storage_nodes}/*.txt")
    assert (outcome.runs, outcome.kept, outcome.refused) == (5, 0, [])
    assert [Path(file).name for file, _ in outcome.not_recognised] == ["README.md"]
    dataset = open_campaign(out)
    assert set(dataset["attachment"].values.tolist()) == {"imported"}
    cells = {cell.target: cell for cell in summarise(dataset).cells}
    ceph, daos = cells["ceph-a"], cells["daos-b"]
    assert (ceph.runs, ceph.attachments, ceph.failed) == (3, 1, 0)
    assert ceph.metrics["bandwidth"].median == 2_200_000
    assert ceph.metrics["bandwidth"].kind == "one session"
    assert (daos.runs, daos.failed) == (1, 1)
    assert dataset["storage_nodes"].values.tolist() == [3, 3, 3, 2, 2]
    assert "cache" not in dataset
    for run_id in dataset["run_id"].values.tolist()[3:]:
        assert texts_of(out, run_id) == {"1.txt": (results / "daos-b/2/1.txt").read_text()}


def test_importing_twice_adds_nothing(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    do(out, results, sets=["target=x"])
    before = (out.stat().st_mtime_ns, out.read_bytes())
    again = do(out, results, sets=["target=x"])
    assert (again.runs, again.kept, len(again.already_imported)) == (0, 5, 4)
    assert before == (out.stat().st_mtime_ns, out.read_bytes())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.h5", "results"]


def test_adding_keeps_what_is_there(results: Path, tmp_path: Path) -> None:
    out, text = tmp_path / "out.h5", "TOY\nrun 1000 1.0\n"
    do(out, results / "ceph-a", sets=["target=ceph-a", "storage_nodes=3"])
    first = open_campaign(out)
    new = tree(
        tmp_path / "new", {"x.txt": text, "copy.txt": text, "x.gz": gzip.compress(text.encode())}
    )
    outcome = do(out, new, results / "daos-b", sets=["target=daos-b"])
    assert (outcome.runs, outcome.kept, len(outcome.already_imported)) == (3, 3, 2)
    both = open_campaign(out)
    assert both.attrs["runs"] == 6
    head = both.isel(run=slice(0, first.sizes["run"]))
    for name, variable in first.data_vars.items():
        if variable.dims == ("run",):
            assert head[name].equals(variable), name
    assert both["target"].values.tolist() == ["ceph-a"] * 3 + ["daos-b"] * 3
    assert both["storage_nodes"].values[:3].tolist() == [3, 3, 3]
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert f"{case_id(digest, 0)}-r0001-a1" in both["run_id"].values.tolist()
    for run_id in both["run_id"].values.tolist():
        assert next(iter(texts_of(out, run_id).values())).startswith("TOY")


def test_a_named_file_must_be_importable(results: Path, tmp_path: Path) -> None:
    tree(results, {"bad.txt": "TOY\nnothing\n", "image": b"\0\0"})
    out = tmp_path / "out.h5"
    good = results / "ceph-a/3/1.txt"
    with pytest.raises(CampaignError) as caught:
        do(out, good, results / "README.md", results / "bad.txt", results / "image")
    told = str(caught.value).splitlines()
    assert [line.rpartition("results/")[2].split(":")[0] for line in told] == [
        "README.md",
        "bad.txt",
        "image",
    ]
    assert "line 1: no run in it" in told[1]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_in_a_directory_the_others_are_imported(results: Path, tmp_path: Path) -> None:
    tree(results, {"bad.txt": "TOY\nnothing\n", "cut.gz": gzip.compress(b"TOY" * 999)[:-9]})
    outcome = do(tmp_path / "out.h5", results)
    assert outcome.runs == 5
    assert [(Path(file).name, why[:12]) for file, why in outcome.refused] == [
        ("bad.txt", "line 1: no r"),
        ("cut.gz", "damaged gzip"),
    ]
    left_out = json.loads(open_campaign(tmp_path / "out.h5").attrs["left_out"])
    assert [Path(item["file"]).name for item in left_out] == ["bad.txt", "cut.gz"]
    assert open_campaign(tmp_path / "out.h5")["target"].values.tolist() == ["unknown"] * 5


def test_nothing_to_import_is_an_error(results: Path, tmp_path: Path) -> None:
    empty = tree(tmp_path / "empty", {"a.txt": "hello", "bad.txt": "TOY"})
    with pytest.raises(CampaignError, match=r"nothing to import.*bad\.txt.*a\.txt"):
        do(tmp_path / "out.h5", empty)
    assert not (tmp_path / "out.h5").exists()


def test_a_pattern_must_match_every_file_that_is_imported(results: Path, tmp_path: Path) -> None:
    tree(results, {"stray.txt": "TOY\nrun 1 1.0\n"})
    with pytest.raises(CampaignError) as caught:
        do(tmp_path / "out.h5", results, pattern="{target}/{storage_nodes}/*.txt")
    assert "stray.txt" in str(caught.value)
    assert "{target}/{storage_nodes}/*.txt" in str(caught.value)
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("pattern", ["{target}/*.txt", "*/{target}.txt", "r*/{target}.txt"])
def test_the_directory_that_was_named_is_no_level(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path / "results", {"stray.txt": "TOY\nrun 1 1.0\n"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CampaignError, match="does not match"):
        do(Path("out.h5"), Path("results"), pattern=pattern)
    outcome = do(Path("out.h5"), Path("results"), pattern="results/{target}.txt")
    assert outcome.taken[0].target == "stray"
    outcome = do(Path("named.h5"), Path("results/stray.txt"), pattern=pattern)
    assert outcome.runs == 1  # of a file that was named, the path as it was given


def test_a_label_that_contradicts_the_output(results: Path, tmp_path: Path) -> None:
    outcome = do(tmp_path / "out.h5", results, sets=["nodes=2"])
    assert len(outcome.refused) == 3
    assert "nodes = 3" in outcome.refused[0][1]
    with pytest.raises(CampaignError, match="nodes = 3"):
        do(tmp_path / "other.h5", results / "ceph-a/3/1.txt", sets=["nodes=2"])


def test_one_text_under_two_labels(results: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "out.h5", results / "ceph-a/3/1.txt"
    do(out, file, sets=["target=a"])
    with pytest.raises(CampaignError, match=r"same text.*target=a, not as target=b"):
        do(out, file, sets=["target=b"])
    tree(results, {"daos-b/2/copy.txt": file.read_text()})
    outcome = do(tmp_path / "new.h5", results, pattern="{target}/*/*.txt")
    assert [Path(name).name for name, _ in outcome.refused] == ["copy.txt"]
    assert outcome.runs == 5


def test_output_of_two_programs_in_one_file(tmp_path: Path) -> None:
    root = tree(tmp_path / "r", {"slurm.out": "TOY\nrun 1000 1.0\nOTHER\n"})
    outcome = do(tmp_path / "out.h5", root)
    assert outcome.runs == 1
    assert "output of other too" in outcome.refused[0][1]


def test_a_directory_that_is_one_run(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "r",
        {
            "a/summary": "SUITE\nrun 1000 1.0\n",
            "a/part.txt": "TOY\nrun 5 1.0\n",
            "a/core": b"\0",
            "b/summary": "no such thing",
            "b/x.txt": "TOY\nrun 7 1.0\n",
        },
    )
    outcome = do(tmp_path / "out.h5", root, pattern="{target}/*")
    assert [(one.format, one.target) for one in outcome.taken] == [
        ("suite directory", "a"),
        ("toy text", "b"),
    ]
    assert [Path(name).name for name, _ in outcome.not_recognised] == ["core", "summary"]
    texts = texts_of(tmp_path / "out.h5", outcome.taken[0].run_ids[0])
    assert sorted(texts) == ["part.txt", "summary"]
    tree(root, {"a/notes": "added later"})
    assert do(tmp_path / "out.h5", root, pattern="{target}/*").runs == 0


def test_only_files_of_an_import_are_added_to(results: Path, tmp_path: Path) -> None:
    from fsmatrix.results.files.store import Store

    store = Store.create(tmp_path / "store")
    collected, text = store.merge(), tree(tmp_path, {"notes": "mine"}) / "notes"
    for out, told in ((collected, "not made by an import"), (text, "not a campaign file")):
        before = out.read_bytes()
        with pytest.raises(ResultError, match=told):
            do(out, results)
        assert out.read_bytes() == before


def test_a_file_that_changes_meanwhile_is_not_overwritten(results: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out.h5", tmp_path / "other.h5"
    do(out, results / "ceph-a")
    do(other, results / "daos-b")
    found = find([results], FORMATS.summaries)
    with pytest.raises(ResultError, match="somebody else"):
        Import(out, labeller((), None), FORMATS).run(found, progress=lambda done: swap(other, out))
    assert open_campaign(out).attrs["runs"] == 2


def swap(source: Path, target: Path) -> None:
    """Another import replaces the file."""
    if source.exists():
        source.replace(target)


def test_a_dry_run_writes_nothing(results: Path, tmp_path: Path) -> None:
    assert do(tmp_path / "out.h5", results, dry=True).runs == 5
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    do(tmp_path / "out.h5", results / "ceph-a")
    assert do(tmp_path / "out.h5", results, dry=True).runs == 2


def test_the_output_among_the_inputs(results: Path) -> None:
    do(results / "out.h5", results)
    assert [Path(f).name for f, _ in do(results / "out.h5", results).not_recognised] == [
        "README.md"
    ]


def test_one_file_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts go to the file as they come."""
    import tracemalloc

    size, count = 1 << 20, 40
    for index in range(count):
        tree(tmp_path / "r", {f"{index}.txt": f"TOY\nrun {index + 1} 1.0\n" + "x" * size})
    tracemalloc.start()
    assert do(tmp_path / "out.h5", tmp_path / "r").runs == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < count * size / 2


# -- other people's storage ------------------------------------------------------------------
PUBLIC = Path(__file__).parents[2] / "data" / "public"


def outputs(folder: Path, *directories: str) -> Path:
    """The same IOR run in several directories."""
    text = (PUBLIC / "ior-stonewall-out.txt").read_text()
    folder.mkdir()
    for number, directory in enumerate(directories):
        own = text.replace("/mnt/ior-easy", f"{directory}/ior-easy")
        (folder / f"{number}.txt").write_text(own.replace("Began  ", f"Began {number}"))
    return folder


def test_a_trace_is_told_from_what_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "calls").write_text(
        '7 12:00:00.000001 openat(AT_FDCWD, "/a", O_RDONLY) = 3 <0.000010>\n'
        "7 12:00:00.000021 close(3) = 0 <0.000010>\n"
    )
    (tmp_path / "letter").write_text("Dear Sir,\n")
    bad = Import(tmp_path / "out.h5", labeller((), None))
    with pytest.raises(CampaignError):
        bad.run(find([tmp_path], frozenset()))
    assert {Path(file).name: why for file, why in bad.outcome.not_recognised} == {
        "calls": "a trace of the format strace: `fsmatrix trace import` reads it",
        "letter": "not the output of a program that is known here",
    }


def test_outputs_of_different_storage_without_a_target_are_told(tmp_path: Path) -> None:
    def mixed(name: str, *directories: str, sets: tuple[str, ...] = ()) -> str:
        files = find([outputs(tmp_path / name, *directories)], frozenset())
        return Import(tmp_path / f"{name}.h5", labeller(sets, None)).run(files).mixed

    asked = (
        "2 directories and no target: --map gives each run its own, or --set target=NAME "
        "all the same"
    )
    assert mixed("two", "/mnt/a", "/mnt/b") == asked
    assert mixed("named", "/mnt/a", "/mnt/b", sets=("target=x",)) == ""
    assert mixed("same", "/mnt/a", "/mnt/a") == ""
    assert mixed("one", "/mnt/a") == ""
    later = find([outputs(tmp_path / "later", "/mnt/c")], frozenset())
    added = Import(tmp_path / "one.h5", labeller((), None)).run(later)
    assert (added.kept, added.mixed) == (1, asked)


LINES = "\n".join((PUBLIC.parent / "elbencho" / "file.csv").read_text().split("\n")[:3]) + "\n"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ((PUBLIC / "mdtest-plain.txt").read_text(), "/home/u/mdtest"),
        (LINES.replace("d/f", "/mnt/a/f"), "/mnt/a/f"),
        (LINES.replace("d/f", "/dev/a"), "/dev/a"),
    ],
)
def test_the_place_is_that_of_the_head_or_of_the_command(
    tmp_path: Path, text: str, own: str
) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text(text.replace(own, f"{own[:5]}{number}{own[5:]}"))
    other = Import(tmp_path / "o.h5", labeller((), None)).run(find([tmp_path], frozenset()))
    assert other.mixed.startswith("2 directories and no target")


def test_runs_of_equal_cases_are_counted_apart(tmp_path: Path) -> None:
    folder = outputs(tmp_path / "in", "/mnt/a", "/mnt/a", "/mnt/a")
    (folder / "worlds.txt").write_text((PUBLIC / "ior-worlds-sequence.txt").read_text())
    Import(tmp_path / "o.h5", labeller((), None)).run(find([folder], frozenset()))
    dataset = open_campaign(tmp_path / "o.h5")
    assert findings(dataset).runs == 7
    assert dataset["repetition"].values.tolist() == [1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4]
    assert summarise(dataset).invalid_runs == 4


def test_a_client_of_fio_on_several_nodes_without_times_says_so() -> None:
    run = Parsed(engine="fio", nodes=2, phases=(totals("read", 1.0, 10, 1),))
    source = Source("x", "0" * 64, "fio-json", "", "", {})
    (record,) = records([run], source, {})
    assert [f.audit for f in record.findings if "unaligned" in f.audit] == ["nodes-unaligned"]
    (alone,) = records([replace(run, nodes=1)], source, {})
    assert not [f for f in alone.findings if "unaligned" in f.audit]

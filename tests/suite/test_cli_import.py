"""`fsmatrix import`: labels, finding and reading files, what is refused, what is added."""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.analysis.load import open_campaign
from fsmatrix.analysis.summary import summarise
from fsmatrix.results.campaignread import texts_of
from fsmatrix.results.formats.base import Format, Parsed, ParseError, totals
from fsmatrix.results.formats.registry import DirectoryFormat, Known
from fsmatrix.results.imported import run_ids
from fsmatrix.results.schema import ResultError
from fsmatrix.suite import files
from fsmatrix.suite.cli import main as cli
from fsmatrix.suite.files import BinaryError, UnreadableError, find, read
from fsmatrix.suite.importing import Import, Outcome
from fsmatrix.suite.labels import compile_pattern, labeller
from fsmatrix.suite.problems import CampaignError
from fsmatrix.suite.recognise import Formats

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "import"
PAGE = ROOT / "docs" / "import.md"


# -- labels --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("r/{target}/{n}/*.json", "r/ceph-a/3/x.json", {"target": "ceph-a", "n": 3}),
        ("r/{target}/{n}/*.json", "r/ceph-a/3/x.txt", None),
        ("r/{target}/*.json", "r/a/b/x.json", None),
        ("{target}.txt", "2024.txt", {"target": "2024"}),
        ("{share}.txt", "0.25.txt", {"share": 0.25}),
        ("{n}.txt", "-007.txt", {"n": -7}),
        ("{size}.txt", "4k.txt", {"size": "4k"}),
        ("{size}.txt", "1e3.txt", {"size": "1e3"}),
        ("{id}.txt", "1234567890123456789.txt", {"id": "1234567890123456789"}),
        ("{a}-{b}.txt", "x-1.txt", {"a": "x", "b": 1}),
        ("{a}/{a}.txt", "x/x.txt", {"a": "x"}),
        ("{a}/{a}.txt", "x/y.txt", None),
        ("**/{target}/*.txt", "x.txt", None),
        ("**/{target}/*.txt", "a/x.txt", {"target": "a"}),
        ("**/{target}/*.txt", "p/q/a/x.txt", {"target": "a"}),
        ("{target}/**", "a/b/c.txt", {"target": "a"}),
        ("{target}/run[0-9]?.txt", "a/run12.txt", {"target": "a"}),
        ("{target}/run[!0-9].txt", "a/run1.txt", None),
        ("{target}+(x).txt", "a+(x).txt", {"target": "a"}),
        ("/data/{target}/*.txt", "/data/a/x.txt", {"target": "a"}),
    ],
)
def test_patterns(pattern: str, path: str, expected: dict[str, Any] | None) -> None:
    assert compile_pattern(pattern).levels([path]) == expected


@pytest.mark.parametrize(
    ("pattern", "path"), [("{a}-{b}.txt", "x-y-1.txt"), ("{a}*.txt", "xy.txt")]
)
def test_patterns_that_can_be_read_in_two_ways(pattern: str, path: str) -> None:
    with pytest.raises(ValueError, match="two ways"):
        compile_pattern(pattern).levels([path])


@given(st.text("ab*?[]!^-{", max_size=8), st.text("ab[]!^-{", max_size=6))
def test_wildcards_mean_what_fnmatch_means(pattern: str, name: str) -> None:
    if pattern == "**":
        return  # any number of components
    expected = re.match(fnmatch.translate(pattern), name) is not None
    compiled = compile_pattern(pattern)
    assert (compiled.longest.fullmatch(name) is not None) == expected
    assert (compiled.shortest.fullmatch(name) is not None) == expected


@pytest.mark.parametrize(
    ("sets", "pattern", "told"),
    [
        (["target"], None, ["name=value"]),
        (["target="], None, ["name=value"]),
        (["phase=write"], None, ["phase", "target, workload", "storage_nodes"]),
        (["run_id=1"], None, ["run_id"]),
        (["engine=ior"], None, ["engine"]),
        (["a b=1"], None, ["a b", "letters"]),
        (["n=1", "n=2"], None, ["twice"]),
        (["target=a"], "{target}/*", ["--set too"]),
        ([], "results/*.json", ["names no factor"]),
        ([], "{run_id}/*.json", ["run_id"]),
        ([], "{1}/*.json", ["{1}"]),
        ([], "{}/*.json", ["{}"]),
    ],
)
def test_labels_that_are_refused(sets: list[str], pattern: str | None, told: list[str]) -> None:
    with pytest.raises(CampaignError) as caught:
        labeller(sets, pattern)
    assert all(word in str(caught.value) for word in told), str(caught.value)


# -- files -----------------------------------------------------------------------------------
def tree(root: Path, texts: Mapping[str, str | bytes]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def test_directories_are_walked_in_order(tmp_path: Path) -> None:
    root = tree(tmp_path / "r", {"b/2": "", "b/10": "", "a": "", ".hidden": "", ".git/x": ""})
    (root / "link").symlink_to(root / "a")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "fifo")
    found = find([root, root / "b" / "2"], frozenset())
    assert [one.path.relative_to(root).as_posix() for one in found] == ["a", "b/10", "b/2"]
    assert [one.recorded for one in found] == ["r/a", "r/b/10", "r/b/2"]
    assert found[1].names == ((root / "b" / "10").as_posix(), "r/b/10")
    assert found[1].inside == "b/10"
    (named,) = find([root / "link"], frozenset())
    assert (named.named, named.recorded) == (True, "link")
    with pytest.raises(CampaignError, match="none: no such file"):
        find([root, tmp_path / "none"], frozenset())


def test_compressed_files_and_what_is_not_utf8(tmp_path: Path) -> None:
    data = "\ufeffspeed é\r\n".encode() + b"\xff\n"
    tree(tmp_path, {"a": data, "b.bin": gzip.compress(data)})
    assert read(tmp_path / "a") == read(tmp_path / "b.bin")
    assert read(tmp_path / "a").text == "speed é\r\n\ufffd\n"
    assert read(tmp_path / "a").sha256 == hashlib.sha256(data).hexdigest()


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LIMIT", 5000)
    packed = gzip.compress(os.urandom(2000).hex().encode())
    tree(tmp_path, {
        "binary": b"\x89HDF\r\n\0", "tar.gz": gzip.compress(b"name" + b"\0" * 600),
        "long": "x" * 5001, "bomb.gz": gzip.compress(b"x" * 10_000_000),
        "cut.gz": packed[:-300], "broken.gz": packed[:100] + b"zzzz" + packed[104:],
        "right": "x" * 5000,
    })  # fmt: skip
    os.mkfifo(tmp_path / "fifo")
    for name, error, told in (
        ("binary", BinaryError, "not text"), ("tar.gz", BinaryError, "not text"),
        ("long", UnreadableError, "longer"), ("bomb.gz", UnreadableError, "longer"),
        ("cut.gz", UnreadableError, "damaged gzip"), ("broken.gz", UnreadableError, "damaged gzip"),
        ("fifo", UnreadableError, "regular"), ("none", UnreadableError, "No such file"),
    ):  # fmt: skip
        with pytest.raises(error, match=told):
            read(tmp_path / name)
    assert len(read(tmp_path / "right").text) == 5000


# -- import ----------------------------------------------------------------------------------
def parse(text: str, source: str) -> list[Parsed]:
    """The made-up program `toy`: one run per line `run BYTES SECONDS [nodes N] [failed WHY]`."""
    runs = []
    for line in text.splitlines():
        match = re.match(r"run (\d+) (\S+)(?: nodes (\d+))?(?: failed (.*))?", line)
        if match:
            runs.append(
                Parsed(
                    engine="toy", version="1.0", options={"block": 4096},
                    phases=(totals("write", float(match[2]), int(match[1]), 1000),),
                    nodes=int(match[3]) if match[3] else None, failure=match[4] or "",
                )
            )  # fmt: skip
    if not runs:
        raise ParseError(source, 1, "no run in it")
    return runs


def parse_directory(texts: Mapping[str, str], source: str) -> Parsed:
    (parsed,) = parse(texts["summary"], source)
    return parsed


TOY = Format("toy text", lambda text: text.startswith("TOY"), parse)
SUITE = Format("suite text", lambda text: text.startswith("SUITE"), parse)
OTHER = Format("other text", lambda text: "OTHER" in text, parse)
FORMATS = Formats(
    (Known("suite", SUITE), Known("toy", TOY), Known("other", OTHER)),
    (DirectoryFormat("suite directory", ("summary",), SUITE, parse_directory),),
)


def do(
    out: Path, *paths: Path, sets: Sequence[str] = (), pattern: str | None = None, dry: bool = False
) -> Outcome:
    found = find(list(paths), FORMATS.summaries, out)
    return Import(out, labeller(sets, pattern), FORMATS).run(found, dry)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tree(tmp_path / "results", {
        "ceph-a/3/1.txt": "TOY\nrun 4000000 2.0 nodes 3\n",
        "ceph-a/3/2.txt": "TOY\nrun 4400000 2.0 nodes 3\n",
        "ceph-a/3/3.txt": "TOY\nrun 4800000 2.0 nodes 3\n",
        "daos-b/2/1.txt": "TOY\nrun 8000000 1.0\nrun 9000000 1.0 failed disk full\n",
        "README.md": "what this is",
    })  # fmt: skip


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
    assert (again.runs, again.kept, len(again.known)) == (0, 5, 4)
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
    assert (outcome.runs, outcome.kept, len(outcome.known)) == (3, 3, 2)
    both = open_campaign(out)
    assert both.attrs["runs"] == 6
    head = both.isel(run=slice(0, first.sizes["run"]))
    for name, variable in first.data_vars.items():
        if variable.dims == ("run",):
            assert head[name].equals(variable), name
    assert both["target"].values.tolist() == ["ceph-a"] * 3 + ["daos-b"] * 3
    assert both["storage_nodes"].values[:3].tolist() == [3, 3, 3]
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert set(run_ids(digest, 1)) <= set(both["run_id"].values.tolist())
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
        "README.md", "bad.txt", "image",
    ]  # fmt: skip
    assert "line 1: no run in it" in told[1]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_in_a_directory_the_others_are_imported(results: Path, tmp_path: Path) -> None:
    tree(results, {"bad.txt": "TOY\nnothing\n", "cut.gz": gzip.compress(b"TOY" * 999)[:-9]})
    outcome = do(tmp_path / "out.h5", results)
    assert outcome.runs == 5
    assert [(Path(file).name, why[:12]) for file, why in outcome.refused] == [
        ("bad.txt", "line 1: no r"), ("cut.gz", "damaged gzip"),
    ]  # fmt: skip
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
    root = tree(tmp_path / "r", {
        "a/summary": "SUITE\nrun 1000 1.0\n", "a/part.txt": "TOY\nrun 5 1.0\n", "a/core": b"\0",
        "b/summary": "no such thing", "b/x.txt": "TOY\nrun 7 1.0\n",
    })  # fmt: skip
    outcome = do(tmp_path / "out.h5", root, pattern="{target}/*")
    assert [(one.format, one.target) for one in outcome.taken] == [
        ("suite directory", "a"), ("toy text", "b"),
    ]  # fmt: skip
    assert [Path(name).name for name, _ in outcome.not_recognised] == ["core", "summary"]
    texts = texts_of(tmp_path / "out.h5", outcome.taken[0].run_ids[0])
    assert sorted(texts) == ["part.txt", "summary"]
    tree(root, {"a/notes": "added later"})
    assert do(tmp_path / "out.h5", root, pattern="{target}/*").runs == 0


def test_only_files_of_an_import_are_added_to(results: Path, tmp_path: Path) -> None:
    from fsmatrix.results.store import Store

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


# -- the command -------------------------------------------------------------------------------
def call(monkeypatch: pytest.MonkeyPatch, *words: object, columns: int = 200) -> int:
    monkeypatch.setattr(sys, "argv", ["fsmatrix", *map(str, words)])
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Formats, "all", classmethod(lambda cls: FORMATS))


@pytest.mark.usefixtures("toy")
def test_the_command_says_what_became_of_everything(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out.h5"
    assert call(monkeypatch, "import", results, "-o", out, "--set", "target=x") == 0
    printed = capsys.readouterr().out
    assert "not recognised: " in printed
    assert "failed run: disk full" in printed
    assert "5 runs added to" in printed
    tree(results, {"bad.txt": "TOY"})
    assert call(monkeypatch, "import", results, "-o", out, "--set", "target=x", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["runs_added"], told["runs_kept"], told["written"]) == (0, 5, False)
    assert len(told["already_there"]) == 4
    assert [Path(one["path"]).name for one in told["left_out"]] == ["bad.txt"]
    assert call(monkeypatch, "import", results / "bad.txt", "-o", out) == 2
    assert "bad.txt" in capsys.readouterr().err
    assert call(monkeypatch, "show", out) == 0
    assert "failed" in capsys.readouterr().out
    assert call(monkeypatch, "report", out, "-o", tmp_path / "r.html") == 0
    assert "imported results" in (tmp_path / "r.html").read_text()


def test_no_number_is_left_out_of_a_table_that_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "out.h5"
    for one in range(6):  # six factors vary: a column each
        labels = [p for i in range(6) for p in ("--set", f"factor_{i}=level-{int(i == one)}")]
        text = (DATA / "ior-posix-shared.txt").read_text(encoding="utf-8") + f"\n{one}\n"
        (tmp_path / f"{one}.txt").write_text(text, encoding="utf-8")
        assert call(monkeypatch, "import", tmp_path / f"{one}.txt", "-o", out, *labels) == 0
    capsys.readouterr()
    assert call(monkeypatch, "show", out, columns=40) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("read"))
    assert re.search(r"\d.* \[[\d.]+–[\d.]+\]$", row), printed


# -- the documents, with the real parsers ----------------------------------------------------
def examples() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines() if line]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real outputs in the folders that docs/import.md names."""
    root = tmp_path_factory.mktemp("docs")
    ior, mdtest = ((DATA / n).read_text() for n in ("ior-posix-shared.txt", "mdtest-4.0.0.txt"))
    for target, nodes in (("ceph-a", 2), ("ceph-a", 3), ("daos-b", 2)):
        note = f"on {target} with {nodes} storage nodes\n"
        tree(root / "results" / target / str(nodes), {
            "ior.txt": note + ior, "mdtest.txt.gz": gzip.compress((note + mdtest).encode()),
            "README.md": "how it was measured",
        })  # fmt: skip
    tree(root, {"ior.json": (DATA / "ior-posix-fpp.json").read_text(), "mdtest.txt": mdtest})
    return root


def test_there_are_examples() -> None:
    assert len(examples()) >= 5


@pytest.fixture(scope="module")
def ran(place: Path) -> dict[str, tuple[int, str]]:
    """Status and output of each example, run one after the other."""
    results = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for line in examples():
            program, *words = shlex.split(line)
            assert program == "fsmatrix"
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                results[line] = (call(patch, *words), printed.getvalue())
    return results


@pytest.mark.parametrize("line", examples())
def test_examples_in_the_documents_run(line: str, ran: dict[str, tuple[int, str]]) -> None:
    status, printed = ran[line]
    assert status == 0, printed
    assert printed


@pytest.mark.usefixtures("ran")
def test_the_documents_python_runs(place: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        result = subprocess.run(
            [sys.executable, "-P", "-c", block], cwd=place, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "IOR" in result.stdout


@pytest.mark.usefixtures("ran")
def test_real_outputs_keep_their_numbers(place: Path) -> None:
    with xr.open_dataset(place / "old.h5", engine="h5netcdf") as dataset:
        assert {"ceph-a", "daos-b"} <= set(dataset["target"].values.tolist())
        assert {"ior", "mdtest"} <= set(dataset["engine"].values.tolist())
        assert dataset["storage_nodes"].dtype.kind in "if"


def test_a_real_directory_of_io500_is_one_run(tmp_path: Path) -> None:
    formats, root = Formats.all(), DATA.parent / "io500"
    found = find([root], formats.summaries)
    outcome = Import(tmp_path / "out.h5", labeller((), None), formats).run(found)
    assert [(one.format, len(one.run_ids)) for one in outcome.taken] == [("io500 directory", 1)]
    texts = texts_of(tmp_path / "out.h5", outcome.taken[0].run_ids[0])
    assert {"result_summary.txt", "ior-easy-write.txt", "config.ini"} <= set(texts)

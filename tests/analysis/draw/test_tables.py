"""Tables as files: every number is there, everything is escaped, units stand in headings."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fsmatrix.analysis.draw import pictures, tables
from fsmatrix.analysis.questions.bars import bars
from tests.analysis import study_data as studies


class Made:
    """A result with a table and nothing else."""

    def __init__(self, frame: pd.DataFrame, says: str = "said") -> None:
        self.frame, self.says = frame, [says]

    def table(self) -> pd.DataFrame:
        return self.frame

    def figure(self) -> Any:
        raise AssertionError("a table draws nothing")

    def to_dict(self) -> dict[str, Any]:
        return {}


def nasty() -> Made:
    return Made(
        pd.DataFrame(
            {
                "target": ["a|b", "c_d & 50 % \\x"],
                "chunk": [4096, 1 << 20],
                "median, MiB/s": [1 / 3, float("nan")],
                "p": [0.00049, 1.0],
                "decides": [True, False],
                "absent": ["", ""],
            }
        ),
        "line one\nline two",
    )


def test_csv_keeps_every_digit_and_says_bytes() -> None:
    rows = list(csv.DictReader(tables.csv(nasty()).splitlines()))
    assert [row["target"] for row in rows] == ["a|b", "c_d & 50 % \\x"]
    assert float(rows[0]["median, MiB/s"]) == 1 / 3
    assert rows[1]["median, MiB/s"] == ""
    assert [row["chunk, B"] for row in rows] == ["4096", "1048576"]


def test_markdown_has_one_cell_for_each_heading_whatever_names_hold() -> None:
    lines = tables.markdown(nasty()).splitlines()
    assert lines[0] == "| target | chunk | median, MiB/s | p | decides |"  # none is empty
    assert lines[1] == "| --- | ---: | ---: | ---: | --- |"
    assert lines[2] == "| a\\|b | 4 KiB | 0.333 | 0.00049 | yes |"
    assert lines[3].startswith("| c_d & 50 % \\\\x | 1 MiB | – | 1 |")


def test_latex_is_escaped_and_uses_booktabs() -> None:
    made = tables.latex(nasty())
    assert r"c\_d \& 50 \% \textbackslash" in made
    assert all(rule in made for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert r"\begin{tabular}{lrrrl}" in made
    comments = [line for line in made.splitlines() if line.startswith("%")]
    assert comments[1] == "% line one line two"
    assert made.isascii()


def test_tables_of_a_real_result_agree_with_it(tmp_path: Path) -> None:
    found = bars(studies.table3(nodes=(2,), attachments=2), "bandwidth")
    written = tables.save([found, found], tmp_path / "bars.csv")
    assert [path.name for path in written] == ["bars.csv", "bars-2.csv"]
    read = pd.read_csv(written[0])
    pd.testing.assert_series_equal(read["median, MiB/s"], found.table()["median, MiB/s"])
    assert {"low, MiB/s", "high, MiB/s"} <= set(read.columns)
    assert tables.latex(found).count(r"\\") == len(read) + 1
    assert tables.markdown(found).count("\n") == len(read) + 2


@pytest.mark.parametrize("name", ["bars.md", "bars.png"])
def test_a_file_that_cannot_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def half(part: Path, *_: object, **__: object) -> None:
        part.write_bytes(b"half")
        raise OSError("full")

    monkeypatch.setattr(Path, "write_text", half)
    monkeypatch.setattr(Figure, "savefig", lambda _, part, **__: half(part))
    found = bars(studies.table3(nodes=(2,), attachments=2), "bandwidth")
    old = tmp_path / name
    old.write_bytes(b"old")
    with pytest.raises(OSError, match="full"):
        (tables if old.suffix == ".md" else pictures).save([found], old)
    assert old.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_same_picture_gives_the_same_file(tmp_path: Path) -> None:
    found = bars(studies.table3(nodes=(2,), attachments=2), "bandwidth")
    suffixes = (".pdf", ".svg", ".png")
    once = pictures.save_as([found], tmp_path / "a.pdf", suffixes)
    again = pictures.save_as([found], tmp_path / "b.pdf", suffixes)
    assert [path.name for path in once] == ["a.pdf", "a.svg", "a.png"]
    for one, other in zip(once, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def hostile() -> Made:
    texts = ["=1+1", "-2+3+cmd|' /C calc'!A0", "@x", "\x1b[31mred\x1b[0m", "-3.5 %", "<b>bold"]
    texts += ["＝1+1", "[x](javascript:x)"]
    return Made(pd.DataFrame({"=name\x1b]0;t\a": texts, "median": [-1.5] * len(texts)}))


def test_no_text_is_a_formula_or_an_escape_sequence(tmp_path: Path) -> None:
    for suffix in tables.FORMATS:
        (written,) = tables.save([hostile()], tmp_path / f"t{suffix}")
        assert not any(ord(sign) < 32 and sign != "\n" for sign in written.read_text())
    heading, *rows = csv.reader((tmp_path / "t.csv").read_text().splitlines())
    assert heading[0].startswith("'=name")
    assert [row[0][:2] for row in rows] == ["'=", "'-", "'@", "\ufffd[", "-3", "<b", "'＝", "[x"]
    assert {row[1] for row in rows} == {"-1.5"}
    lines = (tmp_path / "t.md").read_text().splitlines()
    assert lines[0].startswith("| \\=name")
    assert lines[1] == "| --- | ---: |"
    cells = [line.split()[1] for line in lines[2:]]
    assert cells == [
        "\\=1+1",
        "\\-2+3+cmd\\|'",
        "\\@x",
        "\ufffd\\[31mred\ufffd\\[0m",
        "-3.5",
        "\\<b>bold",
        "\\＝1+1",
        "\\[x](javascript:x)",
    ]

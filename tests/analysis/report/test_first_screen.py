"""The first screen of the report and of `show`: what it shows, in how much room, to whom."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.draw import charts
from fsmatrix.analysis.lessons.standings import Standings
from fsmatrix.analysis.report import matrix, report
from fsmatrix.analysis.report.report import MOST_PAIRS, evidence_section
from fsmatrix.analysis.stats.certainty import Certainty
from tests.analysis import campaigns, commands
from tests.analysis.comparison.test_many_targets import campaign as ranked
from tests.analysis.lessons.test_standings import campaign, many, of
from tests.analysis.report.test_analysis_report import Reader, browse

STATES = """<script>
window.addEventListener("load", function () {
  var shown = Array.from(document.querySelectorAll(".evidence")).filter(function (one) {
    return getComputedStyle(one).display !== "none";
  });
  document.body.setAttribute("data-opened", shown.map(function (one) { return one.id; }).join(" "));
  var links = Array.from(document.querySelectorAll(".matrix td a"));
  document.body.setAttribute("data-reached", links.filter(function (one) {
    one.focus();
    return document.activeElement === one && getComputedStyle(one).outlineStyle !== "none";
  }).length);
});
</script>"""
FRAME = """<!DOCTYPE html><body><iframe style="width:400px;height:900px;border:0" srcdoc="{page}">
</iframe><script>
window.addEventListener("load", function () {{
  var inside = document.querySelector("iframe").contentDocument.documentElement;
  document.body.setAttribute("data-overflow", inside.scrollWidth - inside.clientWidth);
  document.body.setAttribute("data-width", inside.clientWidth);
}});
</script></body>"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 targets, 16 cells; failed and invalid runs."""
    plan = {"campaign": "quickstart", "repetitions": 10, "block": 1}
    folder = tmp_path_factory.mktemp("first")
    return campaigns.write(folder / "campaign.h5", campaigns.realistic(blocks=10), plan)


@pytest.fixture(scope="module")
def page(file: Path) -> Path:
    """Its report."""
    return report.write_report(file, file.with_name("r.html"), place="my out")


def drawn(found: Standings) -> matrix.Picture:
    return matrix.picture(found, charts.colours(found.summary))


# -- the picture -----------------------------------------------------------------------


def test_patterns_are_rows_and_the_other_factors_columns(file: Path) -> None:
    (band,) = drawn(of(open_campaign(file))).bands
    assert [name for name, _ in band.rows] == ["rand-read", "rand-write", "seq-read", "seq-write"]
    assert band.titles == ("chunk", "processes per node")
    heads = [[(head.text, head.span) for head in line] for line in band.heads]
    assert heads == [[("4 KiB", 2), ("1 MiB", 2)], [("1", 1), ("2", 1), ("1", 1), ("2", 1)]]


def test_a_cell_says_in_words_what_its_colour_says() -> None:
    ((box, _),) = drawn(of(campaign(many({"a": 2e8, "b": 1e8}, 1)))).cells
    assert (box.mark, box.who, box.how_much) == ("●", "a", "×2.0")
    assert box.says == "a is ahead by ×2.0, proven"
    assert len({state.mark for state in Certainty}) == len(Certainty)
    assert Certainty.UNDECIDED.meaning == "the difference may be chance"


def test_a_cell_with_too_few_blocks_says_the_values() -> None:
    """Of each target the median and the range of its blocks; without a word of who is ahead."""
    values = {"a": {"p": [100e6, 104e6, 90e6]}, "b": {"p": [200e6, 210e6, 260e6]}}
    picture = drawn(of(campaign(values)))
    ((box, _),) = picture.cells
    assert (box.mark, box.who, box.how_much) == ("?", "3 blocks, MiB/s", "")
    assert box.values == ("b 200 (191–248)", "a 95.4 (85.8–99.2)")
    assert box.says == ("3 blocks, too little data: b 200 (191–248); a 95.4 (85.8–99.2); MiB/s")
    assert picture.valued
    ((once, _),) = drawn(of(campaign({name: {"p": [1e8]} for name in "ab"}))).cells
    assert once.values == ("a 95.4", "b 95.4")
    told = drawn(of(campaign(many({"a": 1e8, "b": 1e8}, 1, spread=0.2))))
    assert (told.cells[0][0].values, told.valued) == ((), False)


def test_values_of_many_targets_are_counted() -> None:
    ((box, _),) = drawn(of(campaign(many({f"t{i}": 1e8 for i in range(8)}, 1, blocks=3)))).cells
    assert len(box.values) == matrix.MOST_VALUES + 1
    assert box.values[-1] == "and 3 more"


def test_many_columns_are_wrapped_by_group() -> None:
    keys = [(str(chunk), str(count)) for chunk in range(4) for count in range(5)]
    bands = list(matrix._wrapped(keys, 12))
    assert [len(band) for band in bands] == [10, 10]
    assert [key for band in bands for key in band] == keys
    wide = list(matrix._wrapped([("", str(i)) for i in range(30)], 12))
    assert [len(band) for band in wide] == [12, 12, 6]


def test_more_cells_than_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MOST_CELLS", 3)
    picture = drawn(of(campaign(many({"a": 2e8, "b": 1e8}, 5))))
    assert (len(picture.cells), picture.more) == (3, 2)


# -- colours ---------------------------------------------------------------------------


@pytest.mark.parametrize("colour", charts.PALETTE)
def test_text_is_legible_on_every_colour(colour: str) -> None:
    for share in (*matrix.PROVEN, *matrix.LIKELY):
        mixed = matrix.mixed(colour, share)
        assert matrix.contrast(matrix.legible(mixed), mixed) >= 4.5
        shared = matrix.mixed(colour, share * matrix.SHARED)
        assert matrix.contrast(matrix.INK, shared) >= 4.5
    assert matrix.contrast(matrix.INK, matrix.GREY) >= 4.5


def test_proven_is_stronger_than_likely_and_more_than_less() -> None:
    assert sorted(matrix.LIKELY + matrix.PROVEN) == [*matrix.LIKELY, *matrix.PROVEN]
    near, far = (of(campaign(many({"a": ratio * 1e8, "b": 1e8}, 1))).cells[0] for ratio in (1.1, 9))
    assert near.state == far.state == "proven"
    assert matrix.strength(near) < matrix.strength(far)


def test_contrast_is_that_of_the_guideline() -> None:
    assert matrix.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert matrix.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


# -- evidence --------------------------------------------------------------------------


def test_the_evidence_has_every_value_and_every_pair() -> None:
    found = of(campaign(many({"a": 2e8, "b": 1e8, "c": 1e8}, 1)))
    ((box, cell),) = drawn(found).cells
    opened = evidence_section(box, cell, charts.colours(found.summary))
    assert str(opened.drawing).count("<circle") == 24
    assert len(opened.pairs) == 3
    assert re.fullmatch(
        r"a is [\d.]+ times as fast as [bc] \(95 % sure: [\d.]+ to [\d.]+ times\), ahead in all 8 "
        r"blocks: proven",
        opened.pairs[0],
    )


def test_pairs_of_many_targets_are_counted() -> None:
    found = of(campaign(many({f"t{i}": 1e8 * (i + 1) for i in range(7)}, 1)))
    ((box, cell),) = drawn(found).cells
    opened = evidence_section(box, cell, {})
    assert len(opened.pairs) == MOST_PAIRS + 1
    assert opened.pairs[-1].startswith(f"{21 - MOST_PAIRS} more pairs")


# -- the page --------------------------------------------------------------------------


def test_every_cell_is_a_link_to_its_evidence(page: Path) -> None:
    tags = Reader(page.read_text(encoding="utf-8")).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a for tag, a in tags if tag == "a" and str(a.get("href")).startswith("#cell-")]
    assert len(links) == 16
    assert {str(a["href"])[1:] for a in links} <= set(ids)
    assert all(a["aria-label"] for a in links)


def test_the_page_has_its_sentences_and_its_command(page: Path) -> None:
    text = html.unescape(re.sub("<[^>]+>", "", page.read_text(encoding="utf-8")))
    assert "xfs is ahead of all others in all 16 cells (proven)" in text
    assert "Against it: " in text
    assert "fsmatrix lessons 'my out'" in text
    assert "nowhere proven behind" in text


def test_many_targets_have_their_places_and_no_matrix(tmp_path: Path) -> None:
    out = report.write_report(ranked(30), tmp_path / "r.html")
    text = out.read_text(encoding="utf-8")
    assert 'class="matrix"' not in text
    assert "Best and worst place of each of 30 targets" in text
    assert "<td>t029</td><td>1 of 30 in rand-read</td><td>the same</td>" in text
    assert "<td>t000</td><td>30 of 30 in rand-read</td>" in text


def test_chromium_opens_one_cell_and_reaches_all_by_keyboard(page: Path, tmp_path: Path) -> None:
    seen, console = browse(page, tmp_path / "profile", "#cell-3", STATES)
    assert console == ""
    assert seen["data-opened"] == "cell-3"
    assert seen["data-reached"] == "16"


def test_chromium_needs_no_sideways_scroll_at_400_pixels(page: Path, tmp_path: Path) -> None:
    framed = page.with_name("framed.html")
    text = html.escape(page.read_text(encoding="utf-8"), quote=True)
    framed.write_text(FRAME.format(page=text), encoding="utf-8")
    seen, _ = browse(framed, tmp_path / "profile", script="")
    assert seen["data-width"] in ("400", "385")  # with a scroll bar
    assert int(seen["data-overflow"]) <= 0


# -- the terminal ----------------------------------------------------------------------


def test_show_begins_with_the_matrix_in_80_columns(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.call(monkeypatch, "show", file, "--cells") == 0
    said = capsys.readouterr().out.partition("Bandwidth in ")[0]
    assert "\x1b[" not in said
    lines = said[said.index("Who is ahead") :].splitlines()
    assert all(len(line) <= 80 for line in lines if "fsmatrix " not in line)
    row = next(line for line in lines if line.startswith("rand-write"))
    assert row.count("xfs") == 4
    assert "  fsmatrix lessons DIR" in [line.rstrip() for line in lines]
    assert [line for line in lines if line.startswith(("xfs: ", "ext4: ", "btrfs: "))]


def test_the_first_screen_of_three_blocks_has_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the page and in the terminal, there in grey and under names of usual length."""
    path = campaigns.write(tmp_path / "c.h5", campaigns.realistic(blocks=3))
    assert commands.call(monkeypatch, "show", path, "--cells") == 0
    said = capsys.readouterr().out.partition("Bandwidth in ")[0]
    lines = said[said.index("Who is ahead") :].splitlines()
    assert all(len(line) <= 80 for line in lines if "fsmatrix " not in line)
    ranges = re.findall(r"(xfs|ext4|btrfs) [\d.]+ \([\d.]+–[\d.]+\)", said)
    assert len(ranges) == 16 * 3 - 3  # of btrfs all runs of one cell failed, of two are invalid
    assert lines.count(next(line for line in lines if line.startswith("grey numbers: "))) == 1
    page = report.write_report(path, tmp_path / "r.html").read_text(encoding="utf-8")
    shown = re.findall(r"<small>(?:xfs|ext4|btrfs) ([\d.]+ \(.*?\))</small>", page)
    assert len(shown) == len(ranges)
    one_word = r"[\d.]+ \([\d.]+\u2060–\u2060[\d.]+\)"  # a line breaks before it, not in it
    assert all(re.fullmatch(one_word, text) for text in shown)
    assert f"<li>{matrix.VALUES}</li>" in page


def test_show_has_the_medians_of_many_cells_if_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.call(monkeypatch, "show", file) == 0
    short = capsys.readouterr().out
    assert "Bandwidth in " not in short
    assert short.splitlines()[-1].startswith("More: --cells ")
    assert len(short.splitlines()) <= 40
    assert commands.call(monkeypatch, "show", file, "--cells") == 0
    assert "Bandwidth in MiB/s" in capsys.readouterr().out


def test_show_of_one_metric_has_its_table_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.call(monkeypatch, "show", file, "--metric", "iops") == 0
    assert "Who is ahead" not in capsys.readouterr().out


def test_long_names_become_letters_in_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("cephfs-fuse-erasure-coded", "cephfs-kernel-replicated")
    speed = dict(zip(names, ("xfs", "btrfs"), strict=True))
    monkeypatch.setattr(campaigns, "SPEED", {n: campaigns.SPEED[s] for n, s in speed.items()})
    path = campaigns.write(tmp_path / "c.h5", campaigns.realistic(names, troubles=False))
    assert commands.call(monkeypatch, "show", path) == 0
    said = capsys.readouterr().out
    assert f"A {names[0]}, B {names[1]}" in said
    assert "● A +" in said or "○ A +" in said


def test_json_has_state_and_leaders_of_each_cell(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.call(monkeypatch, "show", file, "--json") == 0
    cells = json.loads(capsys.readouterr().out)
    assert len(cells) == 48
    assert {cell["certainty"] for cell in cells} <= set(Certainty)
    proven = [cell for cell in cells if cell["state"] == "proven"]
    assert proven
    assert all("xfs" in cell["leaders"] and cell["margin"] > 1 for cell in proven)

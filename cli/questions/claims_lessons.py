"""What a campaign says in sentences: `fsmatrix claims` and `fsmatrix lessons`.

Claims are those of a study, tested on the campaign; lessons are for somebody who must choose.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import analyse
from fsmatrix.results.registry import did_you_mean
from fsmatrix.suite.campaign.yamlio import CampaignError, Origin, refuse

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.studies.claims.claims_file import StudyFile
    from fsmatrix.analysis.studies.claims.judge import JudgedClaim

MORE = "More: --cells (every answer with its number), --json."


def claims(
    study: Annotated[
        str,
        typer.Argument(
            help="A study that comes with fsmatrix, or its YAML file.",
            autocompletion=completion.studies,
        ),
    ],
    results: Annotated[
        str,
        typer.Argument(
            help="A results directory, a campaign.h5, or published:<name>.",
            autocompletion=completion.results,
        ),
    ],
    claim: Annotated[
        str | None, typer.Option("--claim", help="Only the claim of this name, with all its cells.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw to this file (PNG, PDF, SVG).")
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Test a study's claims on a campaign: which hold, and which cannot be decided.

    The status is 0 whatever the verdicts are.

    Example: fsmatrix claims ssd-cluster out

    Example: fsmatrix claims cern published:cern-lhcb-rntuple --claim second-trial-zstd-reads
    """
    from fsmatrix.analysis.studies.claims.claims import claims as tested

    common.limit_algebra_threads()
    found_study = read_study(study)
    try:
        result = tested(_opened(results), found_study)
        result = result.of(claim) if claim is not None else result
    except ValueError as error:
        raise refuse(Origin(results), "", str(error)) from error
    if figure is not None:
        try:
            result.figure().savefig(figure)
        except ValueError as error:  # a kind of file that matplotlib does not write
            raise refuse(Origin(f"--figure {figure}"), "", str(error)) from error
    if as_json:
        common.print_json(result.to_dict())
        return
    console = progress.console()
    for line in result.says:
        progress.line(console, f"{line}\n")
    if claim is not None and result.judged[0].scope.cells:
        _print_cells(result.judged[0])


def _print_cells(claim: JudgedClaim) -> None:
    """A row for each cell of a claim."""
    from fsmatrix.analysis.studies.claims.claims_result import agreement, labels, number_of

    short = labels(claim)
    rows = [
        [
            short[cell.label],
            number_of(cell.value),
            number_of(cell.low) if cell.decides else "",
            number_of(cell.high) if cell.decides else "",
            agreement(claim.claim, cell),
        ]
        for cell in claim.scope.cells
    ]
    analyse.grid(["cell", "measured", "95 % sure from", "to", "as claimed"], rows, 1)


def read_study(name: str) -> StudyFile:
    """A study by name, or of a YAML file; CampaignError with file and line for what is wrong."""
    from fsmatrix.analysis.studies.claims import claims_file as claims_files
    from fsmatrix.analysis.studies.claims.claims_file import StudyFile
    from fsmatrix.suite.campaign import yamlio
    from fsmatrix.suite.campaign.check import validate

    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not path.is_file():
        if name not in claims_files.names():
            hint = did_you_mean(name, claims_files.names(), "there are")
            raise refuse(Origin(name), "", f"no such study, and no YAML file{hint}")
        path = claims_files.FOLDER / f"{name}.yaml"
    tree = yamlio.load(path)
    study, problems = validate(StudyFile, tree.data, tree)
    if study is not None:
        problems = [
            tree.problem(where, message + (did_you_mean(wrong, allowed) if allowed else ""))
            for where, message, wrong, allowed in claims_files.faults(study)
        ]
    if problems or study is None:
        raise CampaignError(problems)
    return study


def _opened(results: str) -> xr.Dataset:
    from fsmatrix.analysis.data.load import open_campaign
    from fsmatrix.analysis.data.reading import PUBLISHED

    if results.startswith(PUBLISHED):
        return open_campaign(results)
    return open_campaign(common.campaign_file(Path(results)))


def lessons(
    files: analyse.Files,
    latency: Annotated[
        str | None,
        typer.Option(
            "--latency", help="Latency that chunks must keep: 'p99 < 10ms', 'mean < 1ms'."
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option("--bandwidth", help="Storage nodes must reach: 500MB/s, 4Gb/s (bits)."),
    ] = None,
    tolerance: analyse.Tolerance = "5%",
    where: analyse.Wheres = None,
    cells: analyse.Cells = False,
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Which target suits which pattern, best chunk sizes, and where growth ends.

    With --bandwidth also how many storage nodes it takes.  Each answer has its number, interval
    and attachments, says how sure it is, and what the data cannot tell.

    Example: fsmatrix lessons out --latency 'p99 < 10ms' --bandwidth 500MB/s
    """
    from fsmatrix.analysis.lessons.lessons import lessons as analysis
    from fsmatrix.analysis.lessons.lessons_words import bound_of, rate_of
    from fsmatrix.results.units import UnitError

    analyse.picture(out)
    only, share = analyse.levels(where), analyse.share("--tolerance", tolerance)
    try:
        bound = bound_of(latency) if latency is not None else None
    except UnitError as error:
        raise refuse(Origin(f"--latency {latency}"), "", str(error)) from error
    try:
        rate = rate_of(bandwidth) if bandwidth is not None else None
    except UnitError as error:
        raise refuse(Origin(f"--bandwidth {bandwidth}"), "", str(error)) from error
    with analyse.bad_input(files):
        result = analysis(
            analyse.opened(files), latency_bound=bound, bandwidth=rate, tolerance=share, where=only
        )
    if out is not None and result.drawable:
        raise refuse(Origin(f"--out {out}"), "", result.drawable)
    if as_json or cells:
        analyse.deliver(result, out, as_json)
        return
    analyse.print_lines([*result.brief, MORE])
    if out:
        analyse.drawn([result], out)

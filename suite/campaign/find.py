"""Finding a campaign: a file, or the name of a ready one in jobs/."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fsmatrix.results.files import safefile
from fsmatrix.results.files.errors import ResultError
from fsmatrix.suite.campaign.problems import Origin, did_you_mean, refuse
from fsmatrix.suite.campaign.settings import Source

MAX_BYTES = 16 << 20


def ready() -> dict[str, str]:
    """Names and texts of the ready campaigns."""
    folder = files("fsmatrix.jobs")
    return {
        item.name.removesuffix(".yaml"): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".yaml")
    }


def find(source: str | Path) -> Source:
    """The text of a campaign; CampaignError if there is none of that name."""
    path = Path(source)
    named = isinstance(source, str) and "/" not in source and not source.endswith((".yaml", ".yml"))
    if named and not path.is_file():
        jobs = ready()
        if str(source) in jobs:
            return Source(jobs[str(source)], f"{source}.yaml")
        message = f"neither a file nor a ready campaign{did_you_mean(str(source), jobs)}"
        raise refuse(Origin(str(source)), "", message)
    try:
        return Source(safefile.read_text(path, MAX_BYTES, follow=True), str(path))
    except ResultError as error:
        raise refuse(Origin(str(path)), "", error.reason) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(Origin(str(path)), "", f"cannot be read: {reason}") from error

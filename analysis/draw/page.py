"""A page: a template with everything escaped, written aside and renamed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2

from fsmatrix.results.files.safefile import replacing

TEMPLATES = Path(__file__).parent / "templates"


def rendered(template: str, **values: Any) -> str:
    """The template with these values; a value that is missing raises."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    """It keeps the templates that it compiled, which takes longer than a page."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write(text: str, out: Path) -> Path:
    """Write a page to `out`.  OSError as the system gives it."""
    with replacing(out) as part:
        part.write_text(text, encoding="utf-8", errors="replace")
    return out

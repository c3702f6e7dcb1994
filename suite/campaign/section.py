"""What all parts of the schemas share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=48)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class Section(BaseModel):
    """Base of all parts of the schema: unknown keys are refused, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

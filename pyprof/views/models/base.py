# SPDX-License-Identifier: Apache-2.0
"""Base classes of all answers of the API."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Cell = bool | int | float | str | None
ColumnKind = Literal["int", "float", "str", "bool", "object"]


class Model(BaseModel):
    """Base class that forbids extra fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(Model):
    """RFC 9457 problem. `type` is one word, `detail` one or two sentences for the user of the page."""

    type: Literal[
        "parameter", "missing", "token", "host", "forbidden", "foreign", "older", "newer", "damaged", "vanished",
        "unreadable", "empty", "opening", "slow", "busy", "internal",
    ]  # fmt: skip
    title: str
    status: int
    detail: str
    parameter: str | None = Field(None, description="The invalid URL parameter.")
    progress: float | None = Field(None, description="For `opening`: the completed share.")
    recording: str | None = Field(None, description="The name of the recording that cannot be opened, or not yet.")

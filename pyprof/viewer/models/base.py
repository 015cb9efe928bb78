# SPDX-License-Identifier: Apache-2.0
"""What all answers of the API are made of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Cell = bool | int | float | str | None
ColumnKind = Literal["int", "float", "str", "bool", "object"]


class Model(BaseModel):
    """Base: nothing but the fields that are there."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Problem(Model):
    """RFC 9457. `type` is one word, `detail` one or two sentences for the person at the page."""

    type: Literal[
        "parameter", "missing", "token", "host", "forbidden", "foreign", "older", "newer", "damaged", "vanished",
        "unreadable", "opening", "slow", "busy", "internal",
    ]  # fmt: skip
    title: str
    status: int
    detail: str
    parameter: str | None = Field(None, description="The parameter of the URL that is wrong.")
    progress: float | None = Field(None, description="Of `opening`: the share that is done.")

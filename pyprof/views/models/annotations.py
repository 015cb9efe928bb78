# SPDX-License-Identifier: Apache-2.0
"""Annotations of the timeline, as the API and the file have them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pyprof.views.models.base import Model

MOST = 2000  # annotations of a profile
_Time = Annotated[int, Field(ge=-(2**53), le=2**53)]


class Anchor(Model):
    """The edge of an event that an annotation was put on."""

    event: str = Field(
        max_length=64,
        pattern=r"^(launch|range|call|gap):[0-9.]+$",
        description="As in the address of the page.",
    )
    edge: Literal["start", "end"]


class Annotation(Model):
    """A time, or a stretch of time if it has an end, that somebody wrote something about."""

    id: str = Field(max_length=64, pattern=r"^[A-Za-z0-9-]+$")
    name: str = Field("", max_length=200)
    text: str = Field("", max_length=4000)
    start: _Time
    end: _Time | None = None
    color: int = Field(0, ge=0, le=7)
    anchor: Anchor | None = None
    created: str | None = Field(None, max_length=40, pattern=r"^[0-9TZ:.+-]+$", description="ISO 8601.")

    @model_validator(mode="after")
    def _ordered(self) -> Annotation:
        if self.end is not None and self.end < self.start:
            raise ValueError("the end is before the start")
        return self


class AnnotationList(Model):
    """All annotations of a profile; each has an id of its own."""

    annotations: list[Annotation] = Field(max_length=MOST)

    @model_validator(mode="after")
    def _distinct(self) -> AnnotationList:
        if len({one.id for one in self.annotations}) < len(self.annotations):
            raise ValueError("two annotations have the same id")
        return self


class AnnotatedProfile(Model):
    """The recording that annotations were made on."""

    name: str
    events: int
    end: int


class Annotations(Model):
    """The annotations of a profile, and where they are."""

    version: str = Field(description="For If-Match: changes with the content.")
    file: str
    notice: str | None = Field(description="What to know about the file, in sentences.")
    profile: AnnotatedProfile = Field(description="The served one.")
    annotations: list[Annotation]

# SPDX-License-Identifier: Apache-2.0
"""A fleet whose tasks run in this process, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof import fleet
from pyprof.fleet import cluster, tasks


def opened(run: Path, store: Path) -> fleet.Fleet:
    """The fleet of the recordings of a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "run", lambda client, todo, progress: [tasks.work(task) for task in todo])
        patch.setattr(
            cluster,
            "joined",
            lambda client, top, records, shifts: tasks.join_of(top, [one.name for one in records], [*shifts]),
        )
        todo = fleet._tasks(fleet._recordings(run), str(store), None)
        return fleet._opened(None, todo, str(store), lambda what, share: None)  # type: ignore[arg-type]

# SPDX-License-Identifier: Apache-2.0
"""The critical path on the timeline: what the server says of it, and where the page draws it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from pyprof import profiles
from tests.reports.simulated import files, plan, write
from tests.server.browser.conftest import Open, read
from tests.server.browser.test_timeline import drawn, start, view_menu
from tests.server.conftest import Asking, serving

STEPS = 3
WHAT = plan(3, "operator")._replace(offset=[0] * 4, drift=[0.0] * 4)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asking, profiles.Profile]]:
    folder = write(tmp_path_factory.mktemp("path") / "run", files(WHAT, STEPS, 3))
    with serving(folder) as asking:
        read(asking)
        yield asking, profiles.load(folder)


def path(client: Asking, number: int) -> dict[str, Any]:
    ends = [one["end"] for one in client.json("/api/timeline")["steps"] if one["number"] == number]
    return dict(client.json("/api/timeline/critical_path", at=max(ends) - 100_000))


def test_the_page_draws_a_line_above_what_the_step_waited_for(opened: Open, ranks):
    client, _ = ranks
    found = path(client, 1)
    tracks = {one["id"]: one for one in client.json("/api/timeline")["tracks"]}
    hidden = ",".join(str(one["id"]) for one in tracks.values() if one["worker"] != WHAT.guilty)
    window = {"from": str(found["start"]), "to": str(found["end"]), "hide": hidden}
    page = start(opened(client), **window)
    assert page.tab.evaluate("window.timeline.scene.lines") == []
    with view_menu(page) as menu:
        menu.locator("[data-switch=path]").check()
    drawn(page)
    assert "path=on" in page.parameters()
    width = page.tab.evaluate("document.querySelector('.canvases canvas').width")
    scale = width / (found["end"] - found["start"])
    lines = page.tab.evaluate("window.timeline.scene.lines")
    (longest,) = [one for one in lines if abs(one[2] - one[1] - max(line[2] - line[1] for line in lines)) < 1e-9]
    track = tracks[longest[0]]
    assert (track["worker"], track["device"]) == (WHAT.guilty, None)
    stretch = max(found["stretches"], key=lambda one: one["end"] - one["start"])
    assert stretch["worker"] == WHAT.guilty
    assert longest[1] == pytest.approx((stretch["start"] - found["start"]) * scale, abs=2)
    assert longest[2] == pytest.approx((stretch["end"] - found["start"]) * scale, abs=2)
    with view_menu(page) as menu:
        menu.locator("[data-switch=path]").uncheck()
    drawn(page)
    assert page.tab.evaluate("window.timeline.scene.lines") == []
    _, prof = ranks
    table = prof.report("critical_path", by="step")
    for number in range(STEPS):
        found = path(client, number)
        own = table[table["step"] == number]
        assert (found["number"], found["worker"]) == (number, own["ends_on"].iloc[0])
        sums = own.groupby("part")["total_ns"].sum().to_dict()
        assert {one["part"]: one["time"] for one in found["sums"]} == sums
        assert sum(sums.values()) == found["end"] - found["start"]
        # The guilty rank's thread has the planted time.
        host = [one for one in found["stretches"] if one["worker"] == WHAT.guilty and one["thread"] is not None]
        assert max(one["end"] - one["start"] for one in host) > WHAT.extra
        # By clocks that differ by less than the scatter of the ends, one stretch begins where another ended.
        stretches = found["stretches"]
        assert all(abs(a["end"] - b["start"]) < 10_000 for a, b in pairwise(stretches))
    client, _ = ranks
    assert client.json("/api/timeline/critical_path", at=1 << 50)["number"] == STEPS - 1
    assert client.json("/api/timeline/critical_path", at=0)["number"] == 0
    client.json("/api/timeline/critical_path", status=422)

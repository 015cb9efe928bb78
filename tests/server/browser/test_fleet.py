# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet's store: the summary, a rank's profile, and views that need single events."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyprof
from tests.reports import simulated
from tests.server.browser.conftest import Open
from tests.server.conftest import Asking, serving

pytest.importorskip("distributed")
pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asking, pyprof.Profile]]:
    """Three ranks, of which rank 1 waits for its data loader, and a file that cannot be read."""
    from pyprof import fleet

    folder = tmp_path_factory.mktemp("fleet")
    what = simulated.plan(0, "loader")._replace(ranks=3, guilty=1)
    run = simulated.write(folder / "run", simulated.files(what, 4, 0))
    first = (run / "rank0.1700000000000.pt.trace.json").read_text()
    (run / "rank3.1700000000000.pt.trace.json").write_text(first[:200])
    fleet.open(run, store=folder / "store")
    with serving(folder / "store") as asking:
        yield asking, pyprof.load(run)


def test_the_summary_names_the_late_rank_and_views_of_events_say_why_they_are_empty(
    opened: Open, summary: tuple[Asking, pyprof.Profile]
):
    page = opened(summary[0])
    views = page.find("nav [data-view]")
    page.go()
    ids = views.evaluate_all("links => links.map(link => link.dataset.view)")
    assert {"timeline", "kernels", "memory", "workers"} < set(ids)
    for view in ids:
        page.go(view)
        said = page.find("main").inner_text()
        assert ("no single events" in said) == (view not in ("overview", "reports")), view
        assert not page.find("[data-note=error]").count(), view
    page.go("reports")
    offered = page.find("[data-reports] option").evaluate_all("options => options.map(option => option.value)")
    assert {"rank_times", "stragglers"} < set(offered)
    assert not {"idle", "root_cause"} & set(offered)
    asking, whole = summary
    page = opened(asking)
    page.go()
    assert "rank1 is the straggler" in page.find("[data-headline]").inner_text()
    assert "rank3" in page.find("[data-note]").first.inner_text()
    ranks = whole.report("rank_times")
    assert page.column("ranks", "worker") == ranks["worker"].tolist()
    assert page.column("ranks", "step_max") == [f"{time:,}" for time in ranks["step_max"]]
    late = whole.report("stragglers", by="rank")
    assert page.column("stragglers", "worker") == late["worker"].tolist()
    assert page.column("stragglers", "dataloader_ns") == [f"{time:,}" for time in late["dataloader_ns"]]
    assert page.column("operators", "worst") == whole.report("rank_operators")["worst"].tolist()[:25]
    page.find('[data-table="ranks"] [data-rank="rank1"]').click()
    page.until("#findings", 1)
    assert "run=rank1" in page.parameters()
    assert page.find("header .name").inner_text() == "rank1"

# SPDX-License-Identifier: Apache-2.0
"""Search by names of any spelling."""

from __future__ import annotations

import pytest

from pyprof.views.search import best, plain
from tests.server.conftest import HOSTILE, Asking


def found(client: Asking, text: str) -> list[tuple[str, str]]:
    return [(hit["kind"], hit["id"]) for hit in client.json("/api/search", search=text)]


@pytest.mark.parametrize("text", ["mm", "MM", "m m", "_mm_"])
def test_case_and_punctuation_do_not_matter(client: Asking, text: str):
    assert found(client, text) == found(client, "mm") != []


def test_every_kind_of_name(client: Asking, prof):
    table = prof.report("detail")
    by_type = table[table["type"] == "mm"]
    hits = found(client, "mm")
    assert {id for kind, id in hits if kind == "operator"} <= set(table["op_id"])
    assert by_type.sort_values("gpu", ascending=False)["op_id"].iloc[0] in {id for _, id in hits}
    module = table["module"].dropna().iloc[0]
    assert ("module", module) in found(client, module)
    line = table["stack"].dropna().iloc[0].split("\n")[-1]
    assert ("line", line) in found(client, line)
    kernel = prof.report("kernel")["kernel"].iloc[0]
    assert ("kernel", kernel) in found(client, kernel[:40])


def test_what_fits_best_is_first(client: Asking):
    order = ("name", "start", "part", "path")
    for text, matches in (("mm", {"name", "part"}), ("first", {"name", "path"})):
        ranks = [order.index(hit["match"]) for hit in client.json("/api/search", search=text)]
        assert ranks == sorted(ranks)
        assert matches <= {order[rank] for rank in ranks}, text


def test_what_fits_best_is_among_the_hits():
    """Of more names of a kind than are offered, the one that has the name is there, however short it takes."""
    names = [(f"net/mm_{number}/relu", f"RELU_{number}", 1000 - number) for number in range(20)]
    hits = best("mm", "operator", [*names, ("net/mm", "MM_1", 1)])
    assert [hit.id for _, hit in hits] == ["MM_1", *(f"RELU_{number}" for number in range(5))]
    alike = best("mm", "dispatched", [("aten::_mm", 0), ("aten::mm", 0)])
    assert [hit.id for _, hit in alike] == ["aten::mm", "aten::_mm"]


def test_hits_have_the_times_of_the_reports(client: Asking, prof):
    line = prof.report("source_line").dropna(subset=["line"]).iloc[0]
    (hit,) = [one for one in client.json("/api/search", search=line["line"]) if one["kind"] == "line"]
    assert hit["time"] >= line["device_total_ns"]
    kernels = prof.report("kernel").groupby("kernel")["gpu"].sum()
    for one in client.json("/api/search", search=kernels.index[0][:30]):
        if one["kind"] == "kernel":
            assert one["time"] == kernels[one["id"]]


@pytest.mark.parametrize("text", ["", "   ", "---", "no such name"])
def test_nothing_is_found(client: Asking, text: str):
    assert client.json("/api/search", search=text) == []


def test_a_hostile_name_is_only_a_text(client: Asking):
    assert any(HOSTILE in hit["title"] for hit in client.json("/api/search", search=HOSTILE))
    assert plain("%_") == ""

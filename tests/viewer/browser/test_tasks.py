# SPDX-License-Identifier: Apache-2.0
"""What people come for, each from the Overview in three clicks or a search: the answer has to be right."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest

from pyprof import session
from pyprof.reports.idle import ADVICE
from tests.viewer.browser.conftest import Open, Page, plain
from tests.viewer.browser.test_memory_in_use import sizes
from tests.viewer.browser.test_plugin_workers import groups
from tests.viewer.browser.traces import GEMM, TC_KERNEL
from tests.viewer.conftest import Asking

COUNT = "addEventListener('click', (event) => event.isTrusted && (window.clicks = (window.clicks ?? 0) + 1), true)"


@pytest.fixture
def opened(opened: Open) -> Iterator[Open]:
    """Opens tabs in which a task takes no more than three clicks."""
    pages: list[Page] = []

    def open_(*arguments: Any, **options: Any) -> Page:
        pages.append(opened(*arguments, **options))
        pages[-1].tab.add_init_script(COUNT)
        return pages[-1]

    yield open_
    assert all(page.tab.evaluate("window.clicks ?? 0") <= 3 for page in pages)


# Of the six steps of `tests.viewer.conftest.steps`, in ns: step i has products of 70 and, beside it, of 30 + i, a
# relu of 12, a tanh of 8 + i, and a copy of 25.
FIRST, SECOND, RELU, TANH, COPIES = (
    6 * 70,
    sum(30 + i for i in range(6)),
    6 * 12,
    sum(8 + i for i in range(6)),
    6 * 25,
)
GEMM_KERNEL, SECOND_KERNEL = "volta_h884gemm_64x64_ldg8_nn", "volta_sgemm_128x64_nn"
# The call that launches the next step returns 45 - i after the last event of step i; the first kernel starts 25 after
# the step.
IDLE = {"synchronization": sum(45 - i for i in range(5)), "launch-bound": 25}


def search(page: Page, text: str, option: str) -> None:
    page.tab.keyboard.press("/")
    page.tab.keyboard.type(text)
    page.find(f"#palette [role=option]:has(.what:has-text('{option}'))").first.click()
    page.settled()


def test_which_layer_costs_most(page: Page):
    page.go()
    page.find("nav a:has-text('Operators')").click()
    page.settled()
    page.find("[role=tab][data-tab=module]").click()
    page.settled()
    page.find("button:has-text('Expand All')").click()
    page.settled()
    times = [int(text) for text in page.column("modules", "device_self_ns")]
    most = times.index(max(times))
    assert max(times) == FIRST  # the second product runs beside the first
    assert page.rows("modules")[most][0].split("\n")[-1].endswith("first")


def test_which_line_costs_most_and_what_ran_because_of_it(page: Page):
    page.go()
    page.find("nav a:has-text('Source lines')").click()
    page.settled()
    assert page.column("lines", "line")[0] == "run.py:9"
    assert page.column("lines", "device_self_ns")[0] == f"{FIRST + RELU}"
    page.find("[data-table=lines] tr[data-row='run.py:9']").click()
    page.settled()
    assert page.column("lineops", "gpu") == [f"{FIRST}", f"{RELU}"]


def test_an_operator_of_any_spelling_and_its_kernels(page: Page):
    page.go()
    search(page, "mm 1", "Operator")
    assert page.find("[data-table=ops] tr.picked").get_attribute("data-row") == "MM_1"
    assert page.column("opkernels", "kernel") == [GEMM_KERNEL, SECOND_KERNEL]
    assert page.column("opkernels", "gpu") == [f"{FIRST}", f"{SECOND}"]
    assert page.find("aside[data-drawer='op:MM_1']").count() == 1


def test_the_kernels_of_an_operator_of_torch(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("overview", run="alpha")
    search(page, "addmm", "Operator of torch")
    assert page.column("operators", "name")[0].startswith("aten::addmm")
    page.find("[data-table=operators] a:has-text('Kernels')").click()
    page.settled()
    assert set(page.column("operator_kernels", "name")) == {"aten::addmm"}
    times = zip(page.column("operator_kernels", "kernel"), page.column("operator_kernels", "device_total_ns"))
    assert dict(times) == {TC_KERNEL: "200,000", GEMM: "120,000"}  # of two steps


def test_the_kernels_of_an_operator_that_launches_none_itself(opened: Open, traces: Asking):
    """aten::linear launches nothing: the product is that of the aten::addmm inside it."""
    page = opened(traces)
    page.go("overview", run="alpha")
    search(page, "aten::linear", "Operator of torch")
    page.find("[data-table=operators] a:has-text('Kernels')").click()
    page.settled()
    assert page.column("operator_kernels", "kernel") == [TC_KERNEL]
    assert page.column("operator_kernels", "device_self_ns") == ["0"]
    assert page.column("operator_kernels", "device_total_ns") == ["200,000"]


def test_a_kernel_by_its_name(page: Page):
    page.go()
    search(page, "h884gemm", "Kernel ·")
    assert page.column("kernels", "name") == [GEMM_KERNEL]
    assert page.column("kernels", "total_ns") == [f"{FIRST}"]
    box = page.find("[data-table=kernels] tbody tr").first.bounding_box()
    assert box["y"] + box["height"] < 720  # in sight


def test_why_the_gpu_idles_and_where(page: Page, prof: session.Profile):
    page.go()
    page.find("nav a:has-text('GPUs')").click()
    page.settled()
    whole = sum(IDLE.values())
    assert f"{whole} ns" in plain(page.find("[data-whole]").inner_text())
    for cause, time in IDLE.items():
        said = plain(page.find(f"[data-cause='{cause}']").inner_text())
        assert f"{time} ns, {100 * time / whole:.1f} % of the idle time" in said
        assert ADVICE[cause] in said
    table = prof.report("idle")
    known = 100 * table["total_ns"][table["operator"].notna()].sum() / whole
    assert f"{known:.1f} %" in plain(page.find("[data-known]").inner_text())
    page.find("[data-cause='synchronization'] a").click()
    page.settled()
    assert set(page.column("idle", "cause")) == {"synchronization"}
    assert sum(map(int, page.column("idle", "total_ns"))) == IDLE["synchronization"]


def test_which_rank_is_late(opened: Open, ranks: Asking):
    """Rank 2 comes 200 us after rank 0 to the only collective of each of two steps."""
    page = opened(ranks)
    page.go()
    sentence = plain(page.find("[data-headline]").inner_text())
    assert (
        "rank2 is the straggler: last to arrive at 2 of 2 collectives, 400 µs behind the first rank in total: 200 µs "
        "are its own, 200 µs are usual (the median rank is as late). 400 µs of it is at all_reduce"
        in sentence
    )
    page.find("nav a:has-text('Workers')").click()
    page.settled()
    page.find("[role=tab][data-tab=stragglers]").click()
    page.settled()
    late = dict(zip(page.column("stragglers", "worker"), page.column("stragglers", "late_ns")))
    assert late == {"rank2": "400,000", "rank0": "0", "rank1": "0"}
    assert page.rows("stragglers")[0][0] == "rank2"
    page.find("[data-option=group_by]").select_option("collective")
    page.settled()
    assert "stragglers.o.group_by=collective" in page.parameters()


def test_why_an_operator_does_not_use_tensor_cores(page: Page):
    page.go()
    page.find("nav a:has-text('Operators')").click()
    page.settled()
    names = [text.split("\n")[0] for text in page.column("operators", "name")]
    reasons = dict(zip(names, page.column("operators", "tcwhy")))
    # The kernel of the product that takes longest uses them; the others are no products.
    assert reasons == {"torch.mm": "used", "unassociated": "–", "torch.relu": "–", "torch.tanh": "–"}


def test_what_changed_from_before_to_after(opened: Open, traces: Asking):
    """Of two steps and of four, in us per step: the modules take 120 and 140, what is outside of them 80 and 80."""
    page = opened(traces)
    page.go("overview", run="alpha")
    page.find("nav a:has-text('Compare')").click()
    page.settled()
    changes = {name: texts[2] for name, texts in groups(page).items()}
    assert changes == {"Net_0": "+20.0 µs (16.7 %)", "outside of modules, or in several": "0 ns (0.0 %)"}


def test_what_holds_the_memory_at_its_peak(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("overview", run="alpha")
    page.find("nav a:has-text('Memory')").click()
    page.settled()
    assert page.find("[data-panel=alive] h2").inner_text() == "In use at 315 µs, the peak"
    assert sizes(page) == {"linear": 2048, "relu": 1024, "no allocation recorded": 1024}


def test_an_export_for_a_colleague(page: Page):
    page.go()
    page.find("nav a:has-text('Operators')").click()
    page.settled()
    page.find("[data-table=operators] button:has-text('Export')").click()
    with page.tab.expect_download() as download:
        page.find("[data-table=operators] a.item:has-text('CSV')").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("Name,"))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    assert {row["Name"]: (int(row["Device Self (ns)"]), row["TC Reason"]) for row in rows} == {
        "torch.mm": (FIRST + SECOND, "used"), "unassociated": (COPIES, ""), "torch.relu": (RELU, "-"),
        "torch.tanh": (TANH, "-"),
    }  # fmt: skip


def test_a_link_shows_what_its_sender_saw(opened: Open):
    one, other = opened(), opened()
    one.go("operators", by="place", **{"ops.f.gpu": ">100ns", "ops.s": "cpu", "ops.n": "25"})
    other.tab.goto(one.tab.url)
    other.settled()
    assert one.rows("ops") == other.rows("ops")
    assert len(one.rows("ops")) > 1
    assert other.parameters() == one.parameters()


def test_the_source_of_what_is_slow(opened: Open, traces: Asking):
    page = opened(traces)
    page.go("overview", run="alpha")
    search(page, "linear", "Operator")
    page.find("aside button.frame").last.click()
    page.find("aside .here").wait_for()
    assert "of net.py" in page.find("aside .here").inner_text()

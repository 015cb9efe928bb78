# SPDX-License-Identifier: Apache-2.0
"""The loader's workers in the finding about it (R08), and in the report on steps."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof.facts.steps.aggregation import aggregations
from pyprof.facts.steps.source import Source
from pyprof.reports import find
from pyprof.rules import Finding
from tests.rules.small import Small, opened
from tests.rules.test_rules import loading, outcome

FACTS = {
    "loader__0__num_workers": "1", "loader_workers__0__workers": "1", "cpu__usable": "8",
    "loader_workers__0__samples": "Set.__getitem__ (data.py:3)", "loader_workers__0__collate_fn": "stack (data.py:9)",
}  # fmt: skip
WAIT = 150_000  # ns of each step of 1 ms, of which there are 10


def made(cpu: int = 100_000, **facts: str) -> Small:
    """A batch of 4 samples for each step, which takes its worker 1.6 ms, of them 0.2 ms to collate it. The one of step
    3 has a sample of 0.9 ms."""
    small = loading(WAIT, **{**FACTS, **facts})
    for number, start in enumerate(small.each()):
        slowest = {"slowest_ns": 900_000 if number == 3 else 400_000, "slowest_sample": number}
        small.batch(start, start + WAIT, 4, getting=1_400_000, collating=200_000, cpu=cpu, **slowest)
    return small


def finding(small: Small) -> Finding:
    one = outcome("R08", small).finding
    assert one is not None
    return one


def test_the_stages_of_a_batch_have_their_lines_and_times() -> None:
    """1.6 ms of work for a step that takes 0.85 ms without the wait: 2 workers. They save the whole wait."""
    one = finding(made())
    assert one.problem.endswith(
        " Its worker takes 1.60 ms for a batch: 1.40 ms in Set.__getitem__ (data.py:3), 200 us in stack (data.py:9); "
        "350 us for a sample, at most 900 us (number 3 of the dataset)."
    )
    assert one.advice.startswith("Load more in parallel: num_workers=2 would do, keep workers")
    assert one.advice.endswith(
        "Or make Set.__getitem__ (data.py:3) cheaper: decode and resize once ahead of time, or on the GPU."
    )
    assert one.saving == 10 * WAIT
    assert [row for row in one.evidence if "batch_ns" in row] == [
        {"source": "Set.__getitem__ (data.py:3)", "batch_ns": 1_400_000},
        {"source": "stack (data.py:9)", "batch_ns": 200_000},
    ]


@pytest.mark.parametrize(
    ("cpu", "facts", "advice"),
    [
        # 0.9 ms of CPU for each step: one processor beside the loop's takes 0.9 ms, and 1.6 / 0.9 are 2 workers.
        (
            900_000,
            {"cpu__usable": "2"},
            "Load more in parallel: num_workers=2 would do (the processors allow no more)",
        ),
        (1_600_000, {"cpu__usable": "2"}, "More workers would not help, since the processors are busy"),
        (100_000, {"loader_workers__0__workers": "4"}, "Of 4 workers 2 would do on average: do not raise"),
    ],
)
def test_no_more_workers_are_advised_than_help(cpu: int, facts: dict[str, str], advice: str) -> None:
    assert finding(made(cpu, **facts)).advice.startswith(advice)


def test_workers_that_the_processors_hold_back_save_less() -> None:
    """The worker's 900 us and the loop's own 850 us take two processors 875 us."""
    assert finding(made(900_000, cpu__usable="2")).saving == 10 * 125_000


def test_without_the_work_of_workers_the_finding_is_as_before() -> None:
    one = finding(loading(WAIT, loader__0__num_workers="1"))
    assert one.advice.startswith("Load more in parallel: raise num_workers, ")
    assert "Its worker" not in one.problem
    late = finding(loading(WAIT, loader__0__num_workers="1", loader__0__workers_recorded="no"))
    assert late.advice.endswith("Call pyprof.init() before the loader starts its workers: then their work is recorded.")


def test_a_step_has_the_stages_that_it_waited_for() -> None:
    """Of a wait of 150 us: from 20 us on its samples, from 100 us on collation, from 130 us on the way to the loop."""
    small = loading(WAIT, **FACTS)
    for start in small.each():
        small.batch(start, start + 130_000, 4, getting=80_000, collating=30_000, cpu=0, wait_end_ns=start + WAIT)
    columns: dict[str, Any] = {
        "loader_samples_ns": 80_000, "loader_collate_ns": 30_000, "loader_pin_ns": 0, "loader_queue_ns": 20_000,
        "dataloader_ns": 20_000, "other_ns": 850_000, "total_ns": 1_000_000,
    }  # fmt: skip
    table = steps(small)
    assert table[[*columns]].drop_duplicates().to_dict("records") == [columns]
    without = steps(loading(WAIT, loader__0__num_workers="1"))
    assert without["dataloader_ns"].tolist() == [WAIT] * 10
    assert without["loader_samples_ns"].isna().all()


def steps(small: Small) -> Any:
    with opened(small) as database:
        report = find("step_time", categories="loader")
        return report.table(Source(database, aggregations(database)[0]))

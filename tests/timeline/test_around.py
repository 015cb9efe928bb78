# SPDX-License-Identifier: Apache-2.0
"""A gap of a device, from what lies around it, is the one that the report of idle time adds up over the recording."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.reports.idle import Gap
from pyprof.store.files import Store
from pyprof.timeline.around import gap_of
from tests import kineto

DATA = Path(os.environ.get("PYPROF_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
GPU = Path(__file__).resolve().parents[1] / "traces" / "gpu"
us = 1000


def backward_of_two_ranges() -> list[kineto.Event]:
    """cross_entropy_loss has two backward nodes, one after the other. The device waits in the second, and between them
    and a product that runs later."""
    return [
        kineto.op("aten::cross_entropy_loss", 0, 100 * us, seq=1),
        kineto.op("aten::log_softmax", 10 * us, 40 * us, seq=1),
        kineto.launch(20 * us, 25 * us, 1),
        kineto.op("aten::nll_loss_nd", 50 * us, 90 * us, seq=2),
        kineto.launch(60 * us, 65 * us, 2),
        kineto.op("NllLossBackward0", 200 * us, 300 * us, seq=2, forward=1, tid=102),
        kineto.launch(210 * us, 220 * us, 3, tid=102),
        kineto.op("LogSoftmaxBackward0", 310 * us, 500 * us, seq=1, forward=1, tid=102),
        kineto.launch(480 * us, 490 * us, 4, tid=102),
        kineto.op("aten::mm", 900 * us, 950 * us),
        kineto.launch(910 * us, 920 * us, 5),
        *(
            kineto.kernel(f"kernel_{number}", start * us, (start + 20) * us, number)
            for number, start in enumerate((30, 70, 310, 495, 930), 1)
        ),
    ]  # fmt: skip


def gaps(store: Store) -> Iterator[tuple[str, Gap]]:
    """All gaps, with the names of their workers."""
    for name, worker, device, count in store.rows(
        "select w.name, t.worker, t.device, t.events from track t join worker w on w.id = t.worker where kind = 'idle'"
    ):
        for number in range(count):
            one = gap_of(store, worker, device, number)
            assert one is not None
            yield name, one
        assert gap_of(store, worker, device, count) is None


def added(path: Path, recording: Path) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Count, sum and longest of the gaps by cause and place: from each gap, and from the report."""
    pyprof.load(recording).save(path)
    own: dict[Any, list[int]] = {}
    with Store(path) as store:
        query = "select w.name, min(s.start_ns), max(s.end_ns) from step s join worker w on w.id = s.worker group by 1"
        steps = {name: (low, high) for name, low, high in store.rows(query)}
        spans = {
            name: (start, end) for name, start, end in store.rows("select name, start_ns, end_ns from worker")
        }
        for worker, one in gaps(store):
            low, high = steps.get(worker, spans[worker])
            if (length := min(one.end_ns, high) - max(one.start_ns, low)) > 0:
                place = (
                    one.cause,
                    one.call,
                    one.host,
                    one.where,
                    one.operator,
                    one.module,
                    one.line,
                    one.stack,
                )
                own.setdefault((worker, *place), []).append(length)
    table = pyprof.load(path).report("idle")
    rows = table.astype(object).where(table.notna(), None).itertuples()
    return (
        {key: (len(lengths), sum(lengths), max(lengths)) for key, lengths in own.items()},
        {
            (row.worker, row.cause, row.call, row.host, row.where, row.operator, row.module, row.line, row.stack): (
                row.count, row.total_ns, row.longest_ns,
            )
            for row in rows
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "h100_bert_small.json.gz",
        "mtia_inference.json.gz",
        "mi300_vllm_prefilldecode_piecewise/**/graph_capture_rank_0",
    ],
)
def test_gaps_of_recordings_are_those_of_the_report(name: str, tmp_path: Path) -> None:
    found = sorted(DATA.glob(f"kineto/{name}*"))
    if not found:
        pytest.skip(f"no {DATA / 'kineto' / name}")
    own, report = added(tmp_path / "net_dldb.sqlite", found[0])
    assert own == report


def test_an_operator_with_ranges_one_after_the_other(tmp_path: Path) -> None:
    """Its first range has ended when the gap begins. The gap from 330 to 495 us ends with what the second launched."""
    own, report = added(
        tmp_path / "net_dldb.sqlite", kineto.write(tmp_path / "trace.json", backward_of_two_ranges())
    )
    assert own == report
    (late,) = (key for key, (_, total, _) in own.items() if total == 165 * us)
    assert late[1:7] == ("launch-bound", None, "LogSoftmaxBackward0", "in", "cross_entropy_loss", None)


def test_a_step_that_begins_before_the_first_event(tmp_path: Path) -> None:
    """The gap before the first kernel begins with the step, on the timeline as in the report."""
    recording = tmp_path / "transformer_bf16.sqlite"
    recording.write_bytes(gzip.decompress((GPU / "transformer_bf16.sqlite.gz").read_bytes()))
    own, report = added(tmp_path / "net_dldb.sqlite", recording)
    assert own == report
    with Store(tmp_path / "net_dldb.sqlite") as store:
        step, first = store.rows("select (select min(start_ns) from step), (select start_ns from worker)")[0]
        kernel = store.rows("select min(start_ns) from event where kind < 3")[0][0]
        assert step < first
        assert next(gaps(store))[1][:2] == (step, kernel)


def test_the_rest_of_the_recording_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 products and kernels: a gap in the middle needs a small part of the rows."""
    events = []
    for number in range(5000):
        start = 100 * us * number
        events += [
            kineto.op("aten::mm", start, start + 30 * us),
            kineto.launch(start + 10 * us, start + 20 * us, number + 1),
            kineto.kernel("gemm", start + 40 * us, start + 60 * us, number + 1),
        ]
    pyprof.load(kineto.write(tmp_path / "trace.json", events)).save(tmp_path / "net_dldb.sqlite")
    with Store(tmp_path / "net_dldb.sqlite") as store:
        read = 0
        named, columns = Store.named, Store.columns

        def counted_rows(self: Store, *arguments: Any) -> Any:
            nonlocal read
            out = named(self, *arguments)
            read += len(out[1])
            return out

        def counted_columns(self: Store, *arguments: Any) -> Any:
            nonlocal read
            out = columns(self, *arguments)
            read += max((len(column.values) for column in out.values()), default=0)
            return out

        monkeypatch.setattr(Store, "named", counted_rows)
        monkeypatch.setattr(Store, "columns", counted_columns)
        one = gap_of(store, 0, 0, 2500)
    assert one is not None
    assert (one.cause, one.operator, one.length_ns) == ("launch-bound", "mm", 80 * us)
    assert read < 2000

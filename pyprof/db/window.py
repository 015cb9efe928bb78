# SPDX-License-Identifier: Apache-2.0
"""The window that an aggregation covers, as the metrics take it."""

from __future__ import annotations

from pyprof.db.aggregate import DEVICE, Aggregation
from pyprof.db.store import Store
from pyprof.metrics import PARTS, Device, Window, Worker

_SUMS = ("calls", "kernels", "tc_kernels", "kernel", "tc", "cpu", "gpu", "overhead", "idle")


def window(store: Store, aggregation: Aggregation, worker: int | None = None) -> Window:
    """Iterations `first` to `last` of all workers, or of one."""
    within = {"set": aggregation.iteration_set, "first": aggregation.first, "last": aggregation.last,
              "worker": worker, "aggregation": aggregation.id}  # fmt: skip
    workers = _workers(store, within)
    walls = {one.number: one.wall for one in workers}
    facts = store.meta
    if not store.rows("select 1 from io limit 1"):
        facts["io"] = "none"
    return Window(workers, _devices(store, within, walls), _totals(store, within), facts)


_WHERE = "iteration_set = :set and number between :first and :last and (:worker is null or worker = :worker)"


def _workers(store: Store, within: dict[str, int | None]) -> tuple[Worker, ...]:
    lengths: dict[int, list[int]] = {}
    for number, start, end in store.rows(
        f'select worker, start, "end" from iteration where {_WHERE} order by worker, number', within
    ):
        lengths.setdefault(number, []).append(end - start)
    sums = ", ".join(f"sum({part})" for part in PARTS)
    parts = {row[0]: dict(zip(PARTS, row[1:])) for row in store.rows(
        f"select worker, {sums} from iteration_part where {_WHERE} group by worker", within
    )}  # fmt: skip
    names = dict(store.rows("select id, name from worker"))
    return tuple(
        Worker(number, names[number], sum(found), tuple(found), parts[number])
        for number, found in lengths.items()
    )


def _devices(store: Store, within: dict[str, int | None], walls: dict[int, int]) -> tuple[Device, ...]:
    sums = ", ".join(f"sum({name})" for name in DEVICE)
    found = {row[:2]: dict(zip(DEVICE, row[2:])) for row in store.rows(
        f"select worker, device, {sums} from iteration_device where {_WHERE} group by worker, device", within
    )}  # fmt: skip
    return tuple(
        Device(worker, number, walls[worker], found.get((worker, number), {}), name, events)
        for worker, number, name, events in store.rows(
            "select worker, number, name, events from device order by worker, number"
        )
        if worker in walls
    )


def _totals(store: Store, within: dict[str, int | None]) -> dict[str, int]:
    """Sums over all operators, over those that tensor cores could do, and over those of them that did."""
    out: dict[str, int] = {}
    for prefix, condition in (
        ("", "1"), ("eligible_", "operator.eligible"), ("eligible_tc_", "operator.eligible and s.tc_kernels > 0"),
    ):  # fmt: skip
        sums = ", ".join(f"coalesce(sum(s.{name}), 0)" for name in _SUMS)
        row = store.rows(
            f"""select {sums}, count(distinct s.operator) from op_stat s join operator on operator.id = s.operator
                where s.aggregation = :aggregation and (:worker is null or s.worker = :worker) and {condition}""",
            within,
        )[0]
        out |= {f"{prefix}{name}": number for name, number in zip((*_SUMS, "operators"), row)}
    return out

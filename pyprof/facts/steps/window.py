# SPDX-License-Identifier: Apache-2.0
"""The window that an aggregation covers, as the input of the metrics."""

from __future__ import annotations

from pyprof.core.model import Ints
from pyprof.facts.steps.aggregation import DEVICE_COLUMNS, Aggregation
from pyprof.metrics import PARTS, Device, Window, Worker
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.kinds import COMPUTES, IS_KERNEL, MOVES_MEMORY, ON_CPU, uses_tensor_cores

_OPERATORS = {
    "": "1", "eligible_": "eligible", "eligible_tc_": "eligible and used", "using_": "used",
    "missed_": "eligible and not used", "others_": "not eligible and not used",
}  # fmt: skip
_EVENTS = {
    "events_": "1", "kernel_events_": COMPUTES, "tc_events_": uses_tensor_cores(),
    "other_events_": f"{IS_KERNEL} and tc <> 1 or {ON_CPU}", "unknown_events_": f"{IS_KERNEL} and tc = 3",
    "memory_events_": MOVES_MEMORY, "algorithm_events_": f"({COMPUTES}) and hardware_unknown_ns > roofline_unknown_ns",
}  # fmt: skip
_EVENT_SUMS = (
    "calls", "gpu_ns", "api_ns", "launched", "flops", "dense_flops", "bytes", "flops_unknown_ns", "bytes_unknown_ns",
    "roofline_ns", "roofline_unknown_ns", "hardware_ps", "hardware_unknown_ns", "model_ps",
)  # fmt: skip
_SUMS = ("calls", "kernels", "tc_kernels", "kernel_ns", "tc_ns", "cpu_ns", "gpu_ns", "overhead_ns", "idle_ns")


def window(store: Store, aggregation: Aggregation, worker: int | None = None, numbers: Ints | None = None) -> Window:
    """Return iterations `first` to `last` of all workers, or of one; `numbers`: those of them to take."""
    where = _WHERE if numbers is None else f"{_WHERE} and number in ({', '.join(map(str, numbers.tolist()))})"
    within = {"set": aggregation.iteration_set, "first": aggregation.first, "last": aggregation.last,
              "worker": worker, "aggregation": aggregation.id}  # fmt: skip
    workers = _workers(store, within, where)
    walls = {entry.number: entry.wall for entry in workers}
    facts = store.meta
    if not store.rows("select 1 from io limit 1"):
        facts["io"] = "none"
    if not reads.has_gpu(store):
        facts["gpu"] = "none"
    return Window(workers, _devices(store, within, where, walls), _totals(store, within), facts)


_WHERE = "iteration_set = :set and number between :first and :last and (:worker is null or worker = :worker)"


def _workers(store: Store, within: dict[str, int | None], where: str) -> tuple[Worker, ...]:
    lengths: dict[int, list[int]] = {}
    for number, length in store.rows(
        f"select worker, end_ns - start_ns - paused_ns from iteration where {where} order by worker, number",
        within,
    ):
        lengths.setdefault(number, []).append(length)
    sums = ", ".join(f"sum({part}_ns)" for part in PARTS)
    parts = {
        row[0]: dict(zip(PARTS, row[1:]))
        for row in store.rows(f"select worker, {sums} from iteration_part where {where} group by worker", within)
    }
    names = reads.worker_names(store)
    return tuple(
        Worker(number, names[number], sum(walls), tuple(walls), parts[number]) for number, walls in lengths.items()
    )


def _devices(store: Store, within: dict[str, int | None], where: str, walls: dict[int, int]) -> tuple[Device, ...]:
    sums = ", ".join(f"sum({name})" for name in DEVICE_COLUMNS)
    by_device = {row[:2]: dict(zip(DEVICE_COLUMNS, row[2:])) for row in store.rows(
        f"select worker, device, {sums} from iteration_device where {where} group by worker, device", within
    )}  # fmt: skip
    return tuple(
        Device(worker, number, walls[worker], by_device.get((worker, number), {}), name, events, sms)
        for worker, number, name, events, sms in store.rows(
            "select worker, number, name, events, sm_count from device order by worker, number"
        )
        if worker in walls
    )


def _totals(store: Store, within: dict[str, int | None]) -> dict[str, int]:
    """Return sums over operators and over events, for all of them and for subsets; see metrics.Window."""
    names = ", ".join((*_SUMS, "operators"))
    sums = ", ".join(f"sum({name}) as {name}" for name in _SUMS)
    out = _partial(
        store, within, _OPERATORS, (*_SUMS, "operators"),
        f"""select {names}, eligible, tc_kernels > 0 as used from (
                select {sums}, 1 as operators, o.eligible from op_stat s join operator o on o.id = s.operator
                where s.aggregation = :aggregation and (:worker is null or s.worker = :worker) group by s.operator)""",
    )  # fmt: skip
    return out | _partial(
        store, within, _EVENTS, _EVENT_SUMS,
        f"""select {", ".join(_EVENT_SUMS)}, kind, tc from op_kernel_stat
            where aggregation = :aggregation and (:worker is null or worker = :worker)""",
    )  # fmt: skip


def _partial(
    store: Store, within: dict[str, int | None], kinds: dict[str, str], names: tuple[str, ...], rows: str
) -> dict[str, int]:
    """Return the sums of the columns `names` of rows, over those that fulfil each condition."""
    sums = ", ".join(
        f"coalesce(sum({name}) filter (where {condition}), 0)" for condition in kinds.values() for name in names
    )
    totals = store.rows(f"select {sums} from ({rows})", within)[0]
    keys = (f"{prefix}{name}" for prefix in kinds for name in names)
    return dict(zip(keys, totals))

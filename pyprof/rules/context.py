# SPDX-License-Identifier: Apache-2.0
"""The steady iterations of an aggregation, and the data that rules need of them; each is computed only once.

Sums over operators and kernels cover all steady iterations. Of single events and API calls the columns are read that
a rule asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from pyprof.core.api_names import API_KINDS
from pyprof.core.intervals import at_places, groups
from pyprof.core.model import KERNEL, OPERATOR, Bools, Column, Ints
from pyprof.core.model import Device as Recorded
from pyprof.core.units import duration, percent
from pyprof.costs.hardware import gpus
from pyprof.costs.hardware.gpus import Gpu
from pyprof.costs.hardware.machine import Hardware
from pyprof.facts.device.partition import NOTHING, Union
from pyprof.facts.device.timeline import Excerpt
from pyprof.facts.host.gaps import Gaps, launch_bound
from pyprof.facts.host.host_work import HostWork
from pyprof.facts.path.what_if import Edit, together
from pyprof.facts.steps import sums
from pyprof.facts.steps.coverage import missing_launches
from pyprof.facts.steps.device_steps import activities
from pyprof.facts.steps.source import Source, used
from pyprof.facts.steps.steady_state import LEAST_STEADY, spread
from pyprof.facts.steps.window import window
from pyprof.metrics import Device, Window
from pyprof.rules import Finding, NeedsFacts, Outcome, Premise
from pyprof.rules.savings import Savings
from pyprof.rules.steady_steps import SteadySteps
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import plain
from pyprof.store import reads

_Result = TypeVar("_Result")
_TOP = 5  # rows of evidence
NOT_CUT = " (No steps were found: one-time work may be included.)"
NO_GPU = "needs a GPU: nothing in this recording ran on one; record on a machine with a GPU"
NO_WORK = "needs the work of the GPU: this recording has launches, and no kernels"


class Run(SteadySteps):
    """The input of rules."""

    def __init__(self, source: Source):
        self.source, self.store = source, source.store
        self.facts: Mapping[str, str] = source.store.meta
        self._work: dict[int, HostWork] = {}
        self._results: dict[Any, Any] = {}
        self.outcomes: dict[str, Outcome] = {}
        # Rules that found what holds up few of the ranks, for which others wait.
        self.late_ranks: set[str] = set()
        self.edits: dict[str, Mapping[int, Edit]] = {}  # by rule: what would be removed without what it found

    # --- the window

    @cached_property
    def numbers(self) -> Ints:
        """Numbers of the iterations of the aggregation that means are taken of."""
        return used(self.source)

    @property
    def steady(self) -> tuple[int, int]:
        """First and last of these."""
        if not len(self.numbers):
            return self.source.aggregation.first, self.source.aggregation.last
        return int(self.numbers[0]), int(self.numbers[-1])

    @cached_property
    def is_steady(self) -> bool:
        """True if these iterations are of about equal length; else they are all that there are, or too few to tell."""
        varies = spread(self.lengths.reindex(self.numbers).dropna().to_numpy(np.float64))
        return len(self.numbers) >= LEAST_STEADY and varies is not None and varies <= limit("R02.spread")

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """The iterations of the aggregation, by number and worker, with `length_ns`."""
        aggregation, worker = self.source.aggregation, self.source.worker
        names, rows = self.store.named(
            """select *, end_ns - start_ns - paused_ns as length_ns from iteration
               where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
               order by number, worker""",
            (aggregation.iteration_set, aggregation.first, aggregation.last, worker, worker),
        )
        return pd.DataFrame(rows, columns=names)

    @property
    def steady_iterations(self) -> pd.DataFrame:
        """Those that means are taken of."""
        return self.iterations[self.iterations["number"].isin(self.numbers)]

    @cached_property
    def lengths(self) -> pd.Series[int]:
        """Length of each whole iteration of the aggregation, of the slowest worker, by its number."""
        most = self.iterations.groupby("number")[["length_ns", "partial"]].max()
        return most.loc[most["partial"] == 0, "length_ns"]

    @cached_property
    def window(self) -> Window:
        """These iterations as the input of metrics; its totals are those of the whole aggregation."""
        return window(self.store, self.source.aggregation, self.source.worker, self.numbers)

    @cached_property
    def wall(self) -> int:
        """Length of the steady steps in ns, mean over the workers: that of the step-time report, in which a step lasts
        until what it launched has ended."""
        lengths = [steps.length(activity)[self.among(steps)] for activity, steps in activities(self.source)]
        return int(fmean(int(length.sum()) for length in lengths)) if lengths else 0

    @cached_property
    def steps(self) -> int:
        return max((len(worker.durations) for worker in self.window.workers), default=0)

    @property
    def per_step(self) -> str:
        """The text after a mean over iterations: empty if the run is one iteration, which is not a step."""
        return " a step" if self.cut else ""

    @cached_property
    def ids(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """Per worker and consecutive steady iterations: number of the worker, start and end on the host, then the
        bounds of its events and of its ops."""
        rows = self.steady_iterations
        runs = pd.Series(np.cumsum(np.diff(self.numbers, prepend=0) > 1), self.numbers).reindex(rows["number"])
        bounds = rows.groupby([runs.to_numpy(), "worker"]).agg(
            start=("host_start_ns", "min"), end=("host_end_ns", "max"), event=("first_event", "min"),
            events=("last_event", "max"), op=("first_op", "min"), ops=("last_op", "max"),
        )  # fmt: skip
        return list(bounds.reset_index("worker").itertuples(index=False, name=None))

    @property
    def workers(self) -> int:
        """The number of workers with steady iterations, at least 1."""
        return max(len({row[0] for row in self.ids}), 1)

    # --- facts and hardware

    @cached_property
    def used(self) -> tuple[Device, ...]:
        """Devices on which something ran."""
        return self.window.used

    @cached_property
    def gpus(self) -> dict[int, Gpu]:
        """The GPUs that were used and whose peaks are known, by number."""
        named = {number: row for number, row in self.devices.items() if row.name}
        return {number: gpu for number, row in named.items() if (gpu := gpus.of(row)) is not None}

    @cached_property
    def devices(self) -> dict[int, Recorded]:
        """The GPUs that were used, as they were recorded."""
        rows = self.store.rows(
            """select number, name, sm_count, compute_capability, memory_bytes, clock_hz, bandwidth_bytes_per_s
               from device where events > 0"""
        )
        return {row[0]: Recorded(*row) for row in rows}

    @cached_property
    def hardware(self) -> Hardware:
        return Hardware(self.gpus, None, self.facts)

    @cached_property
    def capability(self) -> float:
        """The lowest compute capability of the GPUs that were used. Raises NeedsFacts."""
        self.need_gpu()
        if "hip" in self.facts or any((row.name or "").startswith("AMD") for row in self.devices.values()):
            raise NeedsFacts("needs an NVIDIA GPU: tensor core support is derived from its compute capability")
        texts = [row.compute_capability for row in self.devices.values()]
        known = [gpu.capability for gpu in self.gpus.values()]
        numbers = [float(text) for text in texts if text and text.replace(".", "", 1).isdigit()]
        numbers += [] if len(numbers) == len(texts) else [number for number in known if number is not None]
        if len(numbers) < len(texts):
            raise NeedsFacts(
                "needs the GPU's compute capability, which this recording lacks; record with pyprof, or export all "
                "tables of nsys (TARGET_INFO_GPU)"
            )
        return min(numbers)

    @cached_property
    def missing_launches(self) -> tuple[int, int]:
        """The number of launches whose work is not in the recording, and that of all launches."""
        return missing_launches(self.store)

    @property
    def on_cpu(self) -> bool:
        """True if nothing ran on a GPU; False also where what ran on it is not in the recording."""
        return not self.used and not self.missing_launches[0]

    @cached_property
    def trains(self) -> bool:
        """True if there is a backward pass."""
        return bool(self.store.rows("select 1 from operator where direction = 1 limit 1"))

    def time(self, length: float, per_step: bool = True) -> str:
        """Return a time in the window as text: that of a step if there are steps, with "a step" if `per_step`."""
        return duration(length / max(self.steps, 1)) + (self.per_step if per_step else "")

    def cost(self, length: float) -> str:
        """Return a time in the window as text, with its share: "2.1 ms a step, 4.0 % of the time"."""
        return f"{self.time(length)}, {percent(self.share(length))} of the time"

    def need_gpu(self) -> None:
        if not self.used:
            raise NeedsFacts(NO_GPU if self.on_cpu else NO_WORK)

    def need_launches(self) -> None:
        self.need_gpu()
        if not self.store.rows("select 1 from api limit 1"):
            raise NeedsFacts('needs the calls of the CUDA API; record with pyprof, or "nsys profile -t cuda,nvtx"')

    def need_steps(self) -> None:
        if not self.cut:
            raise NeedsFacts(
                "needs iterations, to separate repeated work from one-time work; call pyprof.step() at the end of "
                "each, or name a key operator"
            )

    def need_fact(self, name: str, what: str) -> str:
        """Return a fact of the run. Raises NeedsFacts."""
        value = self.facts.get(name)
        if value is None:
            raise NeedsFacts(f"needs {what}, which this recording lacks; record with pyprof")
        return value

    # --- sums over the steady iterations

    @cached_property
    def operators(self) -> pd.DataFrame:
        """The table of operators by id, with `source`: the innermost line of the stack."""
        names, rows = self.store.named(
            """select o.id, o.name, o.type, o.mod, o.module, o.direction, o.phase, o.params, o.dtype, o.shapes,
                      o.eligible, o.unassociated, k.frames
               from operator o left join stack k on k.id = o.stack order by o.id"""
        )
        frame = pd.DataFrame(rows, columns=names).set_index("id")
        frame["source"] = [text.rpartition("\n")[2] or None if text else None for text in frame["frames"]]
        return frame

    @cached_property
    def kernel_names(self) -> pd.DataFrame:
        """The names of kernels by id, with their kind, `what`."""
        query = "select id, name as kernel, short_name, kind as what from kernel_name order by id"
        names, rows = self.store.named(query)
        return pd.DataFrame(rows, columns=names).set_index("id")

    @cached_property
    def ops(self) -> pd.DataFrame:
        """Sums of executions per operator, with its columns."""
        keys = ["calls", "kernels", "kernel_ns", "cpu_ns", "gpu_ns", "overhead_ns"]
        return self._sums(sums.OPS, 5, keys).join(self.operators, on="operator")

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Sums of kernels per operator, name and use of tensor cores (as in the table event; 3: unknown)."""
        return self._events(KERNEL)

    @cached_property
    def operator_events(self) -> pd.DataFrame:
        """The same sums of operator events, which a recording without a GPU has instead of kernels."""
        return self._events(OPERATOR)

    def _events(self, kind: int) -> pd.DataFrame:
        keys = ["calls", "gpu_ns", "flops", "bytes", "flops_unknown_ns", "bytes_unknown_ns"]
        added = self._sums(sums.EVENTS, 3, keys)
        added = added[added["kind"] == kind].join(self.kernel_names, on="name")
        added = added.join(self.operators.rename(columns={"name": "path"}), on="operator")
        return added.reset_index(drop=True)

    def _sums(self, shape: sums.Shape, place: int, columns: list[str]) -> pd.DataFrame:
        names = [*shape.keys, *columns]
        parts = [
            sums.between(self.store, shape, int(row[place]), int(row[place + 1])).select(names).to_pandas()
            for row in self.ids
        ]
        whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)
        return whole.groupby(list(shape.keys), as_index=False, sort=True)[columns].sum()

    @cached_property
    def kernel_time(self) -> int:
        """Sum of the times of all kernels."""
        return int(self.kernels["gpu_ns"].sum())

    # --- single events

    def once(self, function: Callable[[Run], _Result]) -> _Result:
        """Return what a function works out of this run, which several rules need."""
        if function not in self._results:
            self._results[function] = function(self)
        result: _Result = self._results[function]
        return result

    @cached_property
    def excerpts(self) -> list[Excerpt]:
        """The activity in the steady steps: one excerpt per worker and consecutive steps."""
        return [
            Excerpt(self.store, worker, (start, end), (first, last)) for worker, start, end, first, last, *_ in self.ids
        ]

    def of_worker(self, worker: int) -> list[Excerpt]:
        """Return the excerpts of a worker, by time."""
        return [one for one in self.excerpts if one.worker == worker]

    def host_work(self, worker: int) -> HostWork:
        """Return what the threads of a worker did since the recording began, until its last steady step ended."""
        if worker not in self._work:
            windows = [one.window for one in self.of_worker(worker)]
            begin = min(self.source.activity(worker).span[0], windows[0][0])
            self._work[worker] = HostWork(Excerpt(self.store, worker, (begin, windows[-1][1])))
        return self._work[worker]

    @cached_property
    def _replay(self) -> Savings | None:
        """None where nothing on a GPU was launched, or no launch is in the recording."""
        launched = any(one.launched.any() for one in self.excerpts)
        return Savings(self.source, self.excerpts, self.steady_iterations) if launched else None

    def waits(self, worker: int) -> Union:
        """Return the time of the steady steps in which the host of a worker waited for the device."""
        return NOTHING if self._replay is None else self._replay.waits(worker)

    def edit(self, make: Callable[[Excerpt], Edit]) -> dict[int, Edit]:
        """Return what is to be removed of each worker, by what is to be removed of each excerpt."""
        workers = dict.fromkeys(one.worker for one in self.excerpts)
        return {worker: together(map(make, self.of_worker(worker))) for worker in workers}

    def without(self, rule: str, edits: Mapping[int, Edit], otherwise: int) -> int:
        """Return by how many ns the window would be shorter without what a rule is about, by worker. `otherwise`: what
        that took, which is the answer where nothing was launched."""
        self.edits[rule] = edits
        return otherwise if self._replay is None else self._saving(self._replay, edits)

    def beyond(self, rules: Iterable[str], in_time: int) -> int:
        """Return by how many ns the window would be shorter if launches came in time, after what these rules are about
        is removed. `in_time`: the time that the GPU waits for launches."""
        edits = [self.edits[rule] for rule in rules if rule in self.edits]
        if not edits or self._replay is None:
            return in_time
        workers = {number for one in edits for number in one} | set(self._replay.ranks)
        removed = {number: together(one.get(number, Edit()) for one in edits) for number in workers}
        both = {number: edit._replace(in_time=True) for number, edit in removed.items()}
        return min(self._saving(self._replay, both) - self._saving(self._replay, removed), in_time)

    def _saving(self, replay: Savings, edits: Mapping[int, Edit]) -> int:
        return replay.without(edits, self.steps if self.cut else None)

    def events(self, names: Sequence[str], select: Callable[[Excerpt], Bools | Ints | slice]) -> pd.DataFrame:
        """Return columns of events of the steady steps, of those that `select` returns, -1 where they are unknown, and
        `worker`. Operator events take the place of a GPU's in a recording without one."""
        parts = [pd.DataFrame({name: np.empty(0, np.int64) for name in (*names, "worker")})]
        for one in self.excerpts:
            rows, columns = select(one), one.operator_event.once(*names) if self.on_cpu else one.once(*names)
            values = {name: known(column.take(rows)) for name, column in columns.items()}
            parts.append(pd.DataFrame({**values, "worker": one.worker}))
        return pd.concat(parts, ignore_index=True)

    def late_gaps(self, excerpt: Excerpt) -> tuple[Gaps, Ints]:
        """Return the gaps of an excerpt in which all devices waited for launches, and their lengths in ns."""
        activity = self.source.activity(excerpt.worker)
        return launch_bound(activity, *excerpt.ids("event"), excerpt.window[0])

    def calls(self, *kinds: str) -> pd.DataFrame:
        """Return API calls of the steady steps, of given kinds or all: worker, operator, -1 outside of all,
        call, start_ns, duration_ns."""
        codes, parts = [API_KINDS.index(name) for name in kinds], []
        for one in self.excerpts:
            rows = np.isin(one.call["kind"].values, codes) | (not kinds)
            columns = {name: one.of_calls(name).values[rows] for name in ("name", "start_ns", "duration_ns")}
            operator = self.operator_of(one.of_calls("op").take(rows))
            parts.append(pd.DataFrame({"worker": one.worker, "operator": operator, **columns}))
        table = pd.concat(parts, ignore_index=True)
        texts = reads.texts(self.store)
        table["call"] = table.pop("name").map(texts).fillna("").astype(object)
        return table

    def operator_of(self, op: Column) -> Ints:
        """Return the operators of executions of one worker, by their ids; -1 where there is none."""
        known = op.values[op.mask()]
        low, high = (int(known.min()), int(known.max()) + 1) if len(known) else (0, 0)
        operators = self.store.table("op", ("operator",), low, high)["operator"].values
        return at_places(operators, np.where(op.mask(), op.values - low, -1))

    def step_of(self, ids: Ints, first: str = "first_event") -> Ints:
        """Return the numbers of the iterations of events, or of executions (`first_op`), by their ids."""
        rows = self.iterations.sort_values([first, "number"])
        place = np.searchsorted(rows[first], ids, side="right") - 1
        return at_places(rows["number"].to_numpy(np.int64), place)

    def per_worker(self, length: float) -> int:
        """Return the mean over the workers of a sum of lengths of one thread of each."""
        return int(length / self.workers)

    def rate(self, count: float) -> float:
        """Return how often something happens in a step of a worker."""
        return count / max(self.steps * self.workers, 1)

    # --- figures of the window

    def mean(self, name: str) -> int:
        """Return a length of `iteration_device`, mean over the devices that were used."""
        return int(fmean(device.sums.get(name, 0) for device in self.used)) if self.used else 0

    def part(self, name: str) -> int:
        """Return a part of the wall time, mean over the workers."""
        workers = self.window.workers
        return int(fmean(worker.parts[name] for worker in workers)) if workers else 0

    @property
    def loading(self) -> int:
        """The time that the loop waits for its data loader: in which a GPU is idle because of it, if there is one."""
        return self.idle.get("data loader", 0) if self.source.gpu else self.part("dataloader")

    @property
    def late(self) -> int:
        """The time that a GPU waits for launches that come too late."""
        return self.idle.get("launch-bound", 0)

    def per_device(self, length: float) -> int:
        """Return one device's part of a sum over all devices, at most the length of the window."""
        return max(min(int(length) // max(len(self.used), 1), self.wall), 0)

    def share(self, length: float) -> float:
        return length / self.wall if self.wall else 0.0

    def finding(
        self,
        problem: str,
        advice: str,
        saving: float | None,
        evidence: Iterable[Mapping[str, Any]],
        verify: str,
    ) -> Finding:
        """Return a finding, with its saving limited to the possible range. The rule's id is filled in later."""
        if not self.cut:
            problem += NOT_CUT
        rows = tuple({key: plain(cell) for key, cell in row.items()} for row in list(evidence)[:_TOP])
        bounded = None if saving is None else max(min(int(saving), self.wall), 0)
        return Finding("", problem, advice, bounded, rows, verify)

    def top(self, frame: pd.DataFrame, by: str, columns: str) -> list[dict[str, Any]]:
        """Return the largest rows of a table. `columns`: their names, "time_ns=time" for one with another name in the
        result."""
        names = {word.partition("=")[0]: word.rpartition("=")[2] for word in columns.split()}
        largest = frame.sort_values(by, ascending=False, kind="stable").head(_TOP)
        return [dict(zip(names, row)) for row in largest[list(names.values())].itertuples(index=False)]

    def named(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the names of its operators in place of their numbers, and `source`."""
        about = self.operators[["name", "source"]].reindex(table["operator"])
        return table.assign(operator=about["name"].to_numpy(), source=about["source"].to_numpy())

    def by_operator(self, rows: pd.DataFrame, by: str, *keys: str, **figures: tuple[str, Any]) -> list[dict[str, Any]]:
        """Return the largest sums by operator and other keys: operator, source, keys, and figures, each a column and
        how it is summed up."""
        sums = self.named(rows.groupby(["operator", *keys], as_index=False).agg(**figures))
        return self.top(sums, by, " ".join(["operator", "source", *keys, *figures]))

    def of_kernels(self, rows: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the operators with the most time, of rows of `kernels`."""
        return self.by_operator(
            rows, "time_ns", params=("params", "first"), kernel=("short_name", "first"), kernels=("calls", "sum"),
            time_ns=("gpu_ns", "sum"),
        )  # fmt: skip


def unions(table: pd.DataFrame) -> dict[int, Union]:
    """Return the time from `begin` to `finish` of rows, by worker."""
    bounds = table[["begin", "finish"]].to_numpy(np.int64)
    workers = dict(groups(table["worker"].to_numpy(np.int64)))
    return {worker: Union(*bounds[rows].T.copy()) for worker, rows in workers.items()}


def known(column: Column) -> Ints:
    """Return values, -1 where there is none."""
    return column.values if column.present is None else np.where(column.present, column.values, -1)


def _launches_if_any(run: Run) -> None:
    if not run.on_cpu:
        run.need_launches()


def _kinds(run: Run) -> None:
    total = run.kernel_time
    known = int(run.kernels.loc[run.kernels["what"] != "other", "gpu_ns"].sum())
    if total and known < limit("known") * total:
        raise NeedsFacts(
            f"needs the kinds of the kernels, collectives above all: kernels with {percent(1 - known / total)} of the "
            "time have unknown names (see report kernel_summary)"
        )


GPU = Premise("something ran on a GPU", Run.need_gpu)
LAUNCHES = Premise("the calls of the CUDA API are recorded", Run.need_launches)
LAUNCHES_IF_ANY = Premise("if something ran on a GPU, the calls of the CUDA API are recorded", _launches_if_any)
STEPS = Premise("the recording is cut into iterations", Run.need_steps)
KINDS = Premise("the kind of nearly all kernels is known, by their time", _kinds)

# SPDX-License-Identifier: Apache-2.0
"""Rules about programs that run on a CPU alone: types, threads, short operators, uneven calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import OPTIMIZER
from pyprof.core.units import duration, percent
from pyprof.costs.hardware import cpus
from pyprof.facts.device.categories import of_operator
from pyprof.rules import Finding, NeedsFacts, Rows, rule
from pyprof.rules.context import Run
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import located, which

_COLUMNS = ["id", "op", "operator", "name", "start_ns", "duration_ns", "flops", "bytes"]  # of events
_WORK = ["type", "shapes", "dtype", "params", "direction", "phase"]  # of a call: what it does, wherever it is
_BY_PLACE = 4  # steps from which a call is compared with those of its own place alone
# Operators of torch itself: their inputs determine their work. Others may wait, or run any Python code.
_OF_TORCH = ("aten::", "mkldnn::", "quantized::")


def _operators(run: Run) -> pd.DataFrame | None:
    """Return the sums per operator of a program that uses no GPU; None if it uses one."""
    if not run.on_cpu:
        return None
    ops = run.ops
    return ops[(ops["unassociated"] == 0) & (ops["cpu_ns"] > 0)]


def _per_worker(run: Run, ops: pd.DataFrame) -> int:
    return min(int(ops["cpu_ns"].sum()) // run.workers, run.wall)


def _top(run: Run, ops: pd.DataFrame) -> list[dict[str, Any]]:
    return run.top(ops, "cpu_ns", "operator=name source dtype calls time_ns=cpu_ns")


_PRODUCTS = ("gemm", "convolution", "attention")  # categories


def _products(run: Run) -> pd.DataFrame:
    """Return the own time of operator events that are products, in calls in float32, by path of the call. The copies
    around a product in the same call are not part of it, nor are products of so few rows that reading the weights takes
    most of their time."""
    events = _single(run.operator_events)
    known = (events["flops_unknown_ns"] == 0) & (events["bytes_unknown_ns"] == 0)
    events = events[~known | (events["flops"] >= limit("R44.intensity") * events["bytes"])]
    return events.groupby("path", as_index=False, sort=False).agg(
        source=("source", "first"), calls=("calls", "sum"), gpu_ns=("gpu_ns", "sum")
    )


def _single(events: pd.DataFrame) -> pd.DataFrame:
    """Return the products in float32 among operator events."""
    product = which(events["kernel"], lambda name: of_operator("aten", name) in _PRODUCTS)
    return events[product & (events["dtype"] == "float32")]


def _interrupted(run: Run) -> pd.Series[int]:
    """Return how long products in float32 took beyond the time of equal ones, by path of the call, where R47 fires: no
    other type shortens that."""
    slow = run.once(_noise).join(run.kernel_names["kernel"], on="name")
    slow = _single(slow.join(run.operators[["dtype", "name"]].rename(columns={"name": "path"}), on="operator"))
    sums = {path: _excess(rows) for path, rows in slow.groupby("path")}
    return pd.Series(sums, dtype=np.int64)


@rule("R44", "cpu_float32", rows=Rows("categories", "Categories of work"))
def cpu_float32(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and matrix products and convolutions compute in float32 on a CPU with instructions that
    multiply bfloat16 at a higher rate (AMX, AVX512_BF16, BF16 of Arm). Their time is that of the products themselves,
    as in the categories of work, without the copies around them and products of few rows. The saving is what the ratio
    of the two peaks leaves of it: an upper bound, since memory or the conversions may limit them; unknown without
    steps, where the time has the warm-up in it. Where R47 fires, the time leaves out what it counts.

    Fires: half of the time in linear layers of float32 on a Sapphire Rapids or Zen 4, autocast off.
    Silent: the same under autocast; a CPU without such instructions; a fifth of the time; a recording with a GPU.
    """
    if not run.on_cpu:
        return None
    single = _products(run)
    interrupted = _interrupted(run).reindex(single["path"], fill_value=0)
    single["gpu_ns"] -= interrupted.to_numpy()
    time = min(int(single["gpu_ns"].sum()) // run.workers, run.wall)
    if run.share(time) <= limit("R44.share"):
        return None
    lost = int(interrupted.sum()) // run.workers
    own = f", and {run.time(lost)} more in interrupted calls, which have a finding of their own"
    cpu = cpus.of(run.facts)
    if isinstance(cpu, str):
        raise NeedsFacts(f"needs the peaks of the CPU, but {cpu}; record with pyprof")
    if run.need_fact("autocast.cpu.seen", "whether autocast was on for the CPU") != "no":
        return None
    narrow, wide = cpu.matrix.get("bfloat16"), cpu.peak("float32", True)
    if not narrow or not wide or narrow <= wide:
        return None
    once = " Record several steps to learn what it saves: this recording is one pass, with its warm-up."
    return run.finding(
        f"Matrix products and convolutions in float32 take {run.cost(time)}{own if lost else ''}. In "
        f"bfloat16 the peak of the CPU ({cpu.name}) is {narrow / wide:.3g} times as high, which leaves at least "
        f"{percent(wide / narrow)} of that: memory and the conversions may leave more.",
        "Run the forward pass and the loss under torch.autocast('cpu', dtype=torch.bfloat16); weights stay float32. "
        f"Check that the loss still goes down as before.{'' if run.cut else once}",
        time * (1 - wide / narrow) if run.cut else None,
        run.top(single, "gpu_ns", "operator=path source calls time_ns=gpu_ns"),
        "The same operators take less time, and their kernels name bfloat16.",
    )


@rule("R50", "double_precision", rows=Rows("detail", "Operators"))
def double_precision(run: Run) -> Finding | None:
    """Operators compute in float64, which takes twice the memory of float32, and at least twice the time on any
    processor. The saving is half of their time; it is more where products take most of it on a GPU for games or
    inference, and where operators fit the caches in float32 alone.

    Fires: a model after model.double(), or inputs that numpy made, in 10 % of the time.
    Silent: the same in float32; a loss that is added up in float64, in 1 % of the time.
    """
    if run.on_cpu:
        ops = run.ops
        own = ops[(ops["dtype"] == "float64") & (ops["unassociated"] == 0)]
        time, rows = _per_worker(run, own), _top(run, own)
    else:
        own = run.kernels[run.kernels["dtype"] == "float64"]
        time, rows = run.per_device(own["gpu_ns"].sum()), run.of_kernels(own)
    if run.share(time) <= limit("R50.share"):
        return None
    return run.finding(
        f"Operators in float64 take {run.cost(time)}.",
        "Unless the results need it, compute in float32: model.float(), and inputs as torch.from_numpy(array).float() "
        "or with dtype=torch.float32, since numpy's default is float64. torch.get_default_dtype() must be float32.",
        time // 2,
        rows,
        "The same operators name float32 and take at most half of the time.",
    )


@rule("R45", "cpu_threads")
def cpu_threads(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and operators use far fewer threads than the process has cores, or more threads than it
    has processors. The saving of more threads is unknown: it depends on how well the operators scale.

    Fires: torch.get_num_threads() is 1 and the process may use 8 cores; 16 threads in a container with 4 processors.
    Silent: as many threads as cores; half of them; operators that take less than half of the time.
    """
    ops = _operators(run)
    if ops is None or run.share(time := _per_worker(run, ops)) <= limit("R45.share"):
        return None
    count, usable, cores = (
        int(run.need_fact(name, what))
        for name, what in (
            ("threads.intraop", "the number of threads of an operator"),
            ("cpu.usable", "the number of processors that the process may use"),
            ("cpu.cores", "the number of cores"),
        )
    )
    own = max(min(usable, cores) // run.workers, 1)
    many = count > usable
    if not many and count >= limit("R45.cores") * own:
        return None
    share = f"Operators take {percent(run.share(time))} of the time"
    long = ops[ops["cpu_ns"] >= limit("R46.length") * ops["calls"]]
    return run.finding(
        f"{share} with {count} threads, but the process may use only {usable} processors: threads wait for each other."
        if many
        else f"{share} with {count} thread{'s' if count > 1 else ''}, and the process may use {own} cores.",
        f"Set torch.set_num_threads({usable if many else own}) or OMP_NUM_THREADS before the first operator runs. "
        "Workers of a DataLoader need processors of their own.",
        None if many else _per_worker(run, long) * (1 - count / own),
        _top(run, ops),
        "The step takes less time with the other number of threads.",
    )


@rule("R46", "cpu_short_operators", rows=Rows("detail", "Operators"))
def cpu_short_operators(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and much of the time goes to operators so short that calling them costs as much as their
    work: some 5 us for the dispatcher, the output's memory and autograd. Calls that consist of many such operators
    count too, those of optimizers do not (R21). The saving is that of equal calls: all of a step in the time of one, an
    upper bound. Or the program trains on batches of so few rows that products take as long as reading their weights:
    then these, gradients and the optimizer's step take as long with more rows, and the saving is that of 16.

    Fires: 1,000 calls a step that take 15 us each, half of the time; a linear layer called for each sample of a batch;
    training with a batch of 2.
    Silent: the same work in calls of 200 us; a fifth of the time in short calls; inference on one row.
    """
    ops = _operators(run)
    if ops is None:
        return None
    every, ops = ops, ops[ops["phase"] != OPTIMIZER]
    many = (ops["kernels"] > ops["calls"]) & (ops["gpu_ns"] < limit("R46.event") * ops["kernels"])
    short = ops[(ops["cpu_ns"] < limit("R46.length") * ops["calls"]) | many]
    each = short["calls"] / max(run.steps * run.workers, 1)
    often = each >= limit("R46.calls")
    if not often.any() and (rows := _rows(every)) < limit("R46.rows") and run.trains and run.cut:
        return _few_rows(run, every, rows)
    saving = int((short["cpu_ns"] * (1 - 1 / each))[often].sum()) // run.workers if run.cut else 0
    time, calls = _per_worker(run, short), int(short["calls"].sum()) // run.workers
    per_step = calls / max(run.steps, 1)
    if run.share(time) <= limit("R46.share") or per_step < limit("R46.calls"):
        return None
    return run.finding(
        f"{per_step:,.0f} calls{run.per_step} of short operators take {run.cost(time)}: "
        f"{duration(time / calls)} each, much of it for the call itself.",
        "Compile the model with torch.compile, which merges elementwise operators; use larger batches; replace loops "
        "over slices or samples by one operator over the whole tensor.",
        min(saving, time) or None,
        _top(run, short),
        "The calls of a step become fewer, and longer.",
    )


def _rows(ops: pd.DataFrame) -> float:
    """Return the largest number of rows (M) of the matrix products that take most of the time of products."""
    products = ops.assign(rows=ops["params"].astype(str).str.extract(r"\bM=(\d+)", expand=False).astype(float))
    products = products[products["rows"].notna()].sort_values("rows")
    if not len(products):
        return np.inf
    few = products["cpu_ns"].cumsum() <= limit("R46.products") * products["cpu_ns"].sum()
    return float(products["rows"].iloc[min(int(few.sum()), len(products) - 1)])


def _few_rows(run: Run, ops: pd.DataFrame, rows: float) -> Finding | None:
    fixed = ops[
        ops["params"].astype(str).str.contains(r"\bM=\d")
        | (ops["phase"] == OPTIMIZER)
        | (ops["type"] == "accumulate_grad")
        | (ops["cpu_ns"] < limit("R46.length") * ops["calls"])
    ]
    time = _per_worker(run, fixed)
    if run.share(time) <= limit("R46.share"):
        return None
    return run.finding(
        f"The batch is so small that its size hardly matters: matrix products have {rows:.0f} row"
        f"{'s' if rows > 1 else ''}, and with gradients, the optimizer's step and short operators {run.cost(time)}, "
        f"would take about as long with {limit('R46.rows'):.0f}.",
        "Use larger batches: as many rows take fewer steps. Adapt the learning rate.",
        time * (1 - rows / limit("R46.rows")),
        _top(run, fixed),
        "Samples per second rise; a step takes hardly longer.",
    )


def _slow_calls(run: Run) -> pd.DataFrame:
    """Return the events of operators that take far longer than equal ones: operator, name, step, start_ns,
    duration_ns, `usual_ns`, `equals` (the number of equal calls, itself included) and `first` (of them).
    `attrs["repeated"]` has the number of all calls that have an equal.

    Equal are calls of one operator of torch in the same place of calls of equal type, shapes, parameters, FLOPs and
    bytes; with enough steps only those of one line and module, since strides may differ elsewhere. The usual time is
    the median, of an even number the lower one.
    """
    frame = run.events(_COLUMNS, lambda one: one.operator_event["op"].mask() & one.operator_event["operator"].mask())
    kernel = run.kernel_names["kernel"]
    of_torch = which(kernel, lambda name: name.startswith(_OF_TORCH))
    operators = run.operators
    by_place = run.steps >= _BY_PLACE
    work = operators.groupby(_WORK, dropna=False, sort=False).ngroup()
    if by_place:
        work = pd.Series(np.arange(len(operators)), index=operators.index)
    # Without shapes only the FLOPs and bytes tell that two calls do the same.
    known = operators["shapes"].notna()
    frame["turn"] = frame.groupby(["op", "name"], sort=False).cumcount()
    frame = frame[of_torch.reindex(frame["name"], fill_value=False).to_numpy()]
    frame = frame[known.reindex(frame["operator"], fill_value=False).to_numpy() | (frame["bytes"] > 0)]
    frame["work"] = work.reindex(frame["operator"]).to_numpy()
    groups = frame.groupby(["worker", "work", "name", "turn", "flops", "bytes"], sort=False)
    frame["group"], frame["first"] = groups.ngroup(), groups.cumcount() == 0
    frame["equals"] = groups["name"].transform("size")
    frame = frame[frame["equals"] >= (limit("R47.equal") if by_place else 2)]
    order = frame.sort_values(["group", "duration_ns"], kind="stable")
    begin = np.flatnonzero(np.r_[True, np.diff(order["group"].to_numpy()) != 0][: len(order)])
    sizes = np.diff(np.r_[begin, len(order)])
    usual = order["duration_ns"].to_numpy()[begin + (sizes - 1) // 2]
    frame["usual_ns"] = pd.Series(np.repeat(usual, sizes), index=order.index).reindex(frame.index)
    far = frame["duration_ns"] > limit("R47.times") * frame["usual_ns"]
    slow = frame[far & (frame["duration_ns"] - frame["usual_ns"] >= limit("R47.length"))]
    slow = slow.assign(step=run.step_of(slow["id"].to_numpy(np.int64)))
    slow.attrs["repeated"] = len(frame)
    return slow


def _noise(run: Run) -> pd.DataFrame:
    """Return those calls where they are few and cost much of the time; otherwise none."""
    slow = _slow_calls(run)
    repeated = slow.attrs["repeated"]
    few = len(slow) <= limit("R47.few") * repeated
    if few and run.share(run.per_worker(_excess(slow))) > limit("R47.share"):
        return slow
    none = slow.iloc[:0].copy()
    none.attrs["repeated"] = repeated
    return none


def _excess(slow: pd.DataFrame) -> int:
    """Return the time of slow calls beyond the usual time of their equals."""
    return int((slow["duration_ns"] - slow["usual_ns"]).sum())


@rule("R47", "uneven_calls", rows=Rows("detail", "Operators"))
def uneven_calls(run: Run) -> Finding | None:
    """Nothing runs on a GPU, and a few calls of operators take far longer than equal calls: what takes the time is not
    their work. Equal calls are of one operator with the same shapes, parameters, FLOPs and bytes, in the same place if
    there are four steps or more; collectives and operators from outside torch are left out, since they may wait. It is
    a note on the measurement and saves nothing: no change of the program takes such time away. Where this rule fires,
    R44 leaves that time out.

    Fires: in one step of ten each of five calls takes 12 ms in place of 1 ms, in steps of 20 ms.
    Silent: the same calls in 4 ms; half of all calls in 12 ms; one call of a step, always the same, in 12 ms.
    """
    if not run.on_cpu:
        return None
    slow = run.once(_noise)
    if not len(slow):
        time = run.per_worker(run.operator_events["gpu_ns"].sum())
        if not run.operators["shapes"].notna().any() and run.share(time) > limit("R47.share"):
            raise NeedsFacts(
                "needs the shapes of tensors, to compare equal calls; record with pyprof, or with record_shapes=True"
            )
        return None
    repeated = slow.attrs["repeated"]
    time, beyond = run.per_worker(slow["duration_ns"].sum()), run.per_worker(_excess(slow))
    rows = _by_operator(run, slow)
    worst = rows.iloc[0]
    when = _when(run, slow) + ("" if run.cut else _first(slow))
    return run.finding(
        f"{len(slow):,} of {repeated:,} comparable calls of operators take {run.cost(time)}; as long as the "
        f"median of equal calls they would take {run.time(time - beyond, False)}. They are slow now and then, {when}. "
        f"Most of that time is {worst['kernel']} in {located(worst['path'], worst['source'])}, up to "
        f"{duration(worst['longest'])} in place of {duration(worst['usual_ns'])}.",
        "What interrupts them is not recorded: other processes, more threads than processors, memory that is touched "
        f"for the first time, or the clock. {_threads(run)}/usr/bin/time -v counts context switches and page faults of "
        "the program. Leave other work off the machine, give the program processors of its own (taskset) and as many "
        "threads (OMP_NUM_THREADS), and record again."
        + ("" if run.cut else " Record several steps: they tell one-time work from the rest."),
        None,
        run.top(rows, "time", "operator=path source kernel slow_calls=slow equal_calls=equals time_ns=time usual_ns"),
        "Recorded again, other calls are the slow ones; on a machine without other work hardly any is.",
    )


def _first(slow: pd.DataFrame) -> str:
    first = int(slow["first"].sum())
    if not first:
        return ""
    verb = "is the first call of its kind" if first == 1 else "are the first calls of their kinds"
    return f" ({first:,} of them {verb}, which may be one-time work)"


def _by_operator(run: Run, slow: pd.DataFrame) -> pd.DataFrame:
    """Return the slow calls by operator and event, the most time beyond the usual first."""
    rows = slow.groupby(["operator", "name"], as_index=False, sort=False).agg(
        slow=("name", "size"), equals=("equals", "max"), time=("duration_ns", "sum"),
        longest=("duration_ns", "max"), usual_ns=("usual_ns", "min"),
    )  # fmt: skip
    rows = rows.join(run.operators[["name", "source"]].rename(columns={"name": "path"}), on="operator")
    return rows.join(run.kernel_names[["kernel"]], on="name").sort_values("time", ascending=False, kind="stable")


def _when(run: Run, slow: pd.DataFrame) -> str:
    """Return where in the recording the slow calls are."""
    if run.cut:
        return f"in {slow['step'].nunique():,} of {run.steps:,} steps"
    end = int((slow["start_ns"] + slow["duration_ns"]).max())
    return f"between {duration(int(slow['start_ns'].min()))} and {duration(end)} of the recording"


def _threads(run: Run) -> str:
    """Return a sentence about the threads of an operator and the processors of the process, if both are known."""
    threads, processors = run.facts.get("threads.intraop"), run.facts.get("cpu.usable")
    if not threads or not processors:
        return ""
    return f"An operator has {threads} threads here, and the process may use {processors} processors. "

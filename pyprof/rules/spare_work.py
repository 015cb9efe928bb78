# SPDX-License-Identifier: Apache-2.0
"""Rules about work that a program could do without: dense gradients of tables, forward passes without a backward,
recomputation, and copies of tensors."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from pyprof.core.model import BPROP, FORWARD, FPROP, OPTIMIZER, RECOMPUTE
from pyprof.core.units import percent
from pyprof.rules import Finding, Rows, rule
from pyprof.rules.context import STEPS, Run
from pyprof.rules.graphs import Nodes, common_lines
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import located

_SHAPE = re.compile(r"\(([\d, ]*)\)")
_PLACE = ["type", "module", "shapes"]
_SPARSE = ",True"  # the last argument of an embedding


def _time(run: Run, total: float) -> int:
    """Return the time of one device, or of one worker without a GPU."""
    return int(total) // run.workers if run.on_cpu else run.per_device(total)


def _largest(table: pd.DataFrame) -> str:
    """Return the operator with the most time, and its line."""
    first = table.sort_values("time", kind="stable").iloc[-1]
    return located(first["name"], first["source"])


def _column(run: Run) -> str:
    """Return the column with the time of operators: on a CPU all of their own, which has the memory that they free."""
    return "cpu_ns" if run.on_cpu else "gpu_ns"


@rule("R51", "dense_gradient", STEPS, rows=Rows("detail", "Embeddings", ("type:embedding",)))
def dense_gradient(run: Run) -> Finding | None:
    """A step looks up few rows of a large embedding, whose gradient has all rows: it is filled with zeros, added up and
    applied by the optimizer although most rows did not change. The saving is the time of the embedding's backward for
    the rows that were not looked up, and their part of the optimizer, by the sizes of the modules' weights.

    Fires: 1,280 rows of a table of 200,000 in each step, sparse=False.
    Silent: sparse=True; a table of 1,000 rows; most rows looked up in each step; a layer with a weight of that shape,
    which may be the same tensor: then its gradient is dense anyway.
    """
    ops = run.ops.assign(time=run.ops[_column(run)])
    backward = ops[(ops["type"] == "embedding") & (ops["direction"] == BPROP) & ops["shapes"].notna()]
    sizes = [[_sizes(text) for text in str(shapes).split("; ")[:2]] for shapes in backward["shapes"]]
    tables = [one[-1] if len(one) == 2 and len(one[-1]) == 2 else (0, 0) for one in sizes]
    operands = _operands(ops)
    backward = backward.assign(
        size=[rows * width for rows, width in tables],
        looked_up=[np.prod(one[0]) / rows if rows else 1.0 for one, (rows, _) in zip(sizes, tables)],
        tied=[f"({rows}, {width})" in operands for rows, width in tables],
    )
    sparse = backward["params"].astype(str).str.endswith(_SPARSE)
    table = backward[~sparse & ~backward["tied"] & (backward["looked_up"] <= limit("R51.rows"))]
    if not len(table):
        return None
    unused = 1 - table["looked_up"]
    optimizer = ops[(ops["phase"] == OPTIMIZER) | (ops["type"] == "accumulate_grad")]["time"].sum()
    of_optimizer = (unused * table["size"]).sum() / max(_weights(run), int(table["size"].sum()))
    time = _time(run, (unused * table["time"]).sum() + of_optimizer * optimizer)
    if run.share(time) <= limit("R51.share"):
        return None
    return run.finding(
        f"The gradient of {_largest(table)} has all rows of its table, of which a step looks up at most "
        f"{percent(table['looked_up'].max())}: with the optimizer's part that takes {run.cost(time)}.",
        "nn.Embedding(..., sparse=True) with an optimizer that takes sparse gradients (SGD, SparseAdam, Adagrad): only "
        "rows that were looked up have a gradient.",
        time,
        run.top(table, "time", "operator=name source shapes time_ns=time"),
        "The backward of the embedding and the optimizer take a fraction of the time.",
    )


def _operands(ops: pd.DataFrame) -> set[str]:
    """Return the shapes of the second operands of operators in modules that are no lookup: weights of layers."""
    own = ops[ops["module"].notna() & ops["shapes"].notna() & (ops["type"] != "embedding")]
    return {shapes.split("; ")[1] for shapes in own["shapes"] if "; " in shapes}


def _sizes(text: str) -> tuple[int, ...]:
    match = _SHAPE.fullmatch(text)
    return tuple(int(number) for number in match[1].split(",") if number.strip()) if match else ()


def _weights(run: Run) -> int:
    """Return the number of elements of the weights of the modules in the recording: of each its largest tensor but the
    input."""
    own = run.operators
    own = own[own["module"].notna() & own["shapes"].notna() & (own["direction"] == FPROP)]
    sizes = [
        max((int(np.prod(_sizes(text))) for text in shapes.split("; ")[1:]), default=0) for shapes in own["shapes"]
    ]
    return int(pd.Series(sizes, dtype=np.int64).groupby(own["module"].to_numpy()).max().sum())


@rule("R52", "unused_forward", STEPS, rows=Rows("detail", "Operators"))
def unused_forward(run: Run) -> Finding | None:
    """Modules run forward more often than backward in each step, with inputs of the same shapes: a second forward pass,
    such as one for a metric. Or a forward pass of any shape records a graph that no backward uses: torch.no_grad() is
    missing. The saving is the time of executions of the first kind; what no_grad() saves is memory first, and unknown.
    Modules whose forward pass is computed again for the backward do not count.

    Fires: model(x) for the loss, and once more for the accuracy; an evaluation in each step without no_grad().
    Silent: one forward pass; an evaluation of another batch size, or a frozen module, under no_grad(); a module that
    calls one operator twice, once on what needs no gradient.
    """
    executed = _executions(run)
    if not len(executed):
        return None
    about = run.operators.loc[executed["operator"], [*_PLACE, "frames"]].fillna("").reset_index(drop=True)
    executed = pd.concat([executed.reset_index(drop=True), about], axis=1)
    unused, trained = executed[~executed["used"]], executed["frames"][executed["used"]]
    rows = executed.groupby(_PLACE)["used"].agg(["sum", "size"])
    rows = rows[rows["sum"] > 0]
    again = rows["size"] - rows["sum"] >= run.steps * run.workers
    rows = rows[again.groupby(level="module").transform("all")]  # the module as a whole, not one operator of it
    second = unused.join(rows[[]], on=_PLACE, how="inner")
    time = _time(run, second["time"].sum())
    much = run.share(_time(run, unused["time"].sum())) > limit("R52.share")
    graph = _with_graph(run, unused) if much else unused[:0]
    graph_time = _time(run, graph["time"].sum())
    problems, advice, parts = [], [], list[pd.DataFrame]()
    if run.share(time) > limit("R52.share"):
        problems.append(
            f"Forward computations that no backward follows{_called_at(second, trained)} take "
            f"{run.cost(time)}: modules run forward more often than backward, mostly "
            f"{_largest(_by_operator(run, second))}."
        )
        advice.append(
            "Use the output of the forward pass that the loss has, detached, in place of a second one. What has to run "
            "again (another input of the same shape) belongs under torch.no_grad(), every N steps."
        )
        parts.append(second)
    if run.share(graph_time) > limit("R52.share"):
        problems.append(
            f"Forward passes{_called_at(graph, trained)} record a graph that no backward uses, in "
            f"{run.cost(graph_time)}."
        )
        advice.append(
            "Run an evaluation under torch.no_grad() or torch.inference_mode(): it makes no graph, and frees each "
            "activation as soon as the next operator has read it."
        )
        parts.append(graph)
    if not problems:
        return None
    return run.finding(
        " ".join(problems),
        " ".join(advice),
        time if parts[0] is second else None,
        run.top(_by_operator(run, parts[0]), "time", "operator=name source shapes time_ns=time"),
        "Each operator has as many executions forward as backward, and the peak of memory is lower.",
    )


def _by_operator(run: Run, executed: pd.DataFrame) -> pd.DataFrame:
    return run.operators.join(executed.groupby("operator")["time"].sum(), how="inner")


def _called_at(executed: pd.DataFrame, trained: pd.Series[str]) -> str:
    """Return where executions were called from: the innermost line that all of them have in common, and that is not in
    the stack of those with a backward, as the lines of a module are."""
    shared = {line for stack in trained.unique() for line in stack.split("\n")}
    lines = common_lines(executed["frames"].unique())
    own = [line for line in lines if line not in shared] or lines
    return f", called at {own[-1]}," if own else ""


def _with_graph(run: Run, executed: pd.DataFrame) -> pd.DataFrame:
    """Return the executions in which nodes of a graph were made."""
    parts = [executed[:0]]
    for one in run.excerpts:
        own = executed[executed["worker"].eq(one.worker) & executed["start"].between(*one.window)]
        nodes = Nodes(run, one).between(*own[["thread", "start", "end"]].to_numpy(np.int64).T)
        parts.append(own[nodes > 0])
    return pd.concat(parts)


def _executions(run: Run) -> pd.DataFrame:
    """Return the executions forward of operators in modules, with whether a backward used each."""
    about = run.operators
    again = set(about.loc[about["phase"] == RECOMPUTE, "module"].dropna())
    own = about[
        (about["direction"] == FPROP) & (about["phase"] == FORWARD) & (about["unassociated"] == 0)
        & about["module"].notna() & ~about["module"].isin(again)
    ]  # fmt: skip
    names = {"id": "id", "operator": "operator", "thread": "thread", "start_ns": "start", "end_ns": "end"}
    names[_column(run)] = "time"
    parts = []
    for worker, *_, first, last in run.ids:
        columns = run.store.table("op", (*names, "forward"), int(first), int(last))
        forward = columns["forward"]
        used = np.unique(forward.values[forward.mask()])
        part = pd.DataFrame({short: columns[name].values for name, short in names.items()})
        part = part[part["operator"].isin(own.index)]
        parts.append(part.assign(worker=worker, used=np.isin(part["id"], used)))
    return pd.concat(parts) if parts else pd.DataFrame()


@rule("R53", "recomputation", STEPS, rows=Rows("detail", "Operators"))
def recomputation(run: Run) -> Finding | None:
    """Activation checkpointing computes parts of the forward pass again in the backward. The saving is the time of what
    is computed again; it costs memory.

    Fires: torch.utils.checkpoint around each block, in 10 % of the time.
    Silent: without it; around one block of many.
    """
    ops = run.ops.assign(time=run.ops[_column(run)])
    table = ops[ops["phase"] == RECOMPUTE]
    time = _time(run, table["time"].sum())
    if run.share(time) <= limit("R53.share"):
        return None
    modules = table["module"].fillna(table["name"]).nunique()
    return run.finding(
        f"Activation checkpointing repeats {run.time(time)} of forward computation, {percent(run.share(time))} of the "
        f"time, in the backward pass: {modules} module{'s' if modules > 1 else ''}, mostly {_largest(table)}.",
        "Checkpoint fewer modules, as memory allows: those with large activations and little computation first, or "
        "only some operators (torch.utils.checkpoint.create_selective_checkpoint_contexts).",
        time,
        run.top(table, "time", "operator=name source calls time_ns=time"),
        "The report account has less recomputation; the report memory says what it costs.",
    )


_COPIES = "clone|contiguous|copy|reshape|flatten"


@rule("R54", "tensor_copies", STEPS, rows=Rows("detail", "Operators"))
def tensor_copies(run: Run) -> Finding | None:
    """Operators of the program copy tensors within one device: clone, contiguous, copy_, and reshape or flatten of what
    is not contiguous. The saving is all of their time: some of them may be needed.

    Fires: x.t().contiguous() in each layer; clones of a model's state in each step.
    Silent: a view; a copy in 1 % of the time; conversions of types and copies to a GPU, which have rules of their own.
    """
    ops = run.ops.assign(time=run.ops["cpu_ns" if run.on_cpu else "kernel_ns"])
    table = ops[ops["type"].str.fullmatch(_COPIES) & (ops["unassociated"] == 0) & (ops["direction"] != BPROP)]
    time = _time(run, table["time"].sum())
    if run.share(time) <= limit("R54.share"):
        return None
    return run.finding(
        f"Copies of tensors take {run.cost(time)}, mostly {_largest(table)}.",
        "Keep tensors in the layout that the next operator takes, and permute once, before the loop; use view() where "
        "no copy is needed; clone only what is changed afterwards.",
        time,
        run.top(table, "time", "operator=name source shapes calls time_ns=time"),
        "The operators are gone, or take less of the step.",
    )

# SPDX-License-Identifier: Apache-2.0
"""A V100 recording of 2020 beside what the tools of 2020 made of it: every difference has a reason.

docs/differences.md lists them; `pytest --regold` rewrites it. A difference without a reason fails.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof.profiles import load

ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """One kernel in both tables: ours and theirs by column, and what decides."""

    index: int
    kernel: str
    ours: dict[str, str]
    theirs: dict[str, str]

    @property
    def op(self) -> str:
        return self.ours["op"]

    @property
    def backward(self) -> bool:
        return self.ours["dir"] == "bprop"


class Reason(NamedTuple):
    columns: tuple[str, ...]
    applies: Callable[[Row], bool]
    text: str


COLUMNS = ("op", "dir", "seq", "flops", "bytes")
COSTS = ("flops", "bytes")
_PRODUCTS = ("linear",)
_ACCUMULATE = "accumulate_grad"


def unknown(row: Row) -> bool:
    return row.ours["flops"] == "na"


# The first that fits counts.
REASONS = [
    Reason(COLUMNS, lambda r: r.op == _ACCUMULATE,
           "AccumulateGrad is backward: its range has no sequence number, and the original takes numbered ranges only "
           "for backward. It names no operator of the user's, so the cost of its addition is unknown (na, not 0)."),
    Reason(("seq",), lambda r: r.op in ("sum", "add"),
           "The range says `seq = 0`; the original drops the number 0, which is the number of a thread's first node."),
    Reason(("seq",), lambda r: "sgemm" in r.kernel,
           "The GEMM belongs to `mm`, which creates node N; the original prints the number of the range around it, "
           "`matmul`, which no backward of a GEMM carries (the backward rows of both tables carry N)."),
    Reason(("op",), lambda r: r.theirs["op"] == "bias",
           "The user called `linear`; the original renames the rows of its bias kernel."),
    Reason(("op",), lambda r: r.theirs["op"] == "Split",
           "The forward of this node is `Tensor.chunk` inside multi_head_attention_forward; the original looks for the "
           "number of the node among smallest numbers only and finds no forward."),
    Reason(COSTS, unknown,
           "No range or call gives the shapes (or no formula covers the operator): unknown is na, not 0."),
    Reason(("flops",), lambda r: r.op == "linear" and r.theirs["op"] == "bias",
           "Bias adds are an epilogue of the product and are not counted; the product is on the GEMM's row."),
    Reason(("bytes",), lambda r: r.op == "linear" and r.theirs["op"] == "bias",
           "The bytes of the call, its bias among them, are on the row of the GEMM; its helper has 0."),
    Reason(("bytes",), lambda r: r.op == "linear",
           "M*K + N*K + M*N elements of 4 bytes (and the bias); in the original only N*K is multiplied by 4."),
    Reason(COSTS, lambda r: r.op == "multi_head_attention_forward",
           "The original knows no formula for the outermost call and prints 0; the calls inside it were recorded and "
           "have one."),
    Reason(("flops",), lambda r: r.op == "__add__",
           "An addition is one operation per element of the output; the original counts the elements of the operands."),
    Reason(("flops",), lambda r: r.op == "add_",
           "x += alpha * y is two operations per element; the original counts 1.5."),
    Reason(("flops",), lambda r: r.op == "dropout",
           "3 per element: one comparison with a random number, one product with the mask, one with the scale (2 in "
           "the backward); the original says 5 for both and no source."),
    Reason(COSTS, lambda r: r.op in ("layer_norm", "cross_entropy"),
           "The original has no formula and prints 0. Kernels of one kind share the cost of the call by their time."),
    Reason(COSTS, lambda r: r.op == "log_softmax",
           "5 operations per element; each element is read once and written once (backward: output and gradient read, "
           "gradient written). The original lost the FLOPs and reads the input twice."),
    Reason(("bytes",), lambda r: r.op == "norm",
           "The result, 4 bytes, is written too."),
    Reason(COSTS, lambda r: r.op == "embedding" and r.backward,
           "The dense gradient is written whole, the output's gradient and the indices are read; the fill with "
           "zeros and the kernel that adds share this by their times. The original puts 3 E on the fill."),
]  # fmt: skip


def rows(data: Path) -> list[Row]:
    folder = data / "nvprof" / "transformer_lm"
    frame = load(folder / "net.sql").table
    lines = [ast.literal_eval(line) for line in (folder / "net.dict").read_text().splitlines()]
    with (folder / "lm.csv").open() as file:
        table = list(csv.DictReader(file))
    out = []
    for index, (line, row) in enumerate(zip(lines, table, strict=True)):
        ours = {
            name: "na" if value is None else str(value) for name, value in frame.iloc[index].items() if name in COLUMNS
        }
        ours = {name: {"<NA>": "na", "nan": "na"}.get(text, text) for name, text in ours.items()}
        theirs = {
            "op": row["Op"],
            "dir": row["Direction"],
            "seq": ",".join(map(str, line["seqId"])) or "na",
            "flops": str(int(float(row["FLOPs"]))),
            "bytes": row["Bytes"],
        }
        out.append(Row(index, frame.iloc[index]["kernel"], ours, theirs))
    assert len(out) == len(frame)
    return out


def reason(row: Row, column: str) -> str:
    for number, candidate in enumerate(REASONS, 1):
        if column in candidate.columns and candidate.applies(row):
            return str(number)
    raise AssertionError(f"row {row.index} ({row.op}, {row.kernel}): {column} differs without a reason: {row}")


def page(all_rows: list[Row]) -> str:
    lines = [
        "# A recording of 2020, and where we differ from the tools of 2020",
        "",
        "One training step of a transformer language model on a V100 (nvprof, CUDA 10.1, classic PyProf markers; "
        "josiahdavis/profiling-lm, Apache-2.0): 160 kernels, 7 296 770 ns. The tools of 2020 made a net.dict and a CSV "
        "of it. Kernels, times, grids and blocks are the same. Every other difference is listed here; na is unknown.",
        "",
        "The tools of 2020 counted 118 fprop and 42 bprop rows, we count 102 and 58: the 16 rows of AccumulateGrad "
        "(reason 1).",
        "",
        "## Reasons",
        "",
    ]
    lines += [f"{number}. {item.text}" for number, item in enumerate(REASONS, 1)]
    lines += [
        "",
        "## Rows",
        "",
        "The row is the column `Idx`, which counts from 1.",
        "",
        "| row | kernel | op | column | 2020 | PyProf | reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in all_rows:
        for column in COLUMNS:
            if row.ours[column] != row.theirs[column]:
                cells = (
                    row.index + 1,
                    row.kernel[:40],
                    row.op,
                    column,
                    row.theirs[column],
                    row.ours[column],
                    reason(row, column),
                )
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def test_every_difference_has_a_reason_and_is_documented(data: Path, request: pytest.FixtureRequest):
    text = page(rows(data))
    path = ROOT / "docs" / "differences.md"
    if request.config.getoption("--regold"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_directions_differ_in_the_rows_of_accumulate_grad_alone(data: Path):
    found = rows(data)
    assert sum(row.theirs["dir"] == "fprop" for row in found) == 118
    other = [row for row in found if row.ours["dir"] != row.theirs["dir"]]
    assert {row.op for row in other} == {_ACCUMULATE}
    assert sum(row.ours["dir"] == "fprop" for row in found) == 118 - len(other)


def test_products_cost_what_their_shapes_say(data: Path):
    """By hand: linear (700, 200) x (200, 200) + bias: 2*700*200*200 FLOPs, (2*700*200 + 200*200 + 200) * 4 bytes."""
    by_index = {row.index: row.ours for row in rows(data)}
    assert (by_index[30]["flops"], by_index[30]["bytes"]) == ("56000000", "1280800")
    assert (by_index[40]["flops"], by_index[40]["bytes"]) == (
        str(2 * 700 * 33278 * 200),
        str((700 * 200 + 33278 * 200 + 33278 + 700 * 33278) * 4),
    )
    for backward in (51, 52):
        assert by_index[backward]["flops"] == by_index[40]["flops"]
        assert by_index[backward]["bytes"] == str((700 * 200 + 33278 * 200 + 700 * 33278) * 4)

# SPDX-License-Identifier: Apache-2.0
"""Operators, one by one."""

from __future__ import annotations

import pandas as pd

from pyprof.facts.steps.source import Source
from pyprof.measures import efficiency
from pyprof.measures.queries import SPREADS, operators
from pyprof.reports import Column, View, figure, report, spread

# Columns that identify an operator, for every report about operators.
OP_ID = Column("op_id", "Op ID", "", "Type and number of the operator: unique in the recording.", str)
NAME = Column(
    "name",
    "Op Name",
    "",
    "Path in the model, ending with the operation; [2] is the second of equal siblings.",
    str,
)
DIRECTION = Column("direction", "Direction", "", "fprop or bprop; empty if neither.", str)
TYPE = Column("type", "Op Type", "", "Kind of operation, independent of how the call spells it.", str)
ELIGIBLE = Column(
    "eligible", "TC Eligible", "", "Whether tensor cores could do it, in some data type on some GPU.", bool
)
USING = Column(
    "using_tc", "Using TC", "",
    "Whether any of its kernels used tensor cores; empty if no name shows it, and without a GPU.", bool,
)  # fmt: skip

TC_UNKNOWN = Column(
    "tc_unknown", "TC Unknown (ns)", "ns",
    "GPU time of kernels with unknown use of tensor cores; empty without a GPU.", int, True,
)  # fmt: skip


@report(
    "detail",
    "All Iterations",
    (
        OP_ID,
        NAME,
        DIRECTION,
        TYPE,
        figure("calls", heading="No. Calls"),
        ELIGIBLE,
        USING,
        *(column for name in SPREADS for column in spread(name)),
        Column("dtype", "Data Type", "", "Type of the operands.", str),
        Column("stack", "Stack Trace", "", "Source lines of the call, one per line, outermost first.", str),
        Column("shapes", "Input Shapes", "", "Shapes of the tensors of the call.", str, True),
        Column("params", "Parameters", "", "Arguments of the call, as in docs/columns.md.", str, True),
        Column("module", "Module", "", "Path of the module that made the call.", str, True),
        figure("kernels", extra=True),
        figure("tc_kernels", extra=True),
        figure("kernel", extra=True),
        figure("tc", extra=True),
        TC_UNKNOWN,
        *efficiency.columns("its kernels", extra=True),
    ),
    suffix="detailed",
    of_summary=True,
    view=View("Operators", sort="-gpu", sums="calls cpu gpu overhead idle kernels tc_kernels kernel tc tc_unknown"),
)
def detail(source: Source) -> pd.DataFrame:
    """One row per operator (a place in the model, with its arguments and direction), sorted by GPU time; values are
    sums over its executions. API calls and GPU events outside all operators have rows of their own, named
    unassociated."""
    table = operators(source).join(efficiency.of_operators(source, ("s.operator",)), on="id")
    return efficiency.explained(source, table)

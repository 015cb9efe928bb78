# SPDX-License-Identifier: Apache-2.0
"""`pyprof query FILE 'select ...'`: SQL over a recording or a profile database, which is only read."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from pyprof.core.arguments import (
    RECORDING,
    Parser,
    add_run,
    add_table_options,
    add_timeout,
    check_output,
    positive_int,
)

_SHOWN = 1000  # rows of a table
_MOST_TEXT = 1 << 29  # characters of all rows
# Those of pyprof.query.views, which takes long to import.
VIEWS = (
    "kernels", "copies", "cpu_events", "operators", "calls", "api_calls", "ranges", "steps", "collectives",
    "memory_events", "workers", "devices", "facts", "missing",
)  # fmt: skip


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.intermixed = True
    parser.description = (
        "Run a SELECT over a recording or a profile database. Times are in ns; docs/sql.md describes every column. "
        "Example: pyprof query net.sqlite 'select short_name, sum(duration_ns) as total_ns from kernels group by 1 "
        "order by 2 desc limit 10'"
    )
    parser.epilog = f"Views: {', '.join(VIEWS)}."
    parser.add_argument("file", help=RECORDING)
    add_run(parser)
    parser.add_argument("query", help="a SELECT of SQLite; - reads it from stdin")
    parser.add_argument(
        "--limit",
        type=positive_int,
        metavar="N",
        help=f"at most N rows; default: {_SHOWN:,} of a table, else all",
    )
    add_timeout(parser)
    add_table_options(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the rows of the query."""
    from pyprof.commands.report import check_format, render_report, write_stdout
    from pyprof.core.errors import PyProfError
    from pyprof.core.frame import say
    from pyprof.core.stages import MINIMAL, Stages
    from pyprof.profiles import Profile
    from pyprof.query.engine import Bounds, described
    from pyprof.query.process import Query, QueryProcess
    from pyprof.reports import Report

    report = Report("query", "Query", "query", "", (), lambda source: frame)
    check_format(report, arguments)
    check_output(arguments, arguments.file)
    text = sys.stdin.read() if arguments.query == "-" else arguments.query
    limit = arguments.limit or (_SHOWN if arguments.format == "table" else None)
    stages = Stages(MINIMAL, arguments.prog)
    with stages.stage("reading"):
        profile = Profile.open(arguments.file, run=arguments.run, progress=stages.progress)
        advice = "Select fewer rows, or raise the limit with --timeout."
        with closing(QueryProcess(arguments.timeout, advice)) as queries:
            bounds = Bounds(limit, characters=_MOST_TEXT)
            answer = queries.answer(Query(profile.database.path, arguments.file, text, bounds))
        if answer.more and len(answer.rows) != limit:
            raise PyProfError(f"the rows have more than {_MOST_TEXT >> 20} MB of text; select fewer rows or columns.")
        frame = answer.frame()
        _, table = render_report(report._replace(columns=described(answer)), profile.source(), arguments)
    write_stdout(table)
    if answer.more:
        say(arguments.prog, f"there are more than these {limit:,} rows; --limit N shows N.")

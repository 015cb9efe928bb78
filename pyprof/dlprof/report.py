# SPDX-License-Identifier: Apache-2.0
"""`pyprof report [NAME] FILE`, `pyprof diff BASE OTHER` and `pyprof save FILE -o DB`: DLProf's engine under our names.

A report goes to stdout, or to a file that is there whole or not at all. The file that is read is never changed: an
aggregation that a database does not have is made in a temporary copy, `pyprof save` keeps it.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from pyprof import place
from pyprof.arguments import Parser, timeout
from pyprof.commands import ended, say
from pyprof.db.source import Source
from pyprof.db.store import limited
from pyprof.dlprof import engine
from pyprof.dlprof.stages import MINIMAL, Stages
from pyprof.errors import PyProfError, UsageError
from pyprof.reports import Report, every, find, output
from pyprof.reports.diff import BY
from pyprof.reports.diff import diff as comparison

_BINARY = ("parquet",)


def report(argv: Sequence[str] | None = None) -> int:
    """`pyprof report`; returns the exit code. Without arguments it lists the reports."""
    if not (sys.argv[1:] if argv is None else argv):
        print(f"usage: pyprof report [NAME] FILE\n\n{names()}")
        return 0
    return _guarded("report", _report, _report_parser().parse_intermixed_args(argv))


def diff(argv: Sequence[str] | None = None) -> int:
    """`pyprof diff`; returns the exit code."""
    return _guarded("diff", _diff, _diff_parser().parse_args(argv))


def save(argv: Sequence[str] | None = None) -> int:
    """`pyprof save`; returns the exit code."""
    return _guarded("save", _save, _save_parser().parse_args(argv))


def _guarded(name: str, work: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    with limited(arguments.timeout):
        return ended(f"pyprof {name}", lambda: work(arguments))


def _common(parser: Parser) -> None:
    parser.add_argument("--iter-start", metavar="N", help="first iteration to aggregate; default: 0")
    parser.add_argument(
        "--iter-stop", metavar="N", help="last iteration, which is included; default: the last"
    )
    parser.add_argument(
        "--key-op", metavar="NAME",
        help="iterations end where this operator ends; default: the steps that the program marks, else what repeats",
    )  # fmt: skip
    timeout(parser)


def _report_parser() -> Parser:
    parser = Parser(
        prog="pyprof report",
        description="Print a report of a recording or a profile database. "
        "Example: pyprof report op_type net.sqlite --format csv",
        epilog=names(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="?", help="name of the report, one of those below; without one: an overview"
    )
    parser.add_argument(
        "file", help="recording of pyprof, nsys or nvprof, a folder of them, or a profile database"
    )
    _common(parser)
    parser.add_argument("--worker", metavar="NAME", help="limit to one worker; default: all workers")
    _output(parser)
    for name in _options():
        parser.add_argument(
            f"--{name.replace('_', '-')}", metavar="CHOICE", help="of some reports, see below"
        )
    return parser


def names() -> str:
    """The reports, each with what it shows and the choices that it has, for a terminal."""
    lines = ["reports (docs/reports.md has their columns):"]
    for one in every():
        lines.append(f"  {one.name:<16} {one.title}")
        for option in one.options:
            choices = ", ".join(option.choices)
            lines.append(
                f"  {'':<16}   --{option.name.replace('_', '-')}: {choices}; default: {option.default}"
            )
    return "\n".join(lines)


def _output(parser: Parser) -> None:
    parser.add_argument(
        "--format", default="table", help=f"one of {', '.join(output.FORMATS)}; default: %(default)s"
    )
    parser.add_argument(
        "--wide", action="store_true",
        help="whole table on a terminal too; default: what fits its width, in suitable units",
    )  # fmt: skip
    parser.add_argument(
        "--raw", action="store_true",
        help="texts in csv as they are; default: control characters are shown and formulas of spreadsheets disarmed",
    )  # fmt: skip
    parser.add_argument("-o", metavar="FILE", help="output file (written atomically); default: stdout")


def _diff_parser() -> Parser:
    parser = Parser(
        prog="pyprof diff",
        description="Compare two runs: a step and what it consists of, or all operators or kernels. "
        "Example: pyprof diff before.sqlite after.sqlite",
    )
    parser.add_argument("base", help="recording, a folder of them, or a profile database")
    parser.add_argument("other", help="the one that is compared with it")
    parser.add_argument("--by", choices=BY, default="step", help="what a row is of; default: %(default)s")
    for name in ("base", "other"):
        parser.add_argument(
            f"--{name}-worker", metavar="NAME", help=f"limit the {name} to one worker; default: all workers"
        )
    _common(parser)
    _output(parser)
    return parser


def _options() -> list[str]:
    """Names of the options that reports have."""
    return sorted({option.name for one in every() for option in one.options})


def _save_parser() -> Parser:
    parser = Parser(
        prog="pyprof save",
        description="Build a profile database from a recording. Example: pyprof save net.sqlite -o net_dldb.sqlite",
    )
    parser.add_argument(
        "file", help="recording of pyprof, nsys or nvprof, a folder of them, or a profile database"
    )
    parser.add_argument("-o", metavar="DB", required=True, help="profile database to write (atomically)")
    parser.add_argument("-f", "--force", action="store_true", help="replace a file of that name")
    _common(parser)
    return parser


def _wanted(arguments: argparse.Namespace) -> engine.Wanted:
    numbers = []
    for name in ("iter_start", "iter_stop"):
        text = getattr(arguments, name)
        if text is not None and not (text.isascii() and text.isdecimal()):
            raise UsageError(
                f"--{name.replace('_', '-')}={text}: expected the number of an iteration, 0 or more."
            )
        numbers.append(None if text is None else int(text))
    return engine.Wanted(numbers[0], numbers[1], arguments.key_op)


def _report(arguments: argparse.Namespace) -> None:
    chosen = {name: value for name in _options() if (value := getattr(arguments, name)) is not None}
    if arguments.name is None:
        _overview(arguments, chosen)
        return
    if os.path.exists(arguments.name) and arguments.name not in {one.name for one in every()}:
        raise UsageError(
            f"{arguments.name} is a file: the report's name comes before it, as in `pyprof report op_type "
            f"{shlex.quote(arguments.name)}`."
        )
    found = find(arguments.name, **chosen)
    _writable(found, arguments)  # a format that is not there is told first
    wanted = _wanted(arguments)
    stages = Stages(MINIMAL, "pyprof report")
    with stages.stage("reading"), engine.opened(
        engine.Input(arguments.file, stages.told), wanted, arguments.worker
    ) as source:  # fmt: skip
        rows, text = _shown(found, source, arguments)
    _print(text)
    if not rows:
        needs = f": it needs {found.needs}" if found.needs else ", the recording has nothing for it"
        say("pyprof report", f"{found.name} has no rows{needs}.")


def _print(text: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _overview(arguments: argparse.Namespace, chosen: dict[str, str]) -> None:
    """Print the overview. Raises UsageError for a report's option, and for a report without a file."""
    file = arguments.file
    if not os.path.lexists(file) and any(one.name == file for one in every()):
        raise UsageError(f"report {file!r} needs a file: pyprof report {file} net.sqlite.")
    if chosen or arguments.format != "table" or arguments.o is not None or arguments.raw:
        raise UsageError(
            "the overview has no options of a report; name a report: pyprof report op_type FILE."
        )
    from pyprof.overview.figures import figures
    from pyprof.overview.lines import lines
    from pyprof.screen import columns

    stages, out = Stages(MINIMAL, "pyprof report"), sys.stdout
    with stages.stage("reading"), engine.opened(
        engine.Input(file, stages.told), _wanted(arguments), arguments.worker
    ) as source:  # fmt: skip
        found = figures(source)
    print("\n".join(lines(found, columns(out), out.encoding or "utf-8", file)), flush=True)


def _writable(found: Report, arguments: argparse.Namespace) -> None:
    """Raises UsageError for a format that does not exist, or that is nothing for a terminal."""
    output.file_name(found, "-", arguments.format)
    if arguments.raw and arguments.format != "csv":
        raise UsageError("--raw is for --format=csv.")
    if arguments.format in _BINARY and arguments.o is None and sys.stdout.isatty():
        raise UsageError(f"--format={arguments.format} is binary, not for a terminal; name a file with -o.")


def _shown(found: Report, source: Source, arguments: argparse.Namespace) -> tuple[int, bytes]:
    """Print a report, or write it to a file: whole or not at all. Returns the number of its rows, and for a terminal
    the text, to be printed when no progress is shown any more."""
    style = "raw" if arguments.raw else "plain"
    if arguments.o is None and sys.stdout.isatty():
        text = io.BytesIO()
        width = None if arguments.wide else shutil.get_terminal_size().columns
        return output.render(found, source, arguments.format, text, style, width), text.getvalue()
    if arguments.o is None:
        sys.stdout.flush()
        rows = output.render(found, source, arguments.format, sys.stdout.buffer, style)
        sys.stdout.buffer.flush()
        return rows, b""
    try:
        with place.named(arguments.o) as name, open(name, "wb") as file:
            return output.render(found, source, arguments.format, file, style), b""
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise PyProfError(f"{arguments.o}: cannot be written ({reason}). Name another file.") from error


def _diff(arguments: argparse.Namespace) -> None:
    wanted = _wanted(arguments)
    stages = Stages(MINIMAL, "pyprof diff")
    with ExitStack() as stack:
        stack.enter_context(stages.stage("reading"))
        base, other = (
            stack.enter_context(engine.opened(engine.Input(path, stages.told), wanted, worker))
            for path, worker in (
                (arguments.base, arguments.base_worker),
                (arguments.other, arguments.other_worker),
            )
        )
        found = comparison(base, arguments.by)
        _writable(found, arguments)
        counts = [one.aggregation.last - one.aggregation.first + 1 for one in (base, other)]
        if counts[0] != counts[1] and arguments.by != "step":
            say(
                "pyprof diff",
                f"the base has {counts[0]} iterations, the other {counts[1]}: sums are of as many; choose equal ranges "
                "with --iter-start and --iter-stop.",
            )
        _, text = _shown(found, other, arguments)
    _print(text)


def _save(arguments: argparse.Namespace) -> None:
    wanted = _wanted(arguments)
    if os.path.lexists(arguments.o) and not arguments.force:
        raise UsageError(f"{arguments.o} exists: --force replaces it; or name another file with -o.")
    stages = Stages(MINIMAL, "pyprof save")
    source = engine.Input(arguments.file, stages.told)
    same = all(map(os.path.exists, (arguments.file, arguments.o))) and os.path.samefile(
        arguments.file, arguments.o
    )
    if same and not source.is_database:
        raise UsageError(f"{arguments.o}: is what is read, and would be replaced; name another file with -o.")
    with stages.stage("aggregating"):
        engine.write(source, arguments.o, wanted)

# SPDX-License-Identifier: Apache-2.0
"""`pyprof report NAME FILE` and `pyprof save FILE -o DB`: DLProf's engine under our names.

A report goes to stdout, or to a file that is there whole or not at all. The file that is read is never changed: an
aggregation that a database does not have is made in a temporary copy, `pyprof save` keeps it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from pyprof import place
from pyprof.dlprof import engine
from pyprof.dlprof.stages import MINIMAL, Stages
from pyprof.errors import PyProfError, UsageError
from pyprof.reports import every, find, output

_BINARY = ("parquet",)


def report(argv: Sequence[str] | None = None) -> int:
    """`pyprof report`; returns the exit code."""
    return _guarded("report", lambda: _report(_report_parser().parse_args(argv)))


def save(argv: Sequence[str] | None = None) -> int:
    """`pyprof save`; returns the exit code."""
    return _guarded("save", lambda: _save(_save_parser().parse_args(argv)))


def _guarded(name: str, work: Callable[[], None]) -> int:
    try:
        work()
    except PyProfError as error:
        print(f"pyprof {name}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    except KeyboardInterrupt:
        print(f"pyprof {name}: interrupted, nothing was written.", file=sys.stderr)
        return 130
    return 0


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iter_start", metavar="N", help="first iteration to aggregate; default: 0")
    parser.add_argument(
        "--iter_stop", metavar="N", help="last iteration, which is included; default: the last"
    )
    parser.add_argument(
        "--key_op", metavar="NAME",
        help="iterations end where this operator ends; default: the steps that the program marks, else what repeats",
    )  # fmt: skip


def _report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyprof report", description="Example: pyprof report op_type net.sqlite --format csv"
    )
    parser.add_argument("name", help="report, as in docs/reports.md: summary, op_type, kernel ...")
    parser.add_argument(
        "file", help="recording of pyprof, nsys or nvprof, a folder of them, or a profile database"
    )
    _common(parser)
    parser.add_argument("--worker", metavar="NAME", help="of this process alone; default: all together")
    parser.add_argument(
        "--format", default="table", help=f"one of {', '.join(output.FORMATS)}; default: %(default)s"
    )
    parser.add_argument("-o", metavar="FILE", help="write there, whole or not at all; default: stdout")
    for name, text in _options().items():
        parser.add_argument(f"--{name}", metavar="CHOICE", help=text)
    return parser


def _options() -> dict[str, str]:
    """Options of reports, and what they choose in which report."""
    found: dict[str, list[str]] = {}
    for one in every():
        for option in one.options:
            values = ", ".join(option.choices)
            found.setdefault(option.name, []).append(f"of {one.name}: {values}; default: {option.default}")
    return {name: "; ".join(texts) for name, texts in found.items()}


def _save_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyprof save", description="Example: pyprof save net.sqlite -o net_dldb.sqlite"
    )
    parser.add_argument(
        "file", help="recording of pyprof, nsys or nvprof, a folder of them, or a profile database"
    )
    parser.add_argument(
        "-o", metavar="DB", required=True, help="profile database to write, whole or not at all"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace a file of that name")
    _common(parser)
    return parser


def _wanted(arguments: argparse.Namespace) -> engine.Wanted:
    numbers = []
    for name in ("iter_start", "iter_stop"):
        text = getattr(arguments, name)
        if text is not None and not (text.isascii() and text.isdecimal()):
            raise UsageError(f"--{name}={text}: expected the number of an iteration, 0 or more.")
        numbers.append(None if text is None else int(text))
    return engine.Wanted(numbers[0], numbers[1], arguments.key_op)


def _report(arguments: argparse.Namespace) -> None:
    chosen = {name: getattr(arguments, name) for name in _options()}
    found = find(arguments.name, **{name: value for name, value in chosen.items() if value is not None})
    output.file_name(found, "-", arguments.format)  # a format that is not there is told first
    wanted = _wanted(arguments)
    if arguments.format in _BINARY and arguments.o is None and sys.stdout.isatty():
        raise UsageError(f"--format={arguments.format} is no text for a terminal; name a file with -o.")
    stages = Stages(MINIMAL, "pyprof report")
    with stages.stage("reading"), engine.opened(
        engine.Input(arguments.file, stages.told), wanted, arguments.worker
    ) as source:  # fmt: skip
        if arguments.o is None:
            sys.stdout.flush()
            output.render(found, source, arguments.format, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        try:
            with place.named(arguments.o) as name, open(name, "wb") as file:
                output.render(found, source, arguments.format, file)
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = error.strerror or error
            raise PyProfError(f"{arguments.o}: cannot be written ({reason}). Name another file.") from error


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

# SPDX-License-Identifier: Apache-2.0
"""`pyprof report [NAME] FILE`: a report of a recording or a profile database, to stdout or to a file; without a name an
overview. The input file is never changed.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyprof.core.arguments import (
    RECORDING,
    Parser,
    add_iterations,
    add_run,
    add_table_options,
    add_timeout,
    check_output,
    iteration_range,
)
from pyprof.core.errors import PyProfError, UsageError
from pyprof.core.registry import declared, extensions

if TYPE_CHECKING:
    from pyprof.facts.steps.source import Source
    from pyprof.profiles import Profile
    from pyprof.reports import Report

_BINARY = ("parquet",)
_REPORT = r'@report\(\s*"(\w+)",\s*"([^"]+)"'
_OPTION = r'Option\(\s*"(\w+)"'


def listed() -> dict[str, str]:
    """Return the title of each report by name; one of another package names the package."""
    external = {
        name: f"of {point.dist.name}" if point.dist else "" for name, point in extensions("pyprof.reports").items()
    }
    own = {row[0]: row[1] for row in declared("pyprof.reports", _REPORT)}
    return dict(sorted((external | own).items()))


def options() -> list[str]:
    """Return the names of the options that reports have."""
    return sorted({name for (name,) in declared("pyprof.reports", _OPTION)})


def names() -> str:
    """Return the list of reports for a terminal."""
    lines = [f"  {name:<16} {title}" for name, title in listed().items()]
    return "\n".join(["reports (python -m pyprof.reference reports has columns and choices):", *lines])


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.intermixed = True  # `report op_type --format csv FILE`
    parser.description = (
        "Print a report of a recording or a profile database. Example: pyprof report op_type net.sqlite --format csv"
    )
    parser.epilog = names()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", help="name of the report, one of those below; without one: an overview")
    parser.add_argument("file", nargs="?", help=RECORDING)
    add_run(parser)
    add_iterations(parser)
    add_timeout(parser)
    parser.add_argument("--worker", metavar="NAME", help="limit to one worker; default: all workers")
    add_table_options(parser)
    for name in options():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="CHOICE",
            help="for some reports; a wrong choice lists the valid ones",
        )
    parser.add_argument("--group-by", metavar="CHOICE", help=argparse.SUPPRESS)  # the former name of --by


def run(arguments: argparse.Namespace) -> None:
    """Print the report, the overview, or the list of reports."""
    from pyprof.core.frame import say

    if arguments.file is None:
        arguments.name, arguments.file = None, arguments.name
    if arguments.file is None:
        print(f"usage: {arguments.prog} [NAME] FILE\n\n{names()}")
        return
    if arguments.group_by is not None:
        say(arguments.prog, "--group-by is --by now.")
        arguments.by = arguments.group_by
    choices = {name: value for name in options() if (value := getattr(arguments, name)) is not None}
    if arguments.name is None:
        _overview(arguments, choices)
    else:
        _report(arguments, choices)


def _report(arguments: argparse.Namespace, choices: dict[str, str]) -> None:
    from pyprof.core.frame import say
    from pyprof.facts.steps.coverage import missing
    from pyprof.reports import find

    if os.path.exists(arguments.name) and arguments.name not in listed():
        raise UsageError(
            f"{arguments.name} is a file: the report's name comes before it, as in `pyprof report op_type "
            f"{shlex.quote(arguments.name)}`."
        )
    report_ = find(arguments.name, **choices)
    check_format(report_, arguments)  # report a wrong format first
    check_output(arguments, arguments.file)
    with open_profiles(arguments, arguments.file, summary=True) as (profile,):
        source = profile.source(arguments.worker)
        rows, text = render_report(report_, source, arguments)
        absent = missing(source.store)
    write_stdout(text)
    if absent:
        say(arguments.prog, f"{arguments.file} is incomplete: {absent}.")
    if not rows:
        say(arguments.prog, report_.nothing)


def _overview(arguments: argparse.Namespace, choices: dict[str, str]) -> None:
    """Print the overview. Raises UsageError for a report's option, and for a report without a file."""
    file = arguments.file
    if not os.path.lexists(file) and file in listed():
        raise UsageError(f"report {file!r} needs a file: pyprof report {file} net.sqlite.")
    if choices or arguments.format != "table" or arguments.output is not None or arguments.raw:
        raise UsageError("the overview takes no report options; name a report: pyprof report op_type FILE.")
    from pyprof.core.frame import say
    from pyprof.core.terminal import columns
    from pyprof.facts.steps.coverage import missing
    from pyprof.overview import lines
    from pyprof.overview.figures import figures

    out = sys.stdout
    with open_profiles(arguments, file, summary=True) as (profile,):
        source = profile.source(arguments.worker)
        width, encoding, absent = columns(out), out.encoding or "utf-8", missing(source.store)
        if source.store.is_summary:
            text = lines.of_summary(source, width, encoding, file)
        else:
            text = lines.lines(figures(source), width, encoding, file)
    print("\n".join(text), flush=True)
    if absent:
        say(arguments.prog, f"{file} is incomplete: {absent}.")


@contextmanager
def open_profiles(arguments: argparse.Namespace, *paths: str, summary: bool = False) -> Iterator[list[Profile]]:
    """Open recordings, with the iterations and the timeout of a command line, and progress on a terminal. `summary`: as
    of `Profile.open`."""
    from pyprof.core.stages import MINIMAL, Stages
    from pyprof.profiles import Profile, Selection
    from pyprof.store.files import limited

    stages = Stages(MINIMAL, arguments.prog)
    with limited(arguments.timeout), stages.stage("reading"), ExitStack() as stack:
        profiles = []
        for path in paths:
            run = arguments.run if len(paths) == 1 or os.path.isdir(path) else None
            profile = Profile.open(path, run=run, progress=stages.progress, summary=summary)
            profile.select(Selection(*iteration_range(arguments)))
            stack.enter_context(profile.database.translate_errors())
            profiles.append(profile)
        yield profiles


def check_format(report: Report, arguments: argparse.Namespace) -> None:
    """Raise UsageError for an unknown format, or a binary one on a terminal."""
    from pyprof.render import writers

    writers.file_name(report, "-", arguments.format)
    if arguments.raw and arguments.format != "csv":
        raise UsageError("--raw is for --format=csv.")
    if arguments.format in _BINARY and arguments.output is None and sys.stdout.isatty():
        raise UsageError(f"--format={arguments.format} is binary, not for a terminal; name a file with -o.")


def render_report(report: Report, source: Source, arguments: argparse.Namespace) -> tuple[int, bytes]:
    """Render a report to stdout or a file, completely or not at all. Returns the number of its rows, and for a terminal
    the text, to be printed once the progress bar is gone."""
    from pyprof.core import atomic_file
    from pyprof.render import writers

    style = "raw" if arguments.raw else "plain"
    if arguments.output is None and sys.stdout.isatty():
        text = io.BytesIO()
        width = None if arguments.wide else shutil.get_terminal_size().columns
        return writers.render(report, source, arguments.format, text, style, width), text.getvalue()
    if arguments.output is None:
        sys.stdout.flush()
        rows = writers.render(report, source, arguments.format, sys.stdout.buffer, style)
        sys.stdout.buffer.flush()
        return rows, b""
    try:
        with atomic_file.named(arguments.output) as name, open(name, "wb") as file:
            return writers.render(report, source, arguments.format, file, style), b""
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise PyProfError(f"{arguments.output} cannot be written ({reason}). Choose another file.") from error


def write_stdout(text: bytes) -> None:
    """Write bytes to stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()

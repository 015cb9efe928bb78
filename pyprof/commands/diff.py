# SPDX-License-Identifier: Apache-2.0
"""`pyprof diff BASE OTHER`: causes of a longer or shorter step in one run compared with another; with limits, a verdict
for continuous integration."""

from __future__ import annotations

import argparse
import sys

from pyprof.commands.report import check_format, open_profiles, render_report, write_stdout
from pyprof.core.arguments import (
    RECORDING,
    Parser,
    add_iterations,
    add_run,
    add_table_options,
    add_timeout,
    check_output,
)
from pyprof.core.errors import PyProfError, UsageError

REGRESSION = 3  # exit code
_SIDES = ("base", "other")
_FILES = {"verdict": "JSON", "summary": "Markdown", "junit": "JUnit XML"}
# Options of the table alone.
_OF_TABLE = {"by": "step", "per": "iteration", "format": "table", "wide": False, "raw": False, "output": None}


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Compare two runs: what made a step longer or shorter and its parts, or all operators or kernels. "
        "Example: pyprof diff before.sqlite after.sqlite"
    )
    parser.add_argument("base", help=RECORDING)
    parser.add_argument("other", help="run to compare with the base")
    parser.add_argument(
        "--by",
        choices=("step", "operator", "kernel"),
        default="step",
        help="subject of a row; default: %(default)s",
    )
    parser.add_argument(
        "--per",
        choices=("iteration", "run"),
        default="iteration",
        help="means per iteration, or sums over all of them; default: %(default)s",
    )
    for name in ("base", "other"):
        parser.add_argument(
            f"--{name}-worker", metavar="NAME", help=f"limit the {name} to one worker; default: all workers"
        )
    add_run(parser)
    add_iterations(parser)
    add_timeout(parser)
    add_table_options(parser)
    gate = parser.add_argument_group("limits", "print a verdict instead of a table (docs/ci.md)")
    gate.add_argument(
        "--fail-on", action="append", metavar="CONDITION", default=[],
        help="exit with 3 if a figure increases by more than a limit, for example 'step_time>2%%' or "
        "'op:attention>0.2ms'; repeatable",
    )  # fmt: skip
    gate.add_argument("--strict", action="store_true", help="exit with 3 also if a condition cannot be told")
    for name in _SIDES:
        gate.add_argument(
            f"--{name}-run",
            action="append",
            metavar="FILE",
            default=[],
            help=f"one more run of the {name}; repeatable",
        )
    for name, what in _FILES.items():
        gate.add_argument(f"--{name}", metavar="FILE", help=f"write the verdict as {what} (atomically)")


def run(arguments: argparse.Namespace) -> int | None:
    """Print the comparison, or the verdict and return the exit code."""
    if arguments.fail_on:
        return _gate(arguments)
    for name in ("strict", *(f"{side}_run" for side in _SIDES), *_FILES):
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} is for a verdict; add --fail-on CONDITION.")
    _table(arguments)
    return None


def _table(arguments: argparse.Namespace) -> None:
    from pyprof.core.frame import say
    from pyprof.core.terminal import visible
    from pyprof.reports.change import describe_change
    from pyprof.reports.diff import cautions, diff

    check_output(arguments, arguments.base, arguments.other)
    with open_profiles(arguments, arguments.base, arguments.other) as (base_profile, other_profile):
        base = base_profile.source(arguments.base_worker)
        other = other_profile.source(arguments.other_worker)
        comparison = diff(base, arguments.by, arguments.per)
        check_format(comparison, arguments)
        for line in cautions(base, other, arguments.per):
            say(arguments.prog, line[0].lower() + line[1:])
        change = b""
        if arguments.by == "step":
            frame = comparison.table(other)
            comparison = comparison._replace(make=lambda _: frame)
            encoding = sys.stdout.encoding or "utf-8"
            lines = [visible(line, encoding) for line in describe_change(base, other, frame)]
            if arguments.format == "table" and arguments.output is None:
                change = "".join(f"{line}\n" for line in (*lines, "")).encode(encoding) if lines else b""
            else:
                for line in lines:
                    say(arguments.prog, line)
        if not sys.stdout.isatty():  # on a terminal the progress bar is still there
            write_stdout(change)
            change = b""
        _, text = render_report(comparison, other, arguments)
    write_stdout(change + text)


def _gate(arguments: argparse.Namespace) -> int:
    """Print the verdict, write its files, and return the exit code."""
    from pyprof.core.frame import say
    from pyprof.core.terminal import visible
    from pyprof.gate.conditions import parse
    from pyprof.gate.outputs import FORMS, text, unknowns
    from pyprof.gate.verdict import FAIL, UNKNOWN, compare
    from pyprof.reports.diff import cautions

    conditions = list(dict.fromkeys(parse(condition) for condition in arguments.fail_on))
    for name, default in _OF_TABLE.items():
        if getattr(arguments, name) != default:
            raise UsageError(f"--{name} is for the table; with --fail-on use --verdict, --summary or --junit.")
    sides = [[arguments.base, *arguments.base_run], [arguments.other, *arguments.other_run]]
    targets = {name: getattr(arguments, name) for name in _FILES if getattr(arguments, name) is not None}
    for target in targets.values():
        check_output(argparse.Namespace(output=target, force=arguments.force), *sides[0], *sides[1])
    with open_profiles(arguments, *sides[0], *sides[1]) as profiles:
        workers = [arguments.base_worker] * len(sides[0]) + [arguments.other_worker] * len(sides[1])
        sources = [profile.source(worker) for profile, worker in zip(profiles, workers)]
        base, other = sources[: len(sides[0])], sources[len(sides[0]) :]
        verdict = compare(base, other, conditions)
        for line in dict.fromkeys(line for one in (*base[1:], *other) for line in cautions(base[0], one)):
            say(arguments.prog, line[0].lower() + line[1:])
    for name, target in targets.items():
        _write(target, FORMS[name](verdict))
    encoding = sys.stdout.encoding or "utf-8"
    for line in text(verdict).splitlines():
        print(visible(line, encoding))
    for line in unknowns(verdict):
        say(arguments.prog, line)
    failing = (FAIL, UNKNOWN) if arguments.strict else (FAIL,)
    return REGRESSION if verdict.status in failing else 0


def _write(path: str, content: str) -> None:
    """Write a file completely or not at all. Raises PyProfError."""
    from pyprof.core import atomic_file

    try:
        with atomic_file.named(path) as name, open(name, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
    except OSError as error:
        raise PyProfError(f"{path} cannot be written ({error.strerror or error}). Choose another file.") from error

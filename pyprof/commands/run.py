# SPDX-License-Identifier: Apache-2.0
"""`pyprof run SCRIPT`: profile a script."""

from __future__ import annotations

import argparse

from pyprof.capture import COLLECTORS, DEFAULT_MAX_EVENTS
from pyprof.core.arguments import Parser, positive_int
from pyprof.core.registry import load_module

_NO_FILE = 74  # EX_IOERR of sysexits.h


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Run a script and record its operators, calls and kernels. "
        "Example: pyprof run -o net.sqlite train.py --epochs 1"
    )
    parser.add_argument("script", help="Python script, - for stdin, or a module after -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments passed to the script")
    parser.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="run a module, named in place of the script, as python -m does",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 74 if a recording could not be written, or none was; default: the script's exit code",
    )
    parser.add_argument("--quiet", action="store_true", help="print no overview of the recording at the end")
    where = parser.add_argument_group("output")
    where.add_argument(
        "-o", "--output", metavar="FILE", default="net.sqlite",
        help="output file; an existing one is kept under a number; default: %(default)s",
    )  # fmt: skip
    when = parser.add_argument_group("window")
    when.add_argument(
        "--steps",
        metavar="A:B",
        help="record steps A to B-1: pyprof.step() ends one, else the first optimizer's step(); default: all",
    )
    when.add_argument(
        "-y", "--delay", metavar="SECONDS", type=float, help="seconds to wait before recording; default: 0"
    )
    when.add_argument(
        "-d", "--duration", metavar="SECONDS", type=float,
        help="seconds to record; default: to the end of the script",
    )  # fmt: skip
    what = parser.add_argument_group("contents")
    what.add_argument(
        "--max-events", metavar="N", type=positive_int, default=DEFAULT_MAX_EVENTS,
        help="maximum operators and calls to keep; the rest are dropped and counted; default: %(default)s",
    )  # fmt: skip
    what.add_argument("--memory", action="store_true", help="record allocations and frees")
    what.add_argument("--io", action="store_true", help="record accesses to files")
    what.add_argument(
        "--api-backtrace", metavar="NS", nargs="?", const=True, type=_nanoseconds,
        help="record the Python stack of CUDA and waiting calls longer than NS ns; without NS: 10000",
    )  # fmt: skip
    what.add_argument(
        "-s", "--sample", choices=("cpu", "none"), default="none",
        help="cpu: record the Python stack of running threads every 10 ms; default: %(default)s",
    )  # fmt: skip
    what.add_argument(
        "--collector",
        choices=COLLECTORS,
        default="auto",
        help="GPU collector: torch's profiler, CUPTI, or none; default: %(default)s (kineto on a GPU)",
    )
    what.add_argument(
        "--sync",
        action="store_true",
        help="with a GPU collector: record synchronizations, and what they wait for",
    )


def _nanoseconds(text: str) -> int:
    """Return the NS of --api-backtrace. A script's name in its place is the likely mistake."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"invalid time {text!r}: expected a number of ns; before a script name use --api-backtrace=10000"
        )
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the script under capture; return its exit code."""
    from pyprof.overview.ending import Ending

    ending = None if arguments.quiet else Ending()  # before torch: atexit calls last what was registered first
    run_script = load_module("pyprof.capture.run").run  # says so if torch is missing
    plan = load_module("pyprof.capture.run_window").plan(arguments.steps, arguments.delay, arguments.duration)
    options = load_module("pyprof.capture.core.options").of_command(arguments)
    code = int(
        run_script(
            arguments.script, arguments.arguments, arguments.output, arguments.max_events, plan, options,
            arguments.module,
        )
    )  # fmt: skip
    control = load_module("pyprof.capture.controller").control
    if ending is not None:
        rank = load_module("pyprof.capture.environment.ranks").rank()
        ending.choose_file(code, control.written, arguments.output, rank)
    none_written = not (control.written or control.ranks_wrote)
    if arguments.strict and not code and (control.failed or none_written):
        return _NO_FILE
    return code

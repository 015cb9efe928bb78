# SPDX-License-Identifier: Apache-2.0
"""The `pyprof` command and its sub-commands.

pyprof run train.py --epochs 1     profile a script, write net.sqlite
pyprof parse net.sqlite -o net.dict
pyprof prof --csv net.dict
pyprof report net.sqlite            an overview in 15 lines
pyprof report op_type net.sqlite    one of DLProf's reports
pyprof diff before.sqlite after.sqlite   what two runs differ in
pyprof save net.sqlite -o net_dldb.sqlite
pyprof view net.sqlite              a page of it in the browser
pyprof export -o net.json.gz net.sqlite   a trace for Perfetto
pyprof info net.sqlite              what a recording holds
pyprof info                         who can record the GPU here
pyprof estimate train.py            FLOPs, bytes and parameters by module, without a recording
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyprof import __version__
from pyprof.capture import COLLECTORS, DEFAULT_MAX_EVENTS
from pyprof.errors import PyProfError
from pyprof.registry import load_module


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyprof", description="Example: pyprof run train.py, then pyprof prof net.sqlite"
    )
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run", help="profile a script", description="Example: pyprof run -o net.sqlite train.py --epochs 1"
    )
    run.add_argument(
        "-o", "--output", metavar="FILE", default="net.sqlite", help="file to write; default: %(default)s"
    )
    run.add_argument(
        "--max-events", metavar="N", type=int, default=DEFAULT_MAX_EVENTS,
        help="operators and calls to keep, the rest is counted as lost; default: %(default)s",
    )  # fmt: skip
    run.add_argument(
        "--steps", metavar="A:B",
        help="record steps A to B-1: pyprof.step() ends one, else the first optimizer's step(); default: all",
    )  # fmt: skip
    run.add_argument(
        "-y",
        "--delay",
        metavar="SECONDS",
        type=float,
        help="begin so long after the script's start; default: 0",
    )
    run.add_argument(
        "-d", "--duration", metavar="SECONDS", type=float,
        help="record so long; default: to the end of the script",
    )  # fmt: skip
    run.add_argument(
        "--memory", action="store_true", help="record what torch's allocators give and take back"
    )
    run.add_argument("--io", action="store_true", help="record accesses to files")
    run.add_argument(
        "--api_backtrace", metavar="NS", nargs="?", const=True, type=_nanoseconds,
        help="record the Python stack of CUDA and waiting calls above so many ns; without NS: 10000",
    )  # fmt: skip
    run.add_argument(
        "-s", "--sample", choices=("cpu", "none"), default="none",
        help="cpu: record the Python stack of running threads every 10 ms; default: %(default)s",
    )  # fmt: skip
    run.add_argument(
        "--collector", choices=COLLECTORS, default="auto",
        help="who records the GPU: torch's profiler, CUPTI itself, or nobody; default: %(default)s (kineto on a GPU)",
    )  # fmt: skip
    run.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="run a module, named in place of the script, as python -m does",
    )
    run.add_argument("script", help="Python script, - for stdin, or a module after -m")
    run.add_argument("--quiet", action="store_true", help="print no overview of the recording at the end")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    estimate = commands.add_parser(
        "estimate", help="count FLOPs, bytes and parameters by module",
        description="Example: pyprof estimate --depth 2 model.py",
    )  # fmt: skip
    estimate.add_argument(
        "--depth", metavar="N", type=int, default=3,
        help="levels of modules to print, 1: the outermost; default: %(default)s",
    )  # fmt: skip
    estimate.add_argument("--csv", action="store_true", help="exact numbers, comma-separated")
    estimate.add_argument("script", help="Python script, - for stdin")
    estimate.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    commands.add_parser("parse", help="turn a recording into net.dict", add_help=False)
    commands.add_parser("prof", help="print the table of kernels", add_help=False)
    commands.add_parser("report", help="print a report of a recording or a profile database", add_help=False)
    commands.add_parser("diff", help="print what two runs differ in, by operator or kernel", add_help=False)
    commands.add_parser("save", help="make a profile database of a recording", add_help=False)
    commands.add_parser(
        "export", help="write a trace for Perfetto or tools of Nsight Systems", add_help=False
    )
    commands.add_parser("view", help="show a recording or a profile database in the browser", add_help=False)
    commands.add_parser("info", help="say what a recording holds", add_help=False)
    return parser


def _collectors() -> int:
    """`pyprof info` alone: what can record the GPU of this machine, and why not."""
    try:
        reasons = load_module("pyprof.capture.collectors.layer").available()
    except ImportError as error:
        print(
            f"pyprof: {error}: install torch to record; `pyprof info FILE` reads a recording.",
            file=sys.stderr,
        )
        return 1
    width = max(map(len, reasons))
    for name, reason in reasons.items():
        print(f"{name:{width}}  {f'no: {reason}' if reason else 'records the GPU'}")
    return 0


def _nanoseconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of ns; before a script write --api_backtrace=10000"
        )
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["parse"]:
        from pyprof.parse.parse import main as parse

        return parse(words[1:])
    if words[:1] == ["prof"]:
        from pyprof.prof.prof import main as prof

        return prof(words[1:])
    if words[:1] == ["info"]:
        if len(words) == 1:
            return _collectors()
        from pyprof.info import main as info

        return info(words[1:])
    if words[:1] == ["export"]:
        from pyprof.exporting import main as export

        return export(words[1:])
    if words[:1] == ["view"]:
        from pyprof.viewer.command import view

        return view(words[1:])
    if words[:1] == ["report"]:
        from pyprof.dlprof.report import report

        return report(words[1:])
    if words[:1] == ["diff"]:
        from pyprof.dlprof.report import diff

        return diff(words[1:])
    if words[:1] == ["save"]:
        from pyprof.dlprof.report import save

        return save(words[1:])
    arguments = _parser().parse_args(words)
    try:
        if arguments.command == "estimate":
            from pyprof.totals import run as estimate

            return estimate(arguments.script, arguments.arguments, arguments.depth, arguments.csv)
        from pyprof.overview.ending import Ending

        ending = (
            None if arguments.quiet else Ending()
        )  # before torch: what is registered first is called last
        run = load_module("pyprof.capture.run").run
        plan = load_module("pyprof.capture.plan").plan(arguments.steps, arguments.delay, arguments.duration)
        more = load_module("pyprof.capture.options").of_command(arguments)
        a = arguments
        code = int(run(a.script, a.arguments, a.output, a.max_events, plan, more, a.module))
        if ending is not None:
            written, rank = (
                load_module("pyprof.capture.window").control.written,
                load_module("pyprof.capture.ranks").rank(),
            )
            ending.of(code, written, a.output, rank)
        return code
    except PyProfError as error:
        print(f"pyprof: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The `pyprof` command and its sub-commands.

pyprof run train.py --epochs 1     profile a script, write net.sqlite
pyprof parse net.sqlite -o net.dict
pyprof prof --csv net.dict
pyprof report net.sqlite            an overview in 15 lines
pyprof report op_type net.sqlite    one of DLProf's reports
pyprof diff before.sqlite after.sqlite   compare two runs
pyprof save net.sqlite -o net_dldb.sqlite
pyprof view net.sqlite              a page of it in the browser
pyprof export -o net.json.gz net.sqlite   a trace for Perfetto
pyprof replay --row 0 net.sqlite    a script that runs a recorded operator again
pyprof info net.sqlite              summarize a recording
pyprof info                         which collectors can record the GPU here
pyprof trigger 4711 --steps 5       record the next steps of a running program
pyprof enable                       let PYPROF_STEPS=10:15 record any program of this environment
pyprof estimate train.py            FLOPs, bytes and parameters by module, without a recording
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pyprof import __version__
from pyprof.arguments import Parser
from pyprof.capture import COLLECTORS, DEFAULT_MAX_EVENTS
from pyprof.commands import imported, say
from pyprof.errors import PyProfError
from pyprof.registry import load_module

# Commands that read their own arguments: what --help says of each, and where its main is. In the order of --help.
_OTHERS = {
    "parse": ("convert a recording to net.dict", "pyprof.parse.parse", "main"),
    "prof": ("print the table of kernels", "pyprof.prof.prof", "main"),
    "report": ("print a report of a recording or a profile database", "pyprof.dlprof.report", "report"),
    "diff": ("compare two runs: what made a step longer or shorter", "pyprof.dlprof.report", "diff"),
    "save": ("build a profile database from a recording", "pyprof.dlprof.report", "save"),
    "export": ("write a trace for Perfetto, or a file for Nsight Systems' tools", "pyprof.exporting", "main"),
    "replay": ("print a script that runs a recorded operator again", "pyprof.replaying", "main"),
    "view": ("show a recording or a profile database in the browser", "pyprof.viewer.command", "view"),
    "enable": ("let the environment start recordings, without an edit", "pyprof.enabling", "enable"),
    "disable": ("undo that", "pyprof.enabling", "disable"),
    "trigger": ("record the next steps of a running program", "pyprof.triggering", "main"),
    "info": ("summarize a recording; without a file: what can record the GPU here", "pyprof.info", "main"),
}
_NO_FILE = 74  # EX_IOERR of sysexits.h
_ALONE = ("enable", "disable", "trigger")  # which need nothing but Python
_NAMED = ("parse", "prof")  # whose messages begin with what was typed: they are commands of their own, too


def _parser() -> Parser:
    parser = Parser(
        prog="pyprof",
        description="Profile PyTorch programs. Example: pyprof run train.py, then pyprof prof net.sqlite",
        epilog="pyprof COMMAND --help has the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _run(commands.add_parser(
        "run", help="profile a script",
        description="Run a script and record its operators, calls and kernels. "
        "Example: pyprof run -o net.sqlite train.py --epochs 1",
    ))  # fmt: skip
    _estimate(commands.add_parser(
        "estimate", help="count FLOPs, bytes and parameters by module, without a recording",
        description="Run a script once and print what its calls cost, by module. "
        "Example: pyprof estimate --depth 2 model.py",
    ))  # fmt: skip
    for name, (text, _, _) in _OTHERS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _run(run: argparse.ArgumentParser) -> None:
    run.add_argument("script", help="Python script, - for stdin, or a module after -m")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments passed to the script")
    run.add_argument(
        "-m", dest="module", action="store_true",
        help="run a module, named in place of the script, as python -m does",
    )  # fmt: skip
    run.add_argument(
        "--strict", action="store_true",
        help="exit with 74 if a recording could not be written, or none was; default: the script's exit code",
    )  # fmt: skip
    run.add_argument("--quiet", action="store_true", help="print no overview of the recording at the end")
    where = run.add_argument_group("where it is written")
    where.add_argument(
        "-o", "--output", metavar="FILE", default="net.sqlite",
        help="output file; an older one of that name is kept under a number; default: %(default)s",
    )  # fmt: skip
    when = run.add_argument_group("when it is recorded")
    when.add_argument(
        "--steps", metavar="A:B",
        help="record steps A to B-1: pyprof.step() ends one, else the first optimizer's step(); default: all",
    )  # fmt: skip
    when.add_argument(
        "-y", "--delay", metavar="SECONDS", type=float, help="seconds to wait before recording; default: 0"
    )
    when.add_argument(
        "-d", "--duration", metavar="SECONDS", type=float,
        help="seconds to record; default: to the end of the script",
    )  # fmt: skip
    what = run.add_argument_group("what is recorded")
    what.add_argument(
        "--max-events", metavar="N", type=_count, default=DEFAULT_MAX_EVENTS,
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
        "--collector", choices=COLLECTORS, default="auto",
        help="GPU collector: torch's profiler, CUPTI, or none; default: %(default)s (kineto on a GPU)",
    )  # fmt: skip
    what.add_argument(
        "--sync",
        action="store_true",
        help="with a GPU collector: record synchronisations, and what they wait for",
    )


def _estimate(estimate: argparse.ArgumentParser) -> None:
    estimate.add_argument(
        "--depth", metavar="N", type=_count, default=3,
        help="levels of modules to print, 1: the outermost; default: %(default)s",
    )  # fmt: skip
    estimate.add_argument("--csv", action="store_true", help="exact numbers, comma-separated")
    estimate.add_argument("script", help="Python script, - for stdin")
    estimate.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments passed to the script")


def _collectors() -> int:
    """`pyprof info` alone: what can record the GPU of this machine, and why not."""
    try:
        reasons = load_module("pyprof.capture.collectors.layer").available()
    except ImportError as error:
        print(
            f"pyprof info: {error}: install torch to record; `pyprof info FILE` reads a recording.",
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
            f"invalid time {text!r}: expected a number of ns; before a script write --api-backtrace=10000"
        )
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected 1 or more")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else ""
    if words == ["info"]:
        return _collectors()
    if name in _OTHERS:
        prog, (_, module, function) = f"pyprof {name}", _OTHERS[name]
        if name in _ALONE:
            return int(getattr(importlib.import_module(module), function)(words[1:]))
        return imported(prog, module, function, words[1:], *([prog] if name in _NAMED else []))
    if not words:
        _parser().print_help()
        return 0
    arguments = _parser().parse_args(words)
    try:  # not `ended`: what a script raises is its own
        return _script(arguments)
    except PyProfError as error:
        say(f"pyprof {arguments.command}", str(error))
        return error.exit_code


def prof() -> int:
    """Run `prof.py`; returns the exit code."""
    return imported("prof.py", "pyprof.prof.prof")


def _script(arguments: argparse.Namespace) -> int:
    if arguments.command == "estimate":
        from pyprof.totals import run as estimate

        return estimate(arguments.script, arguments.arguments, arguments.depth, arguments.csv)
    from pyprof.overview.ending import Ending

    ending = None if arguments.quiet else Ending()  # before torch: what is registered first is called last
    run = load_module("pyprof.capture.run").run
    plan = load_module("pyprof.capture.plan").plan(arguments.steps, arguments.delay, arguments.duration)
    more = load_module("pyprof.capture.options").of_command(arguments)
    a = arguments
    code = int(run(a.script, a.arguments, a.output, a.max_events, plan, more, a.module))
    control = load_module("pyprof.capture.window").control
    if ending is not None:
        ending.of(code, control.written, a.output, load_module("pyprof.capture.ranks").rank())
    if a.strict and not code and (control.failed or not (control.written or control.of_ranks)):
        return _NO_FILE
    return code


if __name__ == "__main__":
    sys.exit(main())

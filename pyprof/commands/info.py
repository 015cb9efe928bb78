# SPDX-License-Identifier: Apache-2.0
"""`pyprof info FILE`: the contents of a recording; without a file, the GPU collectors of this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pyprof.core.arguments import Parser, add_run


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Print what a recording contains: counts, facts of the run, what was lost. Example: pyprof info net.sqlite"
    )
    parser.add_argument(
        "file",
        nargs="?",
        help="recording, or a folder of recordings; default: list the GPU collectors of this machine",
    )
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object; default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the summary."""
    if arguments.file is None:
        return _collectors(arguments.prog)
    from pyprof.parse import folder, loader
    from pyprof.parse.info import lines, summary

    facts = summary(loader.load(*folder.choose(Path(arguments.file), arguments.run)))
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    print(json.dumps(facts, indent=1) if arguments.json else "\n".join(lines(facts)), flush=True)
    return 0


def _collectors(prog: str) -> int:
    """Print the GPU collectors of this machine, and why one cannot work."""
    from pyprof.core.frame import say
    from pyprof.core.registry import load_module

    try:
        reasons = load_module("pyprof.capture.collectors.layer").available()
    except ImportError as error:
        say(prog, f"{error}: install torch to record; `pyprof info FILE` reads a recording.")
        return 1
    width = max(map(len, reasons))
    for name, reason in reasons.items():
        print(f"{name:{width}}  {f'no: {reason}' if reason else 'records the GPU'}")
    return 0

# SPDX-License-Identifier: Apache-2.0
"""Commands of `pyprof`, one file each.

A command is a module with two functions: `add_arguments(parser)` describes its command line, `run(arguments)` does
the work and returns an exit code (None is 0) or raises PyProfError. `arguments.prog` is the command as typed. A
module imports the dependencies of its work inside `run`, so that --help responds quickly. A new command is a file
here and a line in `COMMANDS`; another package adds one with the entry point group `pyprof.commands`.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from pyprof.core.registry import extensions

# Name -> the line in `pyprof --help`, which is in this order.
COMMANDS = {
    "run": "profile a script",
    "estimate": "count FLOPs, bytes and parameters by module, without a recording",
    "parse": "convert a recording to net.dict",
    "prof": "print the table of kernels",
    "report": "print a report of a recording or a profile database",
    "query": "run SQL over a recording or a profile database",
    "diff": "compare two runs: what made a step longer or shorter",
    "save": "build a profile database from a recording",
    "export": "write a trace for Perfetto, or a file for Nsight Systems' tools",
    "replay": "print a script that runs a recorded operator again",
    "view": "show a recording or a profile database in the browser",
    "page": "write the page of a recording as one HTML file",
    "top": "show a recording or a profile database on a terminal",
    "mcp": "serve profiles to an agent (Model Context Protocol)",
    "enable": "let the environment start recordings, without an edit",
    "disable": "undo that",
    "trigger": "record the next steps of a running program",
    "info": "summarize a recording; without a file: list the GPU collectors",
}
GROUP = "pyprof.commands"


def names() -> dict[str, str]:
    """Return every command with its line of help; that of another package names the package."""
    external = {name: f"of {point.dist.name}" if point.dist else "" for name, point in extensions(GROUP).items()}
    return external | COMMANDS


def load(name: str) -> ModuleType:
    """Import a command by its name in `names`."""
    if name in COMMANDS:
        return importlib.import_module(f"{__name__}.{name}")
    module: ModuleType = extensions(GROUP)[name].load()
    return module

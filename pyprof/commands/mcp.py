# SPDX-License-Identifier: Apache-2.0
"""`pyprof mcp [FILE ...]`: profiles as tools for agents, over the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

import argparse
import importlib.util
import os

from pyprof.core.arguments import RECORDING, Parser
from pyprof.core.errors import WHERE, PyProfError, UsageError, install


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Serve profiles to an agent over the Model Context Protocol, on stdin and stdout. The tools only read: "
        "reports, findings, SQL, details of an operator, kernel or gap, comparisons. "
        'Example for a client: {"command": "pyprof", "args": ["mcp", "net.sqlite"]}'
    )
    parser.add_argument(
        "file",
        nargs="*",
        default=["."],
        help=f"{RECORDING}, or a folder below which all may be read; default: the current folder",
    )
    parser.add_argument(
        "--page",
        metavar="URL",
        default="http://localhost:8000",
        help="address at which `pyprof view` runs, for links in answers; default: %(default)s",
    )


def run(arguments: argparse.Namespace) -> None:
    """Serve until stdin ends."""
    for name in arguments.file:
        if not os.path.exists(name):
            raise UsageError(f"{name}: there is no such file or folder.")
    if importlib.util.find_spec("mcp") is None or importlib.util.find_spec("mcp.server.mcpserver") is None:
        raise PyProfError(f"needs the package mcp, version 2: {install('mcp')} {WHERE}.")
    from pyprof.integrations.mcp_server import server

    server(arguments.file, arguments.page).run()

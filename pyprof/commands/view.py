# SPDX-License-Identifier: Apache-2.0
"""`pyprof view FILE ...` and `dlprofviewer FILE`: show profiles in the browser until ctrl-C."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from pyprof import __version__
from pyprof.core.arguments import Parser
from pyprof.core.errors import UsageError
from pyprof.core.frame import run_command
from pyprof.core.scratch import removed_by_signals

PORT = 8000
_FILE = "profile database, recording of pyprof, nsys, nvprof or torch.profiler, or a folder of runs"
_PORTS = {"http": 80, "https": 443}  # omitted by browsers
_PATH = "/%:@!$&'()*+=~"  # allowed in paths of URLs and cookies besides letters and digits
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")  # a name or an address


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Show a recording or a profile database in the browser; several are compared. "
        "Example: pyprof view before.sqlite after.sqlite"
    )
    parser.add_argument("file", nargs="*", help=_FILE)
    parser.add_argument(
        "--demo",
        action="store_true",
        help="show the generated recording of a training on a GPU that PyProf contains, in place of FILE",
    )
    _address(parser)
    parser.add_argument(
        "--token",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="require the token in the URL; default: yes",
    )
    parser.add_argument("--source-root", metavar="DIR", help="folder below which source files may be shown")
    parser.add_argument(
        "--public-origin",
        metavar="URL",
        type=_origin,
        help="scheme, host and port of a proxy in front of the viewer, as in https://host:port",
    )
    parser.add_argument(
        "--root-path",
        metavar="PREFIX",
        type=_prefix,
        default="",
        help="path of the viewer behind a proxy",
    )
    parser.add_argument(
        "--allow-host", metavar="NAME", type=_name, action="append", default=[],
        help="another host name accepted by the viewer; may be repeated",
    )  # fmt: skip
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    parser.add_argument(
        "--jupyter",
        metavar="SOCKET",
        help="for the launcher of JupyterLab: serve a folder on a Unix socket; end with the process that started it",
    )


def _address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b", "--bind", metavar="ADDRESS", default="localhost",
        help="address to listen on, 0.0.0.0 for all interfaces; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("-p", "--port", metavar="PORT", type=_port, default=PORT, help="default: %(default)s")


def run(arguments: argparse.Namespace) -> None:
    """Serve until ctrl-C. Raises UsageError unless there is either a file or --demo."""
    if arguments.demo == bool(arguments.file):
        raise UsageError("--demo takes no FILE." if arguments.demo else "name a FILE, or --demo for an example.")
    if arguments.jupyter is not None and len(arguments.file) != 1:
        raise UsageError("--jupyter takes one folder.")
    from pyprof.server.serve import serve

    if arguments.demo:
        from pyprof.server import demo

        print(f"{arguments.prog}: {demo.NOTICE}", file=sys.stderr)
        arguments.file = [str(demo.RECORDING)]
    serve(arguments.prog, arguments)


def dlprofviewer(argv: Sequence[str] | None = None) -> int:
    """Run `dlprofviewer`, with DLProf's options; return the exit code."""
    parser = Parser(
        prog="dlprofviewer",
        description="Show a profile database in the browser. Example: dlprofviewer dlprof_dldb.sqlite",
    )
    parser.add_argument("--version", action="version", version=f"dlprofviewer of PyProf {__version__}")
    _address(parser)
    parser.add_argument("file", nargs=1, metavar="database", help=_FILE)
    parser.set_defaults(
        prog=parser.prog, token=True, source_root=None, no_browser=False, public_origin=None, root_path="",
        allow_host=[], demo=False, jupyter=None,
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    with removed_by_signals():
        return run_command(parser.prog, lambda: run(arguments))


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"invalid port {text!r}: expected 0 to 65535 (0 picks a free port)")
    return int(text)


def _origin(text: str) -> str:
    """Return an origin as browsers write it.

    >>> _origin("https://Hub.Example.com/"), _origin("https://hub.example.com:443"), _origin("http://box:8000")
    ('https://hub.example.com', 'https://hub.example.com', 'http://box:8000')
    """
    parts = urlsplit("")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    is_origin = "@" not in text and text.rstrip("/") == f"{parts.scheme}://{parts.netloc}"
    if not is_origin or not _HOST.fullmatch(host) or parts.scheme not in _PORTS:
        raise argparse.ArgumentTypeError(
            f"invalid origin {text!r}: expected only scheme, host and port, as in https://hub.example.com; a path "
            "belongs in --root-path"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bracketed}" + (f":{port}" if port not in (None, _PORTS[parts.scheme]) else "")


def _prefix(text: str) -> str:
    """Return a path without its trailing slash.

    >>> _prefix("/user/anna/proxy/8000/"), _prefix("/")
    ('/user/anna/proxy/8000', '')
    """
    if text and (not text.startswith("/") or "//" in text or quote(text, safe=_PATH) != text):
        raise argparse.ArgumentTypeError(f"invalid path {text!r}: expected a path of a URL, as in /proxy/8000")
    return text.rstrip("/")


def _name(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise argparse.ArgumentTypeError(f"invalid host name {text!r}: expected a name without scheme and port")
    return text

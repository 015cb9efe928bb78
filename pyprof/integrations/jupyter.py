# SPDX-License-Identifier: Apache-2.0
"""The tile "PyProf" in the launcher of JupyterLab: jupyter-server-proxy starts `pyprof view` for the notebooks' folder.

jupyter-server-proxy finds `server` by its entry point `jupyter_serverproxy_servers`, and calls it wherever PyProf is
installed beside it: it needs nothing else. Its documentation: jupyter-server-proxy.readthedocs.io, Starting & Proxying
processes.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

_ICON = Path(__file__).parents[1] / "server/static/icon.svg"
_SECONDS = 60  # until the server answers, on a slow disk


def server() -> dict[str, Any]:
    """Return how the viewer is started and shown."""
    return {
        "command": _command,
        "unix_socket": True,  # in a folder of this user alone, which jupyter-server-proxy creates
        "environment": {"PYTHONSAFEPATH": "1"},  # modules in the folder of the notebooks are not Python's
        "timeout": _SECONDS,
        "launcher_entry": {
            "enabled": hasattr(socket, "AF_UNIX"),
            "title": "PyProf",
            "icon_path": str(_ICON) if _ICON.is_file() else None,
            "path_info": "pyprof/newest",
        },
    }


def _command() -> list[str]:
    """Return the command line, with the names of jupyter-server-proxy in braces."""
    folder = _folder().replace("{", "{{").replace("}", "}}")
    return [sys.executable, "-m", "pyprof", "view", "--jupyter", "{unix_socket}", "--", folder]


def _folder() -> str:
    """Return the folder of this Jupyter server's notebooks."""
    from jupyter_server.serverapp import ServerApp

    if ServerApp.initialized():
        return str(ServerApp.instance().root_dir)
    return os.getcwd()

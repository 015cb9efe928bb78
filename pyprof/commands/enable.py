# SPDX-License-Identifier: Apache-2.0
"""`pyprof enable`: a file in site-packages that lets the environment start recordings; `disable.py` removes it.

Python runs the lines of `*.pth` files in site-packages at its start. This one checks three variables, and imports
`pyprof.capture.autostart` if one of them is set; exceptions are suppressed, also when PyProf was removed. Its name
sorts late: after the file that puts an editable install of PyProf on the path.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from contextlib import suppress

from pyprof.capture.autostart import VARIABLES
from pyprof.core.arguments import Parser
from pyprof.core.errors import CaptureError
from pyprof.core.frame import say

NAME = "zz_pyprof.pth"
_MARK = "# Written by `pyprof enable`, removed by `pyprof disable`.\n"
_CONDITION = " or ".join(f"os.environ.get('{name}')" for name in VARIABLES)
_TRY = "try:\\n import pyprof.capture.autostart as autostart\\n autostart.install()\\nexcept Exception:\\n pass"
LINE = f'{_MARK}import os; exec("{_TRY}") if {_CONDITION} else None\n'
_LOOK = "import sys; sys.exit('pyprof.capture.autostart' not in sys.modules)"


def file_of_environment() -> str:
    """Return the path of the file."""
    return os.path.join(sysconfig.get_path("purelib"), NAME)


def add_arguments(parser: Parser) -> None:
    """Describe the command line."""
    parser.description = (
        "Record every Python program of this environment that imports torch and is started with "
        "PYPROF_OUTPUT or PYPROF_STEPS set. Example: pyprof enable; PYPROF_STEPS=10:15 torchrun train.py"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the file, and print its effect."""
    from pyprof.core import atomic_file

    path = file_of_environment()
    try:
        is_ours(path)
        with atomic_file.named(path) as name, open(name, "w", encoding="utf-8") as file:
            file.write(LINE)
            os.chmod(name, 0o644)  # other users of the environment start Python too
    except OSError as error:
        raise CaptureError(
            f"{path} cannot be written ({error.strerror or error}). Use an environment that you can write to."
        ) from error
    print(f"{path}: written. Programs of this environment that import torch are recorded if one of these is set:")
    print(
        "PYPROF_OUTPUT=net.sqlite  the whole run     PYPROF_STEPS=10:15  these steps     PYPROF_TRIGGER=1  on request"
    )
    if not _is_importable():
        say(
            arguments.prog,
            "Python does not find PyProf on its own: keep PYTHONPATH set, or install PyProf.",
        )


def is_ours(path: str) -> bool:
    """Return whether the file exists. Raises CaptureError for one that `enable` did not write."""
    with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        if not file.read().startswith(_MARK):
            raise CaptureError(f"{path} was not written by pyprof enable: move it away.")
        return True
    return False


def _is_importable() -> bool:
    """Return whether a Python started in another folder, without PYTHONPATH, finds PyProf."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with suppress(OSError):
        command = [sys.executable, "-c", _LOOK]
        return not subprocess.run(command, env={**environment, "PYPROF_TRIGGER": "1"}, cwd="/", check=False).returncode
    return False

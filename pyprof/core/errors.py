# SPDX-License-Identifier: Apache-2.0
"""Errors that PyProf raises for the user at the terminal.

A message is one or two sentences: what was found, what was expected, what to do next. Only a command's `main`
catches them, prints one line on stderr and exits with `exit_code`.
"""


def install(extra: str = "", python: str = "") -> str:
    """Return the command that installs PyProf, with an extra, into the environment of an interpreter: from a clone of
    the repository, since it is on no package index.

    >>> install(), install("viewer"), install(python="venv/bin/python")
    ("pip install '.'", "pip install '.[viewer]'", "venv/bin/python -m pip install '.'")
    """
    target = f".[{extra}]" if extra else "."
    return f"{python + ' -m ' if python else ''}pip install '{target}'"


WHERE = "in a clone of PyProf's repository"


class PyProfError(Exception):
    """Base of every error that PyProf raises on purpose."""

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and notebooks print in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class FormatError(PyProfError):
    """A file that cannot be read as a recording, a net.dict or a profile database."""


class VersionError(FormatError):
    """A profile database of another schema version; `newer` tells whether it is a later one."""

    def __init__(self, sentence: str, newer: bool):
        super().__init__(sentence)
        self.newer = newer


class DamagedError(FormatError):
    """A profile database with content that is invalid or missing."""


class CaptureError(PyProfError):
    """Capture cannot start or cannot write its file."""


class MissingPackage(PyProfError, ImportError):
    """A module of PyProf was imported that needs a package which is not installed."""

    def __init__(self, module: str, package: str, extra: str):
        super().__init__(f"{module} needs {package}: {install(extra)} {WHERE} installs it.")


class UsageError(PyProfError):
    """Arguments that do not fit together."""

    exit_code = 2

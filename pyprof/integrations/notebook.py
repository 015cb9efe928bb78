# SPDX-License-Identifier: Apache-2.0
"""`%pyprof` and `%%pyprof` in IPython and notebooks, after `%load_ext pyprof`.

    prof = %pyprof train(model)        record a statement
    %%pyprof -n prof                   record a cell; its profile is named prof

Both record with `pyprof.profile`, and their value is the profile, which a notebook shows as a table. Calls have the
lines of the cell, as without the magic. An error of the program goes on, after the profile of what came before it has
been shown and named.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any

from pyprof.capture.instrument import notebook_cells
from pyprof.capture.schedule import profile
from pyprof.core import scratch
from pyprof.core.errors import MissingPackage, PyProfError, UsageError
from pyprof.profiles import Profile
from pyprof.profiles import load as load_profile

try:
    from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand
    from IPython.display import display
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "IPython":
        raise
    raise MissingPackage(__name__, "IPython", "notebook") from None

_NUMBERS = ("wait", "warmup", "active")
_SWITCHES = ("sync", "memory", "io")
_TEXTS = ("sample", "collector")
_ALL = ", ".join(["-o", "-n", *(f"--{name}" for name in (*_NUMBERS, *_SWITCHES, *_TEXTS))])
_OPTION = re.compile(
    r"""\s*(?:-(?P<letter>[on])\s*(?:"(?P<quoted>[^"]+)"|(?P<text>[^\s"]+))"""
    r"""|--(?P<word>[a-z]+)(?:=(?P<value>\S+))?)(?=\s|$)"""
)


def load(shell: Any) -> None:
    """Register the magics with a shell."""
    shell.register_magics(_PyProf)


@magics_class
class _PyProf(Magics):
    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def pyprof(self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Profile | None:
        """Record a statement, or a cell, and return its profile.

            prof = %pyprof train(model)
            %%pyprof -n prof --wait=1 --warmup=1 --active=3

        -o FILE        keep the recording; without it, it is removed with the profile
        -n NAME        name the profile
        --wait=N --warmup=N --active=N    steps that are left alone, recorded and thrown away, kept
        --sync --memory --io --sample=cpu --collector=NAME    as for pyprof.profile
        """
        shell: Any = self.shell
        values, source = _split(line)
        if cell is not None:
            if source:
                raise UsageError(f"%%pyprof takes options only, not {source!r}; the statements are below it.")
            source = cell
        if not source.strip():
            raise UsageError("name a statement after %pyprof, or write %%pyprof above the statements of a cell.")
        options, frame = _options(values), _cell_frame(sys._getframe(1))
        body, last = _compiled(shell, line, source, cell is not None, frame)
        folder = None if "o" in values else scratch.Folder()
        path = values["o"] if folder is None else os.path.join(_inside(folder), f"{_name(frame)}.sqlite")
        before = _stamp(path)
        try:
            with profile(path, **options):
                exec(body, shell.user_ns, local_ns)
                value = eval(last, shell.user_ns, local_ns) if last is not None else None
        except BaseException:
            with suppress(PyProfError):  # there was nothing to record yet
                result = _result(shell, path, folder, values.get("n"), before)
                if result is not None:
                    _display(result)
            raise
        if value is not None and cell is not None and not source.rstrip().endswith(";"):
            _display(value)
        return _result(shell, path, folder, values.get("n"), before)


def _inside(folder: scratch.Folder) -> str:
    """Return a folder in a temporary one: who writes a file locks its folder, and that one is locked already."""
    name = os.path.join(folder.name, "cells")
    os.mkdir(name)
    return name


def _stamp(path: str) -> tuple[int, int] | None:
    """Return the identity of a file; None without one."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _result(
    shell: Any, path: str, folder: scratch.Folder | None, name: str | None, before: tuple[int, int] | None
) -> Profile | None:
    """Return the profile of a file, under its name if it has one; None if nothing was recorded, so that the file is the
    one that was there before."""
    if _stamp(path) in (None, before):
        if folder is not None:
            folder.cleanup()
        return None
    result = load_profile(path)
    if folder is not None:
        weakref.finalize(result, folder.cleanup)
    if name is not None:
        shell.user_ns[name] = result
    return result


def _display(value: Any) -> None:
    display(value)  # type: ignore[no-untyped-call]


def _split(line: str) -> tuple[dict[str, str], str]:
    """Return the options at the beginning of a line, and the statement after them. Raises UsageError.

    >>> _split('-o "my net.sqlite" --sync --active=3 train(x, -1)')
    ({'o': 'my net.sqlite', 'sync': '', 'active': '3'}, 'train(x, -1)')
    """
    values = {}
    while match := _OPTION.match(line):
        name = match["letter"] or match["word"]
        values[name] = match["quoted"] or match["text"] or match["value"] or ""
        line = line[match.end() :]
    rest = line.strip()
    if rest.startswith("-"):
        raise UsageError(f"{rest.split()[0]} is not an option of %pyprof; it has {_ALL}.")
    return values, rest


def _options(values: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of `profile`. Raises UsageError."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name in _NUMBERS:
            if not value.isdecimal():
                raise UsageError(f"--{name}={value}: expected a number of steps.")
            out[name] = int(value)
        elif name in _TEXTS:
            out[name] = value
        elif name in _SWITCHES and not value:
            out[name] = True
        elif name not in ("o", "n"):
            raise UsageError(f"--{name} is not an option of %pyprof; it has {_ALL}.")
    if not values.get("n", "n").isidentifier():
        raise UsageError(f"-n {values['n']}: expected a name for the profile.")
    return out


def _name(frame: FrameType | None) -> str:
    """Return a name for the recording of a cell: cell3."""
    name = "" if frame is None else notebook_cells.name(frame.f_code.co_filename)
    return "cell" + "".join(character for character in name if character.isdecimal())


def _compiled(shell: Any, line: str, source: str, cell: bool, frame: FrameType | None) -> tuple[Any, Any]:
    """Return the code of the statements but the last expression, and that of the expression, with the lines that they
    have in the notebook. Raises SyntaxError."""
    compiler = shell.compile
    if frame is None:  # the magic is called by a function outside of the notebook
        name, above = compiler.cache(source, shell.execution_count), 0
    else:
        name, above = frame.f_code.co_filename, 1 if cell else frame.f_lineno - 1
        if cell:
            text = f"%%pyprof {line}\n{source}"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = compiler.ast_parse(shell.transform_cell(source), filename=name)
    tree = ast.increment_lineno(shell.transform_ast(tree), above)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    expression = None if last is None else compiler(ast.Expression(last.value), name, "eval")
    return compiler(tree, name, "exec"), expression


def _cell_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the cell that runs."""
    while frame is not None and notebook_cells.name(frame.f_code.co_filename) == frame.f_code.co_filename:
        frame = frame.f_back
    return frame

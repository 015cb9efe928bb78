# SPDX-License-Identifier: Apache-2.0
"""Rules of the code that a linter does not have: who may print, build parsers, write SQL; names that say nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Function = ast.FunctionDef | ast.AsyncFunctionDef
# A past participle or a pronoun says how a value came about, never what it is.
BANNED = {
    "found", "told", "said", "made", "mine", "chosen", "wanted", "kept", "shown", "given", "asked", "taken", "gone",
    "met", "sound", "worded", "poured", "framed", "stacked", "hung", "here", "some", "others",
}  # fmt: skip
# `some` is an argument of torch.svd.
ALLOWED = {("costs/ops/spectral.py", "svd")}


@cache
def sources() -> dict[str, str]:
    """Read every module of the package."""
    return {
        path.relative_to(ROOT / "pyprof").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "pyprof").rglob("*.py"))
    }


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Parse every module of the package."""
    return {name: list(ast.walk(ast.parse(source))) for name, source in sources().items()}


def under(name: str, *folders: str) -> bool:
    """Return whether a module is one of some files, or in one of some folders."""
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def calls(name: str) -> Iterator[str]:
    """Yield the modules with a call of a function, by its last name."""
    for module, each in nodes().items():
        for node in each:
            if isinstance(node, ast.Call) and name in (
                getattr(node.func, "id", ""),
                getattr(node.func, "attr", ""),
            ):
                yield module


def bound(function: Function) -> set[str]:
    """Return the names that a function binds, and its own."""
    arguments = function.args
    names = {argument.arg for argument in arguments.args + arguments.kwonlyargs + arguments.posonlyargs}
    names |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names | {function.name}


def test_names_say_what_a_value_is() -> None:
    wrong = {
        (name, node.name): names
        for name, each in nodes().items()
        for node in each
        if isinstance(node, Function) and (names := sorted(bound(node) & BANNED))
    }
    assert wrong.keys() == ALLOWED, wrong


def test_docstrings_begin_with_an_imperative_or_a_noun() -> None:
    wrong = []
    for name, each in nodes().items():
        for node in each:
            if isinstance(node, Function | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                if re.match(r"(What|Whether|How|Which|Where|Who|When|Why)\b", text):
                    wrong.append(f"{name}: {text.splitlines()[0]}")
    assert not wrong


def test_only_commands_build_command_lines() -> None:
    allowed = {
        "core/arguments.py",
        "commands/main.py",
        "commands/view.py",
    }  # the last: dlprofviewer, which stands alone
    assert {name for call in ("ArgumentParser", "Parser") for name in calls(call)} <= allowed


def test_only_commands_and_lines_on_stderr_print() -> None:
    """The rest returns values. Capture has no other way to speak to the user of a script."""
    allowed = (
        "commands", "capture", "dlprof", "reference", "capture/autostart.py", "core/frame.py",
        "estimation/module_totals.py", "core/stages.py", "core/terminal.py", "overview/ending.py", "server/serve.py",
        "prof/replay.py",  # in the text of the script that it writes
    )  # fmt: skip
    assert [name for name in calls("print") if not under(name, *allowed)] == []


def test_errors_become_exit_codes_in_one_place() -> None:
    """Elsewhere they are caught only where a process has another way to tell them: the server, a recorded program, a
    screen."""
    allowed = (
        "core/frame.py",
        "commands/main.py",
        "capture",
        "server/child.py",
        "server/library.py",
        "server/serve.py",
        "dlprof/command.py",
        "integrations/mcp_server.py",
        "query/process.py",
        "top/app.py",
    )
    catching = [
        name
        for name, each in nodes().items()
        for node in each
        if isinstance(node, ast.ExceptHandler) and node.type and "PyProfError" in ast.unparse(node.type)
    ]
    assert [name for name in catching if not under(name, *allowed)] == []


def test_sql_stays_in_its_layers() -> None:
    query = re.compile(
        r"\s*(select\s.+\sfrom|insert into|update \w+ set|delete from|create (table|index)|attach)\b", re.S
    )
    allowed = (
        "store",
        "facts",
        "measures",
        "reports",
        "rules",
        "export",
        "fleet",
        "timeline",
        "server",
        "views",
        "capture",
        "dlprof/model_data.py",
        "core/sqlite_file.py",
        "overview/ending.py",  # of a recording, not of a profile database
        "query",
        "integrations/mcp_server.py",  # over the views
    )
    written = {
        name
        for name, each in nodes().items()
        for node in each
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and query.match(node.value)
    }
    assert {name for name in written if not under(name, *allowed)} == set()


def test_sql_names_kinds_of_events_and_ranges() -> None:
    """Their numbers, and the conditions that need them, are in store/kinds.py."""
    bare = re.compile(r"\bkind\s*(=|<>|!=|[<>]=?|(not\s+)?in\s*\(|(not\s+)?between\s|when\s)\s*\d")
    assert bare.search("select id from event where kind in (0, 3)")
    assert bare.search("case kind when 1 then 0 end")
    wrong = {
        f"{name}: {match[0]}"
        for name, each in nodes().items()
        for node in each
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := bare.search(node.value))
    }
    assert {text for text in wrong if not under(text.partition(":")[0], "store/kinds.py")} == set()


def test_libraries_stay_in_their_layers() -> None:
    homes = {
        "rich": ("core/stages.py", "overview/lines.py", "render/layout.py", "top"),
        "textual": ("top/app.py", "top/grid.py"),
        "fastapi": ("server",), "starlette": ("server", "integrations/tensorboard_page.py"), "uvicorn": ("server",),
        "pydantic": ("views/models", "server/notes.py"),
        "xlsxwriter": ("views/exports.py",), "fpdf": ("views/exports.py",),
        "torch": ("capture", "prof/replay.py"),
        "dask": ("fleet",), "distributed": ("fleet",), "fsspec": ("fleet",),
    }  # fmt: skip
    wrong = []
    for name, each in nodes().items():
        for node in each:
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for package in {module.split(".")[0] for module in modules} & homes.keys():
                if not under(name, *homes[package]):
                    wrong.append(f"{name} imports {package}")
    assert not wrong

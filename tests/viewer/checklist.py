# SPDX-License-Identifier: Apache-2.0
"""What a viewer of profiles has to do, statement by statement, and the tests that show it: the table in docs/viewer.md.

`statements.txt` has the statements, `pytest.mark.statement` of tests/viewer names those that a test shows. What the
tests of the server show, and what is not so on purpose, is below. `python -m tests.viewer.checklist` writes the table.
"""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "viewer.md"
BEGIN, END = "<!-- checklist: python -m tests.viewer.checklist -->", "<!-- end of the checklist -->"

_SYSTEM = "test_views.py::test_system_configuration_leaves_out_what_is_unknown"
SERVER = {
    "V01": "test_command.py::test_it_serves_until_it_is_interrupted",
    "V02": "test_command.py::test_other_words",
    "V03": "test_command.py::test_others_reach_it_only_if_they_are_meant_to",
    "V04": "test_command.py::test_a_port_in_use",
    "DT12": "test_exports.py::test_an_export_longer_than_a_table",
    "D36": _SYSTEM,
    "IT22": "test_jobs.py::test_what_does_not_exist_fails_with_a_sentence",
    "IT23": "test_jobs.py::test_a_process_that_is_killed",
    "TR01": "test_library.py::test_files_that_are_no_profile",
    "TR03": "test_library.py::test_other_schemas",
    "TR04": "test_library.py::test_other_schemas",
} | dict.fromkeys(("D27", "D30", "D31", "D32", "D33", "D34", "D35", "D38"), _SYSTEM)

EXCEPTIONS = {
    "N04": "GPUs is in the navigation of every profile: it has the figures and idle time of a single GPU, too. "
    "Its bars are there for several alone (GP01).",
    "IT08": "Dragging moves along the iterations; their height always fits.",
    "N09": "Help is pages of the viewer itself; the project has no address for mail.",
}


def statements() -> dict[str, str]:
    """Each statement by its number."""
    lines = (HERE / "statements.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def marked() -> dict[str, list[str]]:
    """The tests that say they show a statement, by its number."""
    found: dict[str, list[str]] = {}
    for file in sorted(HERE.rglob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        groups = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                name = f"{file.relative_to(HERE).as_posix()}::{node.name}"
                for call in _calls(node, groups):
                    for number in call:
                        found.setdefault(number, []).append(name)
    return found


def _calls(function: ast.FunctionDef, groups: dict[str, ast.expr]) -> list[list[str]]:
    """The numbers of the marks of a function, those of its parameters (a name for a list of them) among them."""
    out = []
    places: list[ast.AST] = list(function.decorator_list)
    for place in places:  # grows: names stand for lists
        found = {node.id for node in ast.walk(place) if isinstance(node, ast.Name)} & set(groups)
        places += [groups[name] for name in sorted(found)]
    for place in places:
        for node in ast.walk(place):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "statement"
            ):
                out.append([str(ast.literal_eval(argument)) for argument in node.args])
    return out


def table() -> str:
    """The table, as Markdown."""
    tests = marked()
    lines = ["| | Statement | Shown by |", "|---|---|---|"]
    for number, text in statements().items():
        shown = tests.get(number, []) + ([SERVER[number]] if number in SERVER else [])
        by = "<br>".join(f"`{name}`" for name in shown) or f"*Not so:* {EXCEPTIONS.get(number, '')}"
        lines.append(f"| {number} | {text.replace('|', chr(92) + '|')} | {by} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The page with the table as it should be."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""What a viewer of profiles has to do, statement by statement, and the tests that show it: tables in docs/viewer.md.

`statements.txt` has those of DLProf's viewer, `plugin.txt` those of the profiler's plugin for TensorBoard,
`timeline.txt` those of AWS Neuron's device viewer and of other timelines;
`pytest.mark.statement` of tests/server names those that a test shows. What the tests of the server show, and what is
not so on purpose, is below. `python -m tests.server.checklist` writes the tables.
"""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "viewer.md"
LISTS = ("statements", "plugin", "timeline")  # each a file here, and a table
END = "<!-- end of the checklist -->"

_SYSTEM = "test_views.py::test_system_configuration_leaves_out_what_is_unknown"
SERVER = {
    "V01": "test_command.py::test_it_serves_until_it_is_interrupted",
    "V02": "test_command.py::test_other_words",
    "V03": "test_command.py::test_others_reach_it_only_if_they_are_meant_to",
    "V04": "test_command.py::test_a_port_in_use",
    "V06": "test_security.py::test_browsing_changes_nothing",
    "DT12": "test_exports.py::test_an_export_longer_than_a_table",
    "D36": _SYSTEM,
    "IT22": "test_jobs.py::test_what_does_not_exist_fails_with_a_sentence",
    "TR01": "test_library.py::test_files_that_are_no_profile",
    "TR03": "test_library.py::test_other_schemas",
    "TR04": "test_library.py::test_other_schemas",
    "PR04": "test_library.py::test_a_folder_of_runs",
    "PR06": "test_library.py::test_files_that_are_no_profile",
    "WE02": "test_timeline.py::test_the_details_of_a_range_and_a_call",
    "WY01": "../timeline/test_tracks.py::test_runs_of_modules",
    "WY04": "../timeline/test_tracks.py::test_gaps_and_events_of_a_device_fill_its_time",
    "PM15": "test_views.py::test_thinned_curves_keep_their_extremes",
} | dict.fromkeys(("D27", "D30", "D31", "D32", "D33", "D34", "D35", "D38"), _SYSTEM)

EXCEPTIONS = {
    "N04": "GPUs is in the navigation of every profile: it has the figures and idle time of a single GPU, too. "
    "Its bars are there for several alone (GP01).",
    "IT08": "Dragging moves along the iterations; their height always fits.",
    "N09": "Help is pages of the viewer itself; the project has no address for mail.",
    "PR08": "Files are read from the file system: mount the storage, or copy the run.",
    "PR09": "The panel at the left is as narrow as the names of the views; run, worker and span are above it.",
    "PP20": "Pages are those of DLProf's tables, in every view: 25 rows; 10, 25, 50 or 100.",
    "PP22": "Shapes are those of tensors; what has none is left out.",
    "PM12": "All sizes are shown, the largest first: nothing is hidden that nobody asked to hide.",
    "PMO05": "Widths are total times, which add up to that of the module around; "
    "means of different numbers of calls do not.",
    "PMO07": "Modules of pytorch-lightning are modules: they are in the same view.",
    "PW09": "Names of workers are shown as they are: which part of them is a host is a guess.",
    "PD02": "Runs are compared whole, with their workers and spans added up: "
    "the same work may be on another rank in another run.",
    "PD10": "Operators that are compared have none inside them: their own durations are their durations.",
    "WU01": "It is the Overview.",
    "WX12": "Not yet.",
    "WY06": "Ranks lie where the clock of the recording puts them; the report clocks has how far that is off.",
    "WY07": "Compare has two recordings, and a table of their steps that adds up.",
    "WY09": "It needs the path first.",
}


def statements(which: str) -> dict[str, str]:
    """Each statement of a list by its number."""
    lines = (HERE / f"{which}.txt").read_text(encoding="utf-8").splitlines()
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
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "statement":
                out.append([str(ast.literal_eval(argument)) for argument in node.args])
    return out


def table(which: str) -> str:
    """The table of a list, as Markdown."""
    tests = marked()
    lines = ["| | Statement | Shown by |", "|---|---|---|"]
    for number, text in statements(which).items():
        shown = tests.get(number, []) + ([SERVER[number]] if number in SERVER else [])
        by = "<br>".join(f"`{name}`" for name in shown) or f"*Not so:* {EXCEPTIONS.get(number, '')}"
        lines.append(f"| {number} | {text.replace('|', chr(92) + '|')} | {by} |")
    return "\n".join(lines)


def begin(which: str) -> str:
    """What stands before the table of a list."""
    return f"<!-- checklist of {which}: python -m tests.server.checklist -->"


def written(text: str) -> str:
    """The page with the tables as they should be."""
    for which in LISTS:
        head, _, rest = text.partition(begin(which))
        text = f"{head}{begin(which)}\n\n{table(which)}\n\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, and importing the package stays cheap.

The layers are those of the architecture: a module may import its own layer and those it is said to stand on,
wherever in the file the import is written.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyprof.arguments import Parser, table_format
from pyprof.commands import COMMANDS
from tests import build

TRAINING = f"""
    {build.call("relu", (8, 4))}
        aten::relu
            > 50 relu_kernel
"""
ROOT = Path(__file__).resolve().parent.parent
CORE = {
    "arguments", "arrow", "errors", "frame", "inputs", "intervals", "mailbox", "marker", "model", "names", "netdict",
    "occupancy", "place", "registry", "scratch", "screen", "serving", "stages",
}  # fmt: skip
STANDS_ON = {
    "parse": CORE,
    "prof": CORE,
    "capture": CORE,
    "autostart": {"capture"},
    "nvtx": {"capture"},  # the original's spelling of init and wrap
    "metrics": CORE,
    "db": CORE | {"parse", "prof", "metrics"},
    "rules": CORE | {"db", "metrics", "prof"},
    "reports": CORE | {"db", "metrics", "rules"},
    "export": CORE | {"db", "parse"},
    "overview": CORE
    | {"db", "metrics", "reports", "rules", "commands"},  # a process of its own runs the command
    "session": CORE | {"parse", "prof", "db", "reports", "rules", "export"},
    "replaying": CORE | {"db"},
    "info": CORE | {"parse"},
    "estimating": CORE | {"prof", "capture"},
    "totals": CORE | {"prof", "capture", "estimating"},
    "dlprof": CORE | {"parse", "db", "metrics", "reports", "rules", "session", "overview", "commands"},
    "viewer": CORE | {"parse", "prof", "db", "metrics", "reports", "rules", "session"},
    "commands": CORE
    | {
        "autostart",
        "capture",
        "db",
        "export",
        "info",
        "netdict",
        "overview",
        "parse",
        "prof",
        "replaying",
        "reports",
    }
    | {"session", "totals", "viewer"},
    "reference": CORE | {"__init__", "prof", "db", "metrics", "reports", "rules"},
    "__init__": CORE | {"capture", "nvtx", "session", "prof", "estimating", "autostart"},
    "__main__": {"commands"},
}
GROUPS = {"pyprof.formats", "pyprof.costs"}  # of entry points, which are no modules
# Scripts that people run by path: they start a command, and nothing imports them.
EXCEPTIONS = {
    (f"{name}/{script}.py", "commands") for name in ("parse", "prof") for script in (name, "__main__")
}


class Import(ast.NodeVisitor):
    """Every module that a source names: `import a.b`, `from a import b`, `import_module("a.b")`."""

    def __init__(self, package: str):
        self.package = package
        self.modules: list[str] = []

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):  # names for a type checker are not run
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self._add(*(alias.name for alias in node.names))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            base = self.package.split(".")
            module = ".".join([*base[: len(base) - node.level + 1], *([module] if module else [])])
        self._add(module, *(f"{module}.{alias.name}" for alias in node.names))

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(r"pyprof(\.[a-z_]+)+", node.value):
            self._add(node.value)  # a module by name, for import_module or a table of homes

    def _add(self, *modules: str) -> None:
        self.modules.extend(modules)


def imports(source: str, package: str) -> list[str]:
    visitor = Import(package)
    visitor.visit(ast.parse(source))
    return visitor.modules


def sources() -> Iterator[tuple[str, str, str]]:
    """Each module: path below pyprof/, package, source."""
    for path in sorted((ROOT / "pyprof").rglob("*.py")):
        name = path.relative_to(ROOT / "pyprof").as_posix()
        yield name, ".".join(path.relative_to(ROOT).parent.parts), path.read_text(encoding="utf-8")


def layer(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def wrong_imports(name: str, package: str, source: str) -> list[str]:
    """What a module imports that its layer does not stand on."""
    mine, wrong = layer(name), []
    allowed = CORE if mine in CORE else STANDS_ON.get(mine, set())
    for module in imports(source, package):
        parts = module.split(".")
        if parts[0] == "torch" and mine != "capture":
            wrong.append(f"{name} imports {module}: only capture may")
        if parts[0] != "pyprof" or len(parts) < 2 or parts[1] == "__version__" or module in GROUPS:
            continue
        if parts[1] == mine or parts[1] in allowed:
            continue
        if (name, parts[1]) in EXCEPTIONS:
            continue
        wrong.append(
            f"{name} imports {module}: {mine} stands on {', '.join(sorted(allowed)) or 'nothing of ours'}"
        )
    return wrong


@pytest.mark.parametrize(("name", "package", "source"), list(sources()), ids=[name for name, *_ in sources()])
def test_imports_point_one_way(name, package, source):
    assert layer(name) in CORE | STANDS_ON.keys(), "a new layer: say in STANDS_ON what it stands on"
    assert not wrong_imports(name, package, source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("parse/join.py", "from pyprof.prof import cost"),
        ("parse/join.py", "def late():\n    from pyprof.prof.cost import lookup"),
        ("prof/columns.py", "import pyprof.parse"),
        ("prof/columns.py", "from ..parse import parse"),
        ("prof/columns.py", "def rows():\n    import pyprof.session"),
        ("prof/prof.py", "import pyprof.session"),
        ("prof/cost.py", "import torch"),
        ("prof/cost.py", "from torch.nn import functional"),
        ("model.py", "from pyprof import session"),
        ("session.py", "from pyprof.commands.main import main"),
        ("parse/join.py", "import_module('pyprof.capture.window')"),
    ],
)
def test_a_wrong_import_is_found(name, source):
    package = ".".join(["pyprof", *name.split("/")[:-1]])
    assert wrong_imports(name, package, source)


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_of_the_package_is_light():
    heavy = {"torch", "pandas", "numpy", "pyarrow", "rich", "nvtx", "adbc_driver_sqlite", "sqlite3"}
    assert not loaded_by("import pyprof") & heavy


@pytest.mark.parametrize("module", ["commands.parse", "commands.prof", "session", "info", "commands.main"])
def test_offline_parts_never_load_torch(module):
    assert "torch" not in loaded_by(f"import pyprof.{module}")


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_loads_nothing_heavy(words):
    heavy = {"torch", "pandas", "pyarrow", "numpy", "rich", "sqlite3"}
    command = f"try:\n    with redirect_stdout(StringIO()): main({words!r})\nexcept SystemExit: pass"
    imports = "from contextlib import redirect_stdout; from io import StringIO"
    assert not loaded_by(f"{imports}; from pyprof.commands.main import main\n{command}") & heavy


def test_what_help_lists_without_importing_it_is_what_is_registered():
    from pyprof.commands import export, prof, report
    from pyprof.export import formats
    from pyprof.prof.columns import COLUMNS
    from pyprof.reports import every
    from pyprof.reports.diff import BY
    from pyprof.reports.output import FORMATS

    assert [(key, heading) for key, heading, _ in prof.columns()] == [
        (c.key, c.heading) for c in COLUMNS.values()
    ]
    assert all(COLUMNS[key].doc.startswith(text.rstrip(".")) for key, _, text in prof.columns())
    assert report.listed() == {one.name: one.title for one in every()}
    assert report.options() == sorted({option.name for one in every() for option in one.options})
    assert export.formats() == list(formats())
    parser = Parser()
    table_format(parser)
    assert all(name in parser.format_help() for name in FORMATS)
    assert set(BY) == {"step", "operator", "kernel"}


def test_parse_does_not_load_pandas(tmp_path: Path):
    """It takes longer to import than 100,000 kernels to read."""
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording(TRAINING))
    out = tmp_path / "net.dict"
    loaded = loaded_by(f"from tests.cli import parse\nparse([{str(path)!r}, '-o', {str(out)!r}])")
    assert out.stat().st_size
    assert "pandas" not in loaded

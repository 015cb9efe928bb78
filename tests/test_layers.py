# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, and importing the package stays cheap.

The layers are those of docs/architecture.md: a module may import its own folder and those that it stands on, wherever
in the file the import is written.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from pyprof.commands import COMMANDS
from pyprof.core.arguments import Parser, add_table_options
from tests import build

TRAINING = f"""
    {build.call("relu", (8, 4))}
        aten::relu
            > 50 relu_kernel
"""
ROOT = Path(__file__).resolve().parent.parent
CORE = {"core"}
STEPS = CORE | {"store", "metrics", "parse", "costs", "facts.device", "facts.host"}
# A folder may import itself and what stands here: folders with all inside them, modules below pyprof/.
STANDS_ON = {
    "core": set(),
    "parse": CORE | {"parse"},
    "costs": CORE | {"costs"},
    "prof": CORE | {"costs"},
    "capture.core": CORE | {"capture"},
    "capture.instrument": CORE | {"capture", "capture.core"},
    "capture.process": CORE | {"capture", "capture.core", "capture.instrument"},
    "capture.collectors": CORE | {"capture", "capture.core", "capture.instrument", "capture.process"},
    "capture.environment": CORE | {"capture.core", "capture.instrument", "capture.collectors"},
    "capture.output": CORE | {"capture.core", "capture.instrument", "capture.collectors"},
    "capture.extras": CORE | {"capture", "capture.core", "capture.instrument", "capture.output"},
    "capture": CORE | {"capture"},
    "nvtx": {"capture"},  # the original's spelling of init and wrap
    "metrics": CORE,
    "store": CORE,
    "store.write": CORE | {"store", "parse", "costs"},
    "facts.device": CORE | {"store", "costs", "parse"},
    "facts.host": CORE | {"store", "parse", "facts.device"},
    "facts.steps": STEPS,
    "facts.ranks": STEPS | {"facts.steps"},
    "facts.path": STEPS | {"facts.steps", "facts.ranks"},
    "facts": STEPS | {"facts.steps", "facts.ranks"},
    "rules": CORE | {"store", "facts", "metrics", "costs"},
    "measures": CORE | {"store", "facts", "metrics", "costs"},
    "reports": CORE | {"store", "facts", "metrics", "measures", "rules"},
    "render": CORE | {"facts", "reports"},
    "export": CORE | {"store", "facts", "parse"},
    # A process of its own runs the command.
    "overview": CORE | {"store", "facts", "metrics", "reports", "rules", "commands"},
    "timeline": CORE | {"store", "facts", "reports"},
    "query": CORE | {"store", "reports", "parse.reader_process"},
    "views": CORE | {"costs", "store", "facts", "metrics", "measures", "reports", "rules", "render", "timeline"},
    "profiles": CORE | {
        "parse", "prof", "costs", "store", "facts", "reports", "rules", "export", "timeline", "query", "overview",
        "views", "server.one_file", "integrations.notebook_frame", "integrations.notebook_progress",
    },
    "fleet": CORE | {"__init__", "parse", "store", "facts", "reports", "profiles", "timeline"},
    "gate": CORE | {"__init__", "facts", "reports"},
    "estimation": CORE | {"costs", "capture"},
    "integrations": CORE | {
        "__init__", "capture", "parse", "profiles", "query", "overview", "reports", "rules", "timeline", "views",
        "server", "facts", "gate",
    },
    "dlprof": CORE | {
        "parse", "store", "facts", "metrics", "reports", "rules", "render", "profiles", "overview", "commands",
    },
    "server": CORE | {
        "parse", "store", "facts", "metrics", "reports", "rules", "render", "export", "profiles", "timeline", "views",
    },
    "top": CORE | {"store", "facts", "metrics", "overview", "reports", "rules", "views", "server.tasks"},
    "commands": CORE | {
        "capture", "store", "facts", "export", "fleet", "gate", "integrations", "overview", "parse", "prof", "costs",
        "query", "render", "reports", "profiles", "estimation", "top", "server",
    },
    "reference": CORE | {"__init__", "prof", "costs", "facts", "metrics", "query", "reports", "rules"},
    "__init__": CORE | {
        "capture", "fleet", "nvtx", "profiles", "costs", "estimation", "integrations.notebook",
    },
    "__main__": {"commands"},
}  # fmt: skip
# Scripts that people run by path: they start a command, and nothing imports them.
SCRIPTS = {f"{name}/{script}.py" for name in ("parse", "prof") for script in (name, "__main__")}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "pyprof").rglob("*.py")
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


def folder(name: str) -> str:
    """The most specific row of STANDS_ON that a file is under."""
    parts = name.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    dotted = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((one for one in dotted if one in STANDS_ON), parts[0])


def wrong_imports(name: str, package: str, source: str) -> list[str]:
    """What a module imports that its folder does not stand on."""
    here, wrong = folder(name), []
    allowed = STANDS_ON[here]
    # The root of capture stands on its folders, which may import of it only `capture/__init__.py`.
    whole = tuple(f"{one}." for one in allowed if one != "capture" or here.split(".")[0] != "capture" or here == one)
    for module in imports(source, package):
        if module.split(".")[0] == "torch" and here.split(".")[0] != "capture":
            wrong.append(f"{name} imports {module}: only capture may")
        target = next((m for m in (module, module.rpartition(".")[0]) if m in MODULES and m != "pyprof"), None)
        if target is None or (name in SCRIPTS and target.startswith("pyprof.commands")):
            continue
        below = target.removeprefix("pyprof.")
        inside = MODULES[target].relative_to(ROOT / "pyprof").as_posix()
        if folder(inside) != here and below not in allowed and not below.startswith(whole):
            wrong.append(f"{name} imports {module}: {here} stands on {', '.join(sorted(allowed))}")
    return wrong


def test_imports_point_one_way() -> None:
    wrong = []
    for name, package, source in sources():
        assert folder(name) in STANDS_ON, f"{name}: a new layer, say in STANDS_ON what it stands on"
        wrong += wrong_imports(name, package, source)
    assert not wrong


def graph() -> dict[str, set[str]]:
    """The modules that each module imports, wherever in the file the import is written."""
    out = {}
    for module, path in MODULES.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        named = imports(path.read_text(encoding="utf-8"), package)
        targets = {name if name in MODULES else name.rpartition(".")[0] for name in named}
        out[module] = {name for name in targets if name in MODULES and name not in (module, "pyprof")}
        # `from package import module` names the package too, which needs nothing of the module.
        out[module] -= {name for name in out[module] if any(other.startswith(f"{name}.") for other in out[module])}
    return out


def test_no_module_imports_itself_through_others() -> None:
    """Not even in a function, later: two modules that need each other are one, or a third that both stand on."""
    TopologicalSorter(graph()).prepare()  # raises CycleError, which names the modules


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("parse/join.py", "from pyprof.prof import cost"),
        ("parse/join.py", "def late():\n    from pyprof.costs.cost import lookup"),
        ("costs/columns.py", "import pyprof.parse"),
        ("costs/columns.py", "from ..parse import parse"),
        ("costs/columns.py", "def rows():\n    import pyprof.profiles"),
        ("prof/prof.py", "import pyprof.profiles"),
        ("costs/cost.py", "import torch"),
        ("costs/cost.py", "from torch.nn import functional"),
        ("core/model.py", "from pyprof import profiles"),
        ("profiles.py", "from pyprof.commands.main import main"),
        ("parse/join.py", "import_module('pyprof.capture.controller')"),
        ("store/files.py", "from pyprof.facts import window"),
        ("store/packed.py", "from pyprof.store.write import facts"),
        ("capture/instrument/patch.py", "from pyprof.capture import controller"),
        ("capture/collectors/kineto.py", "from pyprof.capture.session import Session"),
    ],
)
def test_a_wrong_import_is_found(name: str, source: str) -> None:
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


@pytest.mark.parametrize("module", ["commands.parse", "commands.prof", "profiles", "parse.info", "commands.main"])
def test_offline_parts_never_load_torch(module):
    assert "torch" not in loaded_by(f"import pyprof.{module}")


@pytest.mark.parametrize("words", [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_loads_nothing_heavy(words):
    heavy = {"torch", "pandas", "pyarrow", "numpy", "rich", "sqlite3"}
    command = f"try:\n    with redirect_stdout(StringIO()): main({words!r})\nexcept SystemExit: pass"
    imports = "from contextlib import redirect_stdout; from io import StringIO"
    assert not loaded_by(f"{imports}; from pyprof.commands.main import main\n{command}") & heavy


def test_what_help_lists_without_importing_it_is_what_is_registered():
    from pyprof.commands import export, prof, report
    from pyprof.costs.columns import COLUMNS
    from pyprof.export import formats
    from pyprof.render.writers import FORMATS
    from pyprof.reports import every
    from pyprof.reports.diff import BY

    assert [(key, heading) for key, heading, _ in prof.columns()] == [(c.key, c.heading) for c in COLUMNS.values()]
    assert all(COLUMNS[key].doc.startswith(text.rstrip(".")) for key, _, text in prof.columns())
    assert report.listed() == {one.name: one.title for one in every()}
    assert report.options() == sorted({option.name for one in every() for option in one.options})
    assert export.formats() == list(formats())
    parser = Parser()
    add_table_options(parser)
    assert all(name in parser.format_help() for name in FORMATS)
    assert set(BY) == {"step", "operator", "kernel"}


def test_parse_does_not_load_pandas(tmp_path: Path):
    """It takes longer to import than 100,000 kernels to read."""
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording(TRAINING))
    out = tmp_path / "net.dict"
    loaded = loaded_by(f"from tests.cli import parse\nparse([{str(path)!r}, '-o', {str(out)!r}])")
    assert out.stat().st_size
    assert "pandas" not in loaded

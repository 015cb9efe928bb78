# SPDX-License-Identifier: Apache-2.0
"""The repository itself: what is executable runs by path, every module says what it is for, nothing names a machine."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyprof
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "pyprof").rglob("*.py"))
EXECUTABLES = ["pyprof/parse/parse.py", "pyprof/prof/prof.py", "scripts/parse.py", ".ci/run"]
TEXTS = {".py", ".md", ".toml", ".txt", ".sql", ".cfg", ".sh", ""}


def tracked() -> list[Path]:
    """Files of the repository: what git has, without git everything that is not built or installed."""
    if shutil.which("git"):
        run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
        if run.returncode == 0 and run.stdout:
            return [ROOT / name for name in run.stdout.split("\0") if name and (ROOT / name).is_file()]
    parts = (".ci", "pyprof", "examples", "docs", "scripts", "tests")
    return [path for part in parts for path in (ROOT / part).rglob("*") if path.is_file()]


def python(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python outside the repository, where only an install or the file's own path can find the package."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=HANG, check=False
    )


@pytest.mark.parametrize("name", EXECUTABLES)
def test_executables_have_shebang_and_execute_bit(name):
    path = ROOT / name
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env ")
    assert os.access(path, os.X_OK)


def test_only_executables_carry_the_execute_bit():
    assert sorted(p.relative_to(ROOT).as_posix() for p in tracked() if os.access(p, os.X_OK)) == sorted(
        EXECUTABLES
    )


# An editable install would find the package anyway, and hide that a script cannot: its hook is switched off.
WITHOUT_INSTALL = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in str(f).lower()]
sys.path[:] = [p for p in sys.path if p not in ("", {root!r})]
sys.argv[:] = [{script!r}, "--help"]
sys.path.insert(0, {folder!r})
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize("name", ["pyprof/parse/parse.py", "pyprof/prof/prof.py"])
def test_commands_run_by_path_from_any_folder_without_install(name, tmp_path):
    script = ROOT / name
    code = WITHOUT_INSTALL.format(root=str(ROOT), script=str(script), folder=str(script.parent))
    run = python("-c", code, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("usage:")


@pytest.mark.parametrize("module", ["pyprof", "pyprof.parse", "pyprof.prof"])
def test_module_forms_run(module, tmp_path):
    run = python("-m", module, "--help", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("usage:")


def test_parse_script_on_path_leaves_the_package_parse_alone(tmp_path, monkeypatch):
    """Commands beside the installed parse.py have its folder first on their path when they say `import parse`."""
    package = tmp_path / "parse.py"
    package.write_text("compile = 'the package'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delitem(sys.modules, "parse", raising=False)
    try:
        import parse

        assert parse.compile == "the package"
    finally:
        sys.modules.pop("parse", None)


@pytest.mark.parametrize("name", MODULES)
def test_modules_say_their_licence_and_purpose(name):
    source = (ROOT / name).read_text(encoding="utf-8")
    assert "# SPDX-License-Identifier: Apache-2.0" in source.splitlines()[:2]
    assert ast.get_docstring(ast.parse(source)), f"{name} does not say what it is for"


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_not_named_like_the_standard_library(name):
    """parse.py and prof.py run as scripts, so a neighbour of such a name would be imported in its place."""
    if len(Path(name).parts) > 2:  # below pyprof/ itself
        assert Path(name).stem not in sys.stdlib_module_names - {"__init__", "__main__"}


def test_no_text_names_a_machine():
    """Paths of home folders and work places belong to whoever wrote the file, not into it (/home/user is nobody's)."""
    machine = re.compile(r"(?<![\w.])/(?:home(?!/user\b)|Users|root|work|mnt)/\w+")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked()
        if path.suffix in TEXTS and "traces" not in path.parts and "golden" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if machine.search(line)
    ]
    assert not found


def test_requirements_are_used():
    """A requirement that no module imports leaves."""
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    required = ast.literal_eval(re.search(r"install_requires=(\[.*?\])", setup, re.S)[1])
    imported = set()
    for name in MODULES:
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    assert {name for name in required if name.replace("-", "_") not in imported} == set()


def test_changelog_has_unreleased_on_top():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == "Unreleased"


def test_public_names_have_a_home():
    for name, home in pyprof._HOME.items():
        assert importlib.util.find_spec(home), f"{name}: no module {home}"


def test_links_between_pages_lead_somewhere():
    """Relative links of every page, and the headings they name."""
    anchors = {}
    pages = [path for path in tracked() if path.suffix == ".md"]
    for page in pages:
        headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
        anchors[page.resolve()] = {
            re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-") for text in headings
        }
    broken = []
    for page in pages:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page.resolve()
            if not target.exists() or (anchor and anchor not in anchors.get(target, ())):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


def test_capture_without_torch_is_one_sentence(root, tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    for words in (["-m", "pyprof", "run", "x.py"], ["-c", "import pyprof; pyprof.init()"]):
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert done.returncode == 1
        assert "this Python has no torch" in done.stderr.splitlines()[-1]
    assert "Traceback" in done.stderr  # Python's own, for a program; the command has printed none

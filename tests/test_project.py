# SPDX-License-Identifier: Apache-2.0
"""The repository itself: what is executable runs by path, every module says what it is for, nothing names a machine."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
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
    files = tracked()
    found = sorted(p.relative_to(ROOT).as_posix() for p in files if os.access(p, os.X_OK))
    assert found == sorted(name for name in EXECUTABLES if ROOT / name in files)


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


def test_modules_say_their_licence_and_purpose() -> None:
    for name in MODULES:
        source = (ROOT / name).read_text(encoding="utf-8")
        assert "# SPDX-License-Identifier: Apache-2.0" in source.splitlines()[:2], name
        assert ast.get_docstring(ast.parse(source)), f"{name} does not say what it is for"


def test_scripts_have_no_neighbour_named_like_the_standard_library() -> None:
    """parse.py and prof.py run as scripts, so a neighbour of such a name would be imported in its place."""
    for path in (path for folder in ("parse", "prof") for path in (ROOT / "pyprof" / folder).glob("*.py")):
        assert path.stem not in sys.stdlib_module_names - {"__init__", "__main__"}, path


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
    names = {re.split("[<>=]", name)[0].replace("-", "_") for name in required}
    assert len(names) == len(required)
    assert names - imported == set()
    assert all(">=" in name for name in required), "a requirement without a lower bound"


def arguments_of_setup(monkeypatch):
    found = {}
    monkeypatch.setattr(sys, "path", [*sys.path])  # setuptools adds to it
    setuptools = pytest.importorskip("setuptools")
    monkeypatch.setattr(setuptools, "setup", found.update)
    runpy.run_path(str(ROOT / "setup.py"))
    return found


def test_the_description_has_no_link_that_leads_nowhere(monkeypatch):
    text = arguments_of_setup(monkeypatch)["long_description"]
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "![" not in text
    assert "docs/guide.md" in text


def test_the_oldest_requirements_are_the_lower_bounds(monkeypatch):
    found = arguments_of_setup(monkeypatch)
    declared = dict(one.split(">=") for one in found["install_requires"] + found["extras_require"]["viewer"])
    lines = (ROOT / "requirements-oldest.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    for name, bound in declared.items():
        assert (pinned[name] + ".").startswith(bound + "."), name
    assert f"Python {found['python_requires'].removeprefix('>=')} or later" in (ROOT / "README.md").read_text()


def test_constraints_name_one_version_of_every_requirement(monkeypatch):
    """torch aside, which is the machine's or that of requirements-dev.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"[\w.]+", version) for version in pinned.values())
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    found = arguments_of_setup(monkeypatch)
    wanted = found["install_requires"] + found["extras_require"]["viewer"]
    wanted += (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    required = {re.split(r"[\[<>=]", line)[0].lower() for line in wanted if line and not line.startswith("#")}
    assert required - names == {"torch"}


def test_a_folder_called_pyprof_beside_a_script_does_not_hide_the_package(tmp_path):
    """As a clone is for a script beside it; of an editable install, too."""
    try:
        importlib.metadata.distribution("torch-pyprof")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("PyProf is not installed")
    (tmp_path / "pyprof").mkdir()
    done = python("-c", "import pyprof; print(pyprof.__version__)", cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (pyprof.__version__, "")


def test_changelog_has_unreleased_on_top():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == "Unreleased"


def test_links_between_pages_lead_somewhere():
    """Relative links of every page, and the headings they name."""
    anchors = {}
    pages = [path for path in tracked() if path.suffix == ".md"]
    for page in pages:
        headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
        anchors[page.resolve()] = {re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-") for text in headings}
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
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 1
        assert "this Python has no torch" in done.stderr.splitlines()[-1]
    assert "Traceback" in done.stderr  # Python's own, for a program; the command has printed none


def test_the_reading_path_is_short() -> None:
    """Some twenty files, at most 4,500 lines together, from which every idea of the project can be learnt."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    path = text.partition("## Reading path")[2].partition("\n## ")[0]
    files = re.findall(r"`([a-z_/]+\.(?:py|sql))`", path)
    assert 18 <= len(files) <= 22
    assert sum(len((ROOT / "pyprof" / name).read_text(encoding="utf-8").splitlines()) for name in files) <= 4_500


# Lines of each package, of the page and of the tests. A raise says in its commit what leaves for it.
BUDGET = {
    ".": 590,
    "capture": 14_267,
    "commands": 1_804,
    "core": 3_990,
    "costs": 14_598,
    "dlprof": 1_427,
    "estimation": 305,
    "export": 1_083,
    "facts": 7_562,
    "fleet": 850,
    "frontend/src": 19_104,
    "gate": 740,
    "integrations": 1_423,
    "measures": 834,
    "metrics": 528,
    "overview": 837,
    "parse": 8_975,
    "prof": 458,
    "query": 722,
    "reference": 676,
    "render": 658,
    "reports": 6_516,
    "rules": 5_386,
    "server": 5_866,
    "store": 3_049,
    "tests": 74_919,
    "timeline": 987,
    "top": 1_328,
    "views": 6_125,
}


def test_nothing_grows_unseen() -> None:
    lines: Counter[str] = Counter()
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        package = re.match(r"pyprof/(\w+)/.*\.py$|(frontend/src|tests)/.*\.(?:py|ts|css|svelte)$", name)
        if package or re.match(r"pyprof/\w+\.py$", name):
            lines[(package and (package[1] or package[2])) or "."] += len(path.read_text("utf-8").splitlines())
    assert {name: count for name, count in lines.items() if count > BUDGET.get(name, 0)} == {}

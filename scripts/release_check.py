# SPDX-License-Identifier: Apache-2.0
"""Build what a release consists of, install it as a user does, and run it: `make release-check`.

The sdist is built from the repository, the wheel from the sdist alone, without Node.js on PATH. Both are installed,
each in an environment of its own without torch. Each must find its version, its licence, its bill of materials and its
page, report the recording that it contains, and serve it. Ends with the first check that fails, as a sentence and exit
code 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = [sys.executable, "-m", "uv"]
# The commands and headings of a release, each with a part of what it prints.
COMMANDS = (
    (["--version"], "pyprof "),
    (["report", "DEMO"], "Step "),
    (["query", "DEMO", "select count(*) as kernels from kernels", "--format", "csv"], "kernels\n"),
    (["report", "kernel_summary", "DEMO", "--format", "csv"], "Name,Tensor Cores Used"),
)


class CheckError(Exception):
    """A check failed; one sentence."""


def run(*words: str | Path, **more: str) -> str:
    """Run a command; return what it prints. Raises CheckError."""
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **more}, cwd=tempfile.gettempdir())
    if done.returncode:
        raise CheckError(f"{' '.join(map(str, words))}: {' '.join(done.stderr.split())[-400:]}")
    return done.stdout


def without_node() -> dict[str, str]:
    """Return a PATH without folders that hold Node.js."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return {"PATH": os.pathsep.join(one for one in folders if not (Path(one) / "node").exists())}


def build(folder: Path) -> tuple[Path, Path]:
    """Return the sdist, and the wheel that is built from it. Raises CheckError."""
    run(*UV, "build", "-q", "--sdist", "-o", folder, ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    run(*UV, "build", "-q", "--wheel", "-o", folder, sdist, PYPROF_PAGE="required", **without_node())
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def check_files(sdist: Path, wheel: Path) -> None:
    """Check what both contain. Raises CheckError."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    page = "pyprof/server/static/index.html"
    for needed in (page, "LICENSE", "CHANGELOG.md", "SECURITY.md", "tests/conftest.py", "constraints.txt"):
        if needed not in inside:
            raise CheckError(f"{sdist.name}: lacks {needed}")
    endings = (page, "licenses/LICENSE", "sboms/torch-pyprof.cdx.json", "entry_points.txt", "py.typed")
    for ending in endings:
        if not any(name.endswith(ending) for name in packed):
            raise CheckError(f"{wheel.name}: lacks {ending}")
    if stray := [name for name in packed if name.startswith(("tests/", "frontend/", "benchmarks/"))]:
        raise CheckError(f"{wheel.name}: holds {stray[0]}, which is no part of the package")


def check_installed(package: Path, folder: Path) -> None:
    """Install a package with its viewer, and run its commands and its page. Raises CheckError."""
    place = folder / package.name.replace(".", "_")
    python = place / "bin" / "python"
    run(*UV, "venv", "-q", "--no-project", "-p", sys.executable, place)
    run(*UV, "pip", "install", "-q", "-p", python, f"{package}[viewer]", **without_node())
    demo = run(python, "-c", "from pyprof.server.demo import RECORDING; print(RECORDING)").strip()
    for words, part in COMMANDS:
        said = run(place / "bin" / "torch-pyprof", *(demo if word == "DEMO" else word for word in words))
        if part not in said:
            raise CheckError(f"{package.name}: pyprof {' '.join(words)} printed {said[:200]!r}; expected {part!r}")
    _check_page(place / "bin" / "pyprof")


def _check_page(command: Path) -> None:
    """Serve the recording that the package contains, and ask for the page and its overview. Raises CheckError."""
    server = subprocess.Popen(
        [command, "view", "--demo", "-p", "0", "--no-token", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        url = next((line.strip() for line in server.stdout if line.startswith("http")), "")
        if not url:
            raise CheckError(f"{command} view --demo printed no address")
        if "<div id" not in _get(url):
            raise CheckError(f"{command} view --demo: the page is not built")
        overview = json.loads(_get(f"{url}api/overview"))
        if not overview["top"]["groups"]:
            raise CheckError(f"{command} view --demo: its overview has no operators")
    finally:
        server.terminate()
        server.wait()


def _get(url: str) -> str:
    """Return an answer, however often the server says that it is busy."""
    while True:
        try:
            with urllib.request.urlopen(url) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise CheckError(f"{url}: {error}") from error
            time.sleep(0.2)


def main() -> int:
    """Run every check; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="pyprof-release-") as name:
        folder = Path(name)
        try:
            sdist, wheel = build(folder)
            check_files(sdist, wheel)
            for package in (sdist, wheel):
                check_installed(package, folder)
                print(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB, installs and runs without Node.js")
        except CheckError as error:
            print(f"release_check: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

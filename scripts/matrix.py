# SPDX-License-Identifier: Apache-2.0
"""Install PyProf beside many versions of torch, numpy and pandas, and run `smoke.py` with each.

make matrix                                the whole table, in Markdown; some 4 GB are downloaded per torch
python scripts/matrix.py oldest newest     the rows of these names alone
python scripts/matrix.py --environment .venv313 3.13     an environment to develop in, with that Python

A virtual environment per row, made with uv from an sdist that is built once, so that the declared requirements and
the compiler of each Python are tested as well. Ends with 1 if a row fails, with 2 if a Python is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Row(NamedTuple):
    """One set of versions; `more` are requirements beside torch and PyProf."""

    name: str
    python: str
    torch: str
    more: tuple[str, ...] = ()


ROWS = (
    Row("oldest", "3.11", "", ("-r", "requirements-oldest.txt")),
    Row("2.4", "3.12", "torch==2.4.1", ("numpy==1.26.4", "pandas==2.2.3", "pyarrow==20.0.0")),
    Row("2.5", "3.12", "torch==2.5.1", ("numpy>=2", "pandas==2.3.3")),
    Row("2.6", "3.13", "torch==2.6.0"),
    Row("2.7", "3.11", "torch==2.7.1", ("pandas<3",)),
    Row("2.8", "3.12", "torch==2.8.0"),
    Row("2.9", "3.13", "torch==2.9.1"),
    Row("2.10", "3.12", "torch==2.10.0", ("pandas<3",)),
    Row("2.11", "3.12", "torch==2.11.0"),
    Row("2.12", "3.13", "torch==2.12.1"),
    Row("2.13", "3.13", "torch==2.13.0"),
    Row("2.14", "3.12", "torch==2.14.1"),
    Row("newest", "3.13", "torch"),
    Row("newest, 3.11", "3.11", "torch"),
)
HEAD = ("torch", "Python", "numpy", "pandas", "pyarrow", "adbc-driver-sqlite")


def interpreter(version: str) -> str | None:
    """Find a Python of that version: on PATH, or below pyenv's folder, whose shims may refuse to run."""
    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    found = shutil.which(f"python{version}")
    for path in ([found] if found else []) + sorted(glob(f"{root}/versions/{version}.*/bin/python3"), reverse=True):
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def sdist(folder: Path) -> Path:
    """Build PyProf once, with the page of the viewer; a wheel would be that of one Python."""
    subprocess.run(
        [sys.executable, "-m", "uv", "build", "-q", "--sdist", "-o", folder, ROOT],
        check=True,
        stdout=sys.stderr,
    )
    (path,) = folder.glob("*.tar.gz")
    return path


def run(row: Row, package: Path, folder: Path) -> str:
    """Return the row of the table: versions, or the sentence that the first failure gave."""
    python = interpreter(row.python)
    if python is None:
        raise FileNotFoundError(f"no Python {row.python}")
    place = folder / "env"
    uv = [sys.executable, "-m", "uv"]
    requirements = [f"{package}[viewer]", *row.more, *([row.torch] if row.torch else [])]
    try:
        for step in (
            [*uv, "venv", "-q", "--no-project", "-p", python, place],
            [*uv, "pip", "install", "-q", "-p", place / "bin" / "python", *requirements],
        ):
            done = subprocess.run(step, capture_output=True, text=True, cwd=ROOT)
            if done.returncode:
                return f"| {row.name} | {row.python} | not installed: {_last(done.stderr)} |"
        done = subprocess.run(
            [place / "bin" / "python", ROOT / "scripts" / "smoke.py"],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if done.returncode:
            return f"| {row.name} | {row.python} | failed: {_last(done.stderr)} |"
        return done.stdout.strip()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def environment(place: Path, version: str) -> int:
    """Make an environment with another Python, torch as in requirements-dev.txt from PyPI, and PyProf from here."""
    python = interpreter(version)
    if python is None:
        print(f"no Python {version} was found on PATH or below pyenv", file=sys.stderr)
        return 2
    uv = [sys.executable, "-m", "uv"]
    for step in (
        [*uv, "venv", "-q", "--no-project", "--clear", "-p", python, place],
        [
            *uv,
            "pip",
            "install",
            "-q",
            "-p",
            place / "bin" / "python",
            "-e",
            ".[viewer]",
            "-r",
            "requirements-dev.txt",
        ],
    ):
        subprocess.run(step, check=True, cwd=ROOT)
    return 0


def _last(text: str) -> str:
    return " ".join(text.split())[-400:]


def table(names: list[str]) -> Iterator[tuple[str, int]]:
    """Lines of the table, each with an exit code."""
    yield f"| {' | '.join(HEAD)} |", 0
    yield f"|{'---|' * len(HEAD)}", 0
    with tempfile.TemporaryDirectory() as folder:
        package = sdist(Path(folder))
        for row in ROWS:
            if not names or row.name in names:
                try:
                    line = run(row, package, Path(folder))
                except FileNotFoundError as error:
                    yield f"| {row.name} | {row.python} | not run: {error} |", 2
                else:
                    yield line, int("failed: " in line or "not installed: " in line)


def main() -> int:
    """Print the table, or make an environment."""
    parser = argparse.ArgumentParser(description="Example: python scripts/matrix.py oldest newest")
    parser.add_argument("--environment", metavar="DIR", type=Path, help="make an environment with the named Python")
    parser.add_argument("names", nargs="*", help="rows of the table, all without; or the Python of the environment")
    arguments = parser.parse_args()
    if arguments.environment is not None:
        return environment(arguments.environment, *arguments.names)
    names, code = arguments.names, 0
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(f"no row {', '.join(unknown)}: there are {', '.join(row.name for row in ROWS)}", file=sys.stderr)
        return 2
    for line, status in table(names):
        print(line, flush=True)
        code = max(code, status)
    return code


if __name__ == "__main__":
    sys.exit(main())

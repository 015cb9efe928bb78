# SPDX-License-Identifier: Apache-2.0
"""The wheel: notices of what it contains, a bill of materials, and the same bytes wherever it is built."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.test_project import tracked
from tests.waiting import HANG

STATIC = "pyprof/server/static"
BUILD = """
import sys
sys.path.insert(0, "frontend")
import backend
if not backend.fresh():
    sys.exit(f"the page is not built: {backend.digest()}")
backend.build_wheel(sys.argv[1])
"""


def wheel(folder: Path) -> Path:
    """Build it from a copy of the repository in a folder of that name."""
    pytest.importorskip("setuptools", "70.1")  # has bdist_wheel
    if not (ROOT / STATIC / "third-party.txt").is_file():
        pytest.skip("the page of the viewer is not built: make page")
    clone = folder / "pyprof"
    for path in tracked():
        name = path.relative_to(ROOT)
        if name.parts[0] in ("pyprof", "frontend", "scripts") or len(name.parts) == 1:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, clone / name)
    shutil.copytree(ROOT / STATIC, clone / STATIC, dirs_exist_ok=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, folder], cwd=clone, env=environment, capture_output=True, text=True, timeout=HANG
    )  # fmt: skip
    if "the page is not built" in done.stderr:
        pytest.skip("the page of the viewer is not that of its sources: make page")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


WITHOUT = """
import sys
sys.path.insert(0, "frontend")
import backend
def absent():
    raise backend.PageError("its packages cannot be had from npm")
backend.npm = absent
backend.{hook}(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("hook", "required", "code", "said"),
    [
        ("build_wheel", "", 0, "Without the page of the viewer: its packages cannot be had from npm."),
        ("build_wheel", "required", 1, "The page of the viewer cannot be built: its packages cannot be had"),
        (
            "build_sdist",
            "",
            1,
            "The page of the viewer cannot be built: its packages cannot be had from npm.",
        ),
        ("build_editable", "required", 0, "Without the page of the viewer: its packages cannot be had from"),
    ],
)
@pytest.mark.long
def test_without_npm_a_wheel_has_no_page_and_a_release_is_none(
    hook: str, required: str, code: int, said: str, tmp_path: Path
) -> None:
    pytest.importorskip("setuptools", "70.1")  # has bdist_wheel
    clone = tmp_path / "pyprof"
    for path in tracked():
        name = path.relative_to(ROOT)
        if name.parts[0] in ("pyprof", "frontend", "scripts") or len(name.parts) == 1:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, clone / name)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(hook=hook), tmp_path], cwd=clone,
        env=os.environ | {"PYPROF_PAGE": required}, capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    wheels = list(tmp_path.glob("*.whl"))
    assert len(wheels) == (not code)
    if hook == "build_wheel" and wheels:
        names = zipfile.ZipFile(wheels[0]).namelist()
        assert "pyprof/commands/view.py" in names
        assert not [one for one in names if f"{STATIC}/" in one]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel(tmp_path_factory.mktemp("wheel"))) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def one(content: dict[str, bytes], ending: str) -> bytes:
    (name,) = (name for name in content if name.endswith(ending))
    return content[name]


@pytest.mark.long
def test_the_record_names_every_file(content: dict[str, bytes]) -> None:
    rows = {row[0]: row[1:] for row in csv.reader(one(content, "/RECORD").decode().splitlines())}
    assert rows.keys() == content.keys()
    for name, (digest, size) in rows.items():
        if digest:
            found = base64.urlsafe_b64encode(hashlib.sha256(content[name]).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(content[name])), name


def test_the_example_is_in_it(content: dict[str, bytes]) -> None:
    assert len(one(content, "pyprof/server/demo/generated_demo.pt.trace.json.gz")) > 10_000


def locked() -> dict[str, Any]:
    lock: dict[str, Any] = json.loads((ROOT / "frontend" / "package-lock.json").read_text())["packages"]
    return lock


def imported() -> set[str]:
    """Packages of npm that the page's sources import when it runs, and those that these need."""
    out = set()
    for path in [*(ROOT / "frontend" / "src").rglob("*.ts"), *(ROOT / "frontend" / "src").rglob("*.svelte")]:
        for name in re.findall(
            r"""^\s*import (?!type\b).*?from ["']([^."'][^"']*)["']""", path.read_text(), re.M | re.S
        ):
            out.add("/".join(name.split("/")[: 2 if name.startswith("@") else 1]))
    return out


def test_every_package_in_the_page_has_its_notice(content: dict[str, bytes]) -> None:
    """MIT wants its text in all copies."""
    notices = one(content, "/licenses/pyprof/server/static/third-party.txt").decode()
    parts = re.split(r"^== (\S+) (\S+) \((.+)\)$", notices, flags=re.M)[1:]
    found = dict(zip(parts[::4], parts[1::4]))
    assert imported() <= found.keys()
    assert "svelte" in found  # imported by what is compiled
    for name, version, licence, text in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4]):
        versions = {one["version"] for path, one in locked().items() if path.endswith(f"node_modules/{name}")}
        assert version in versions
        assert licence == "MIT", f"{name}: look at what {licence} asks for"
        assert "Permission is hereby granted" in text
        assert "Copyright" in text
    assert one(content, "/licenses/LICENSE")


def test_an_sdist_is_the_whole_project() -> None:
    """MANIFEST.in names every file of the repository; setuptools adds those of the package and its own."""
    filelist = pytest.importorskip("setuptools._distutils.filelist")
    files = filelist.FileList()
    names = {path.relative_to(ROOT).as_posix() for path in tracked()}
    files.set_allfiles(sorted(names))
    for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            files.process_template_line(line)
    added = {"setup.py", "MANIFEST.in", *(name for name in names if name.startswith("pyprof/"))}
    assert sorted(names - set(files.files) - added) == []


def test_bill_of_materials(content: dict[str, bytes]) -> None:
    """CycloneDX, as PEP 770 has it: packages in the page, and requirements."""
    bill = json.loads(one(content, ".dist-info/sboms/torch-pyprof.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    own = bill["metadata"]["component"]
    assert own["name"] == "torch-pyprof"
    assert own["licenses"] == [{"expression": "Apache-2.0"}]
    parts = {part["bom-ref"]: part for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    (dependency,) = bill["dependencies"]
    assert dependency == {"ref": own["bom-ref"], "dependsOn": list(parts)}
    notices = one(content, "/licenses/pyprof/server/static/third-party.txt").decode()
    of_npm = {part["name"]: part for part in parts.values() if part["purl"].startswith("pkg:npm/")}
    assert of_npm.keys() == set(re.findall(r"^== (\S+) ", notices, re.M))
    for part in of_npm.values():
        (digest,) = part["hashes"]
        assert digest["alg"] == "SHA-512"
        integrity = "sha512-" + base64.b64encode(bytes.fromhex(digest["content"])).decode()
        assert integrity in {one.get("integrity") for one in locked().values()}
    required = {part["name"]: part["scope"] for part in parts.values() if part["purl"].startswith("pkg:pypi/")}
    assert required["numpy"] == "required"
    assert required["fastapi"] == "optional"


@pytest.mark.long
def test_the_same_bytes_wherever_it_is_built(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("one", "another folder"))
    found = [wheel(folder) for folder in (first, second)]
    one, other = (zipfile.ZipFile(path) for path in found)
    with one, other:
        assert one.namelist() == other.namelist()
        assert [name for name in one.namelist() if one.read(name) != other.read(name)] == []
        assert [name for name in one.namelist() if "_compiled." in name and not name.endswith((".c", ".py"))]
    assert found[0].read_bytes() == found[1].read_bytes()

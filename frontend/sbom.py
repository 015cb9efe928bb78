# SPDX-License-Identifier: Apache-2.0
"""What a wheel consists of, in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/), as PEP 770 has it: in the folder
sboms of its dist-info. Packages of npm that the page of the viewer contains, with versions and digests of
package-lock.json, and the requirements of the wheel, whose versions are known where it is installed.

setuptools knows no such folder, so the wheel is written again with one more file. The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

NOTICES = "third-party.txt"  # vite.config.ts writes it
_NOTICE = re.compile(r"^== (\S+) (\S+) \((.+)\)$", re.M)


def bundled(notices: str) -> list[tuple[str, str, str]]:
    """Name, version and licence of each package in the page."""
    return _NOTICE.findall(notices)


def bill(metadata: str, notices: str, lock: dict[str, Any]) -> dict[str, Any]:
    """The document of a wheel, from its METADATA, the notices of its page and package-lock.json."""
    about = Parser().parsestr(metadata)
    name, version = about["Name"], about["Version"]
    own = f"pkg:pypi/{name}@{version}"
    parts = [_of_npm(*one, lock) for one in bundled(notices)]
    required = [_required(line) for line in about.get_all("Requires-Dist", [])]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library", "bom-ref": own, "name": name, "version": version, "purl": own,
                "licenses": [{"expression": about["License-Expression"] or about["License"]}],
            }
        },
        "components": [*parts, *required],
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in [*parts, *required]]}],
    }  # fmt: skip


def _of_npm(name: str, version: str, licence: str, lock: dict[str, Any]) -> dict[str, Any]:
    purl = f"pkg:npm/{name.replace('@', '%40')}@{version}"
    (digest,) = {
        found["integrity"]
        for path, found in lock["packages"].items()
        if path.endswith(f"node_modules/{name}") and found["version"] == version
    }
    kind, _, value = digest.partition("-")
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "required",
        "licenses": [{"license": {"id": licence}}],
        "hashes": [{"alg": f"SHA-{kind.removeprefix('sha')}", "content": base64.b64decode(value).hex()}],
    }  # fmt: skip


def _required(line: str) -> dict[str, Any]:
    """A requirement: `numpy>=1.26`, or of an extra: `fastapi>=0.110; extra == "viewer"`."""
    requirement, _, marker = (part.strip() for part in line.partition(";"))
    name = re.split(r"[^\w.-]", requirement)[0]
    return {
        "type": "library", "bom-ref": f"pypi:{line}", "name": name, "purl": f"pkg:pypi/{name.lower()}",
        "scope": "optional" if "extra" in marker else "required",
        "properties": [{"name": "requirement", "value": line}],
    }  # fmt: skip


def add(wheel: Path, notices: str, lock: dict[str, Any]) -> None:
    """Write a wheel again, with its bill."""
    with zipfile.ZipFile(wheel) as source:
        members = [(info, source.read(info)) for info in source.infolist()]
    folder = next(info.filename for info, _ in members if info.filename.endswith(".dist-info/METADATA"))[:-9]
    metadata = next(content for info, content in members if info.filename == f"{folder}/METADATA").decode()
    name = f"{folder}/sboms/torch-pyprof.cdx.json"
    content = (json.dumps(bill(metadata, notices, lock), indent=2) + "\n").encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    last, record = members.pop()
    assert last.filename == f"{folder}/RECORD"
    added = zipfile.ZipInfo(name, last.date_time)
    added.external_attr, added.compress_type = last.external_attr, last.compress_type
    members += [(added, content), (last, f"{name},sha256={digest},{len(content)}\n".encode() + record)]
    new = wheel.with_suffix(".new")
    with zipfile.ZipFile(new, "w") as out:
        for info, data in members:
            out.writestr(info, data)
    new.replace(wheel)

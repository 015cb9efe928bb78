# SPDX-License-Identifier: Apache-2.0
"""The file of a profile's annotations: NAME.notes.json beside the input, or inside a folder.

    {"pyprof_notes": 1, "profile": {"name": "net", "events": 80, "end": 4711},
     "annotations": [{"id": "7c0e-41", "name": "slow step", "start": 1200, "end": 1900, "color": 1}]}

Of an annotation `id` and `start` are required (models/annotations.py). Fields that are unknown here stay in the file.

Where the folder is read-only the file is in $XDG_STATE_HOME/pyprof/notes or ~/.local/state/pyprof/notes, for this user;
once the folder can be written, its annotations move there. Whoever writes names the version that was read: what others
wrote meanwhile is never replaced. A file that cannot be read is not overwritten either, but renamed to NAME.damaged.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from pyprof.core import atomic_file
from pyprof.parse.folder import NOTES
from pyprof.server import demo
from pyprof.views.models import AnnotatedProfile, Annotation, AnnotationList, Annotations
from pyprof.views.problems import Trouble

_VERSION = 1
_LARGEST = 4 << 20  # bytes of a file
_ASIDE = ".damaged"
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FIELDS = frozenset(Annotation.model_fields)


class _File(NamedTuple):
    """A file as it was read, empty without one. `fault`: why its annotations are unknown; `newer`: because it is of a
    later version of PyProf."""

    path: Path
    content: bytes = b""
    document: Mapping[str, Any] = MappingProxyType({})
    annotations: tuple[Annotation, ...] = ()
    fault: str | None = None
    newer: bool = False


class _ChangedError(Exception):
    """Error: somebody else has written the file."""


class Notes:
    """The annotations of the run `name` of an input."""

    def __init__(self, input: Path, name: str):
        folder = input if input.is_dir() else input.parent
        self._beside = folder / f"{name if input.is_dir() else input.name}{NOTES}"
        identity = hashlib.sha256(os.path.abspath(self._beside).encode("utf-8", "surrogateescape"))
        self._own = _state_folder() / f"{identity.hexdigest()[:32]}{NOTES}"

    def read(self, profile: AnnotatedProfile) -> Annotations:
        """Return the annotations. `profile`: the served one."""
        return self._answer(_load(self._beside), _load(self._own), profile)

    def write(self, version: str, annotations: list[Annotation], profile: AnnotatedProfile) -> tuple[bool, Annotations]:
        """Replace the annotations of a version; return False and the newer ones if it is no longer the present one.

        Raises Trouble if they cannot be written.
        """
        try:
            with atomic_file.exclusive(str(self._beside.parent)):
                beside, own = _load(self._beside), _load(self._own)
                written = version == _version(beside, own)
                if written:
                    self._replace(beside, own, annotations, profile)
        except _ChangedError:
            written = False
        except OSError as error:
            raise Trouble("forbidden", f"{self._beside} cannot be written ({_reason(error)}).") from error
        return written, self.read(profile)

    def _answer(self, beside: _File, own: _File, profile: AnnotatedProfile) -> Annotations:
        usable = _writable(beside)
        source = own if own.content and not usable else beside
        annotations = {one.id: one for one in source.annotations}
        if usable:
            annotations = {one.id: one for one in own.annotations} | annotations
        sentences = []
        for file in (beside, own):
            if file.fault:
                sentences.append(f"{file.path} cannot be used: {file.fault}.")
                if usable or file is own:
                    sentences.append(f"It is kept as {file.path.name}{_ASIDE} as soon as annotations are saved.")
        if not usable:
            sentences.append(f"{self._beside} cannot be written: annotations are kept for you alone, in {self._own}.")
        origin = source.document.get("profile")
        if annotations and isinstance(origin, dict):
            served = {"events": profile.events, "end": profile.end}
            if any(origin.get(key, value) != value for key, value in served.items()):
                sentences.append(
                    "The annotations were made on another recording of this name: their times may not fit."
                )
        return Annotations(
            version=_version(beside, own),
            file=str(self._beside if usable else self._own),
            notice=" ".join(sentences) or None,
            profile=profile,
            annotations=sorted(annotations.values(), key=lambda one: (one.start, one.id)),
        )

    def _replace(self, beside: _File, own: _File, annotations: list[Annotation], profile: AnnotatedProfile) -> None:
        """Write the annotations beside the input, else for this user. Raises OSError, _ChangedError."""
        stored: dict[str, Any] = {}
        document: dict[str, Any] = {}
        for file in (own, beside) if _writable(beside) else (beside, own):
            document |= file.document
            stored |= {one["id"]: one for one in file.document.get("annotations", ())}
        document |= {
            "pyprof_notes": _VERSION,
            "profile": profile.model_dump(),
            "annotations": [{**stored.get(one.id, {}), **one.model_dump()} for one in annotations],
        }
        content = f"{json.dumps(document, indent=1)}\n".encode()
        if len(content) > _LARGEST:
            raise Trouble("parameter", f"The annotations are larger than {_LARGEST >> 20} MiB.")
        if _writable(beside):
            try:
                _write(beside, content)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG):
                    raise
            else:
                if own.fault:
                    _set_aside(own.path)
                own.path.unlink(missing_ok=True)  # what it had is beside the input now
                return
        self._own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(own, content)


def _state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state")) / "pyprof" / "notes"


def _version(*files: _File) -> str:
    return hashlib.sha256(b"\0".join(file.content for file in files)).hexdigest()[:32]


def _writable(file: _File) -> bool:
    """Return whether annotations are written to a file beside the input; never into our own package."""
    if file.newer or file.path.parent.resolve() == demo.RECORDING.parent:
        return False
    return os.access(file.path.parent, os.W_OK | os.X_OK) and (
        not os.path.lexists(file.path) or os.access(file.path, os.R_OK | os.W_OK)
    )


def _load(path: Path) -> _File:
    """Read a file. Links are not followed: whoever made the folder would decide what is read and replaced."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return _File(path)
        return _faulty(path, b"-", "it is a link" if error.errno == errno.ELOOP else _reason(error))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return _faulty(path, b"-", "it is not a regular file")
    with open(descriptor, "rb") as stream:
        content = stream.read(_LARGEST + 1)
    if not content:
        return _File(path)
    if len(content) > _LARGEST:
        return _faulty(path, content, f"it is larger than {_LARGEST >> 20} MiB")
    try:
        document = json.loads(content)
        version = document.get("pyprof_notes") if isinstance(document, dict) else None
        if not isinstance(version, int):
            return _faulty(path, content, "it has no annotations of PyProf")
        if version > _VERSION:
            return _faulty(path, content, "it was written by a newer version of PyProf", newer=True)
        entries = document.get("annotations")
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            return _faulty(path, content, "it has no list of annotations")
        known = [{key: one[key] for key in one.keys() & _FIELDS} for one in entries]
        annotations = AnnotationList.model_validate({"annotations": known}).annotations
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return _faulty(path, content, f"{place}: {first['msg']}".removeprefix(": "))
    except (ValueError, RecursionError):
        return _faulty(path, content, "it is not JSON")
    return _File(path, content, document, tuple(annotations))


def _faulty(path: Path, content: bytes, fault: str, newer: bool = False) -> _File:
    return _File(path, content, fault=fault, newer=newer)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _write(before: _File, content: bytes) -> None:
    """Write a file that is still as it was read. Raises OSError, _ChangedError."""
    if before.fault:
        _set_aside(before.path)
    with atomic_file.named(str(before.path)) as name:
        Path(name).write_bytes(content)
        if _load(before.path).content != (b"" if before.fault else before.content):
            raise _ChangedError


def _set_aside(path: Path) -> None:
    """Rename a file that cannot be used."""
    for number in count(1):
        target = path.with_name(f"{path.name}{_ASIDE}{'' if number == 1 else f'-{number}'}")
        if not os.path.lexists(target):
            path.rename(target)
            return

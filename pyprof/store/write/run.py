# SPDX-License-Identifier: Apache-2.0
"""A run of several recordings on its way into a database: each becomes a part (`parts`), by processes of their own, one
recording at a time each; then the parts go into the database one after the other (`combine`). So no more recordings
are in memory at a time than there are processes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count as numbers
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pyprof.core import inputs, scratch
from pyprof.core.errors import FormatError
from pyprof.core.model import Trace
from pyprof.parse import archive, folder, loader, pool, reader_process
from pyprof.parse.folder import Input
from pyprof.parse.merge import UNALIGNED, Clock, common_clock, run_facts, unknown_process
from pyprof.store.write import parts
from pyprof.store.write.combine import combine
from pyprof.store.write.parts import Facts, Part

Tables = Iterator[tuple[str, pa.Table]]


class Recording(NamedTuple):
    """A recording of a run, and the file for its part. `alone`: it is the only one; `on_gpu`: as of `facts.tables`."""

    source: Input
    target: str
    alone: bool
    on_gpu: bool = False

    @property
    def path(self) -> Path:
        return self.source.path


def is_run(path: Path) -> bool:
    """Return whether a path is a folder, or an archive."""
    return path.is_dir() or (path.is_file() and archive.is_archive(path))


def make_part(recording: Recording) -> Facts | FormatError:
    """Read a recording and write its part."""
    return loader.or_error(recording.path, lambda: _make_part(recording))


def _make_part(recording: Recording) -> Facts:
    trace = folder.label_processes(loader.load(recording.path), recording.source)
    if not recording.alone:
        _name_unknown(trace)
    with open(recording.target, "wb") as file:
        return parts.write(trace, file, recording.on_gpu)


def _name_unknown(trace: Trace) -> None:
    """Give GPU events of an unknown process one of this recording, since those of several are not the same."""
    unknown = trace.gpu.process < 0
    if unknown.any():
        trace.gpu.process[unknown] = len(trace.processes)
        trace.processes = [*trace.processes, unknown_process(trace.processes)]


def serve(descriptor: int) -> None:
    """Make parts in a child process until the pipe ends."""
    reader_process.answer(descriptor, make_part)


class Run:
    """Recordings of a folder or an archive as parts, in the order of their ranks. They live as long as this object."""

    def __init__(
        self,
        path: Path,
        files: Sequence[str] | None = None,
        progress: Callable[[str, float], None] = lambda what, share: None,
    ):
        """Read the recordings, by default all. `progress` is called with what is done, and its share. Raises
        FormatError as `folder.load` does."""
        self.path = str(path)
        scratch_folder = scratch.Folder()
        close = weakref.finalize(self, scratch_folder.cleanup)
        try:
            self._read(path, scratch_folder.name, files, progress)
        except BaseException:
            close()  # the frames of an error may keep this object alive
            raise

    def _read(
        self, path: Path, target: str, files: Sequence[str] | None, progress: Callable[[str, float], None]
    ) -> None:
        """Read the recordings into parts in a folder."""
        inputs.check(path, "a folder or an archive")
        with ExitStack() as closing:
            place = closing.enter_context(folder.unpacked(path))
            listed = folder.listing(place, files)
            self._lost = listed.skipped
            recordings = [
                Recording(one, os.path.join(target, str(number)), len(listed.recordings) == 1)
                for number, one in enumerate(listed.recordings)
            ]

            number = numbers(1)

            def show(_: object) -> None:
                done = next(number)
                progress(f"reading, {done} of {len(recordings)} recordings", done / len(recordings))

            facts = pool.read(recordings, make_part, serve, show)
            read = [
                (one, recording) if not isinstance(one, FormatError) else one
                for one, recording in zip(facts, recordings)
            ]
            both, self._lost = folder.readable(place, listed, read)
            self._lost |= folder.without_recording(
                [(one.meta, one.processes) for one, _ in both], folder.unread(listed.recordings, facts)
            )
            both = _on_one_device(both, self.path)
        renamed = {str(place): self.path} if str(place) != self.path else {}
        self._lost = {_replaced(reason, renamed): count for reason, count in self._lost.items()}
        both.sort(key=lambda pair: folder.order_of(pair[0].processes))
        self._facts = [one for one, _ in both]
        self._files = [recording.target for _, recording in both]
        if sum(one.length_ns for one in self._facts) >= inputs.LONGEST:
            raise inputs.too_long(self.path)

    def database(self) -> tuple[dict[str, str], Tables]:
        """Return the facts and the tables of the database, which can be had again."""
        clock = common_clock([one.start for one in self._facts])
        return meta(self._facts, clock, self.path), self._tables(clock)

    def rows(self, tables: Sequence[str]) -> int:
        """Return the number of rows of some tables."""
        total = 0
        for name in self._files:
            with Part(name, self.path) as part:
                total += sum(piece.rows for piece in part.pieces if piece.table in tables)
        return total

    def _tables(self, clock: Clock) -> Tables:
        with ExitStack() as closing:
            files = [closing.enter_context(Part(name, self.path)) for name in self._files]
            shifts = clock.shifts if len(files) > 1 else [0]
            yield from combine(files, shifts, [one.threads for one in self._facts])
        yield "lost", losses(self._facts, clock, self._lost)


def _on_one_device(both: list[tuple[Facts, Recording]], path: str) -> list[tuple[Facts, Recording]]:
    """Return all recordings with their GPU events if one has any. Others may be of the CPU alone, as that of a
    launcher: in a run on GPUs, its operators are no events."""
    if not any(facts.on_gpu for facts, _ in both):
        if all(facts.on_gpu is None for facts, _ in both):
            raise FormatError(f'{path}: no kernels and no operators found. Record with "pyprof run SCRIPT".')
        return both
    out = []
    for facts, recording in both:
        if facts.on_gpu is False:
            facts, recording = _make_part(recording._replace(on_gpu=True)), recording
        out.append((facts, recording))
    return out


def meta(recordings: Sequence[Facts], clock: Clock, path: str) -> dict[str, str]:
    """Return the facts in a database of these recordings."""
    formats = {one.format for one in recordings}
    several = len(recordings) > 1
    return (run_facts(recordings, clock) if several else recordings[0].meta) | {
        "source": path,
        "format": formats.pop() if len(formats) == 1 else "mixed",
        "t0": str(clock.zero if several else recordings[0].t0),
        "slack": str(max(one.slack for one in recordings)),
    }


def losses(recordings: Sequence[Facts], clock: Clock, further: dict[str, int]) -> pa.Table:
    """Return the table of losses of these recordings, and `further` ones."""
    out: dict[str, int] = {}
    unaligned = {UNALIGNED: clock.unknown} if clock.unknown and len(recordings) > 1 else {}
    for lost in (*(one.lost for one in recordings), unaligned, further):
        for reason, count in lost.items():
            out[reason] = out.get(reason, 0) + count
    return pa.table({"reason": pa.array(list(out), pa.string()), "count": pa.array(out.values(), pa.int64())})


def _replaced(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text

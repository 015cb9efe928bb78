# SPDX-License-Identifier: Apache-2.0
"""Runs: folders of recordings. A folder that holds recordings is a run of as many workers as they name, unless they
cannot be one run (`separation`): then it holds several, each of some of its files.

`<worker>.<digits>.pt.trace.json[.gz]` is torch.profiler's way to name a worker and the time of a span; our own files
are `net.rank3.sqlite`, `net.rank3.1.sqlite`. The worker is what stands before the digits; its files, ordered by the
digits (none first), are its spans 1 to n.

The rank is what the file's own facts say. A name says it with the word rank (`rank3`, `net.rank_3`), or by beginning
with `worker3` if each file of the run begins so with a number of its own. Other numbers in names are no ranks.

Profile databases are results and not read; a folder `capture_traces` belongs to the trace beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from pyprof.core.errors import FormatError, UsageError
from pyprof.core.model import NOT_READ, Process, Trace
from pyprof.core.sqlite_file import is_profile
from pyprof.parse import archive, formats
from pyprof.parse.heads import Head, number
from pyprof.parse.merge import merge, processes
from pyprof.parse.separation import Separation, Worker, separate

Reader = Callable[
    [Sequence[Path]], Sequence[Trace | FormatError]
]  # each recording, or the error that says why it cannot be read
_ENDINGS = re.compile(
    r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$|\.(?:sqlite|sql|nvvp|nsys-rep|qdrep|tar|tar\.gz|tgz|zip)$",
    re.IGNORECASE,
)
_TRACE = re.compile(r"\.trace\.json(?:\.gz)?$", re.IGNORECASE)  # no other program's files are named so
_STAMP = re.compile(r"(?P<worker>.+)\.(?P<stamp>[0-9]{1,30})")
_RANK = re.compile(r"(?:^|[._-])rank[_-]?([0-9]{1,7})(?=$|[._-])", re.IGNORECASE)
_WORKER = re.compile(r"worker[_-]?([0-9]{1,7})(?=$|[._-])", re.IGNORECASE)
NOTES = ".notes.json"  # files of annotations, beside what they are about (pyprof/server/notes.py)
_REPORTS = (".nsys-rep", ".qdrep")
_CAPTURES = "capture_traces"
_DATABASE, _OTHER = (
    "profile databases in the folder (results, not read)",
    "files that are not recordings (skipped)",
)
_TWICE = "reports of Nsight Systems beside their exports (not read twice)"
_BESIDE = "recordings of no rank (--run NAME reads one)"
_CHOOSE = "Choose one with --run NAME"
_MAX_NAMED = 8  # runs that a message names


class Input(NamedTuple):
    """A recording of a run. `rank` is the rank in its file name."""

    path: Path
    worker: str
    span: int = 1
    rank: int | None = None


class Source(NamedTuple):
    """A run: a file, a folder, or the `files` of a folder by their names."""

    path: Path
    files: tuple[str, ...] | None = None


class Groups(NamedTuple):
    """The runs of which recordings are, and in a sentence without a full stop why they are several; "" for one."""

    runs: list[list[Input]]
    reason: str
    kinds: tuple[str, ...] = ()  # of the facts that separate them


def split(name: str) -> tuple[str, int | None]:
    """Split a file's name into worker and stamp.

    >>> split("gpu1.host_77.1694128201554.pt.trace.json.gz"), split("net.rank3.1.sqlite"), split("net.sqlite")
    (('gpu1.host_77', 1694128201554), ('net.rank3', 1), ('net', None))
    """
    stem = _ENDINGS.sub("", name)
    match = _STAMP.fullmatch(stem)
    return (match["worker"], int(match["stamp"])) if match else (stem, None)


def with_any_rank(name: str) -> str:
    """Return a file's name with a star for the rank in it, and then without its stamp.

    >>> with_any_rank("net.rank3.sqlite"), with_any_rank("net.rank3.1.sqlite"), with_any_rank("net.1.sqlite")
    ('net.rank*.sqlite', 'net.rank*.sqlite', 'net.1.sqlite')
    """
    ending = _ENDINGS.search(name)
    worker, count = _RANK.subn(lambda match: match[0].removesuffix(match[1]) + "*", split(name)[0])
    return f"{worker}{ending[0] if ending else ''}" if count else name


def is_named(name: str) -> bool:
    """Return whether a file with this name can be a recording."""
    return _ENDINGS.search(name) is not None


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a folder, or that into which an archive of recordings is unpacked, which messages name by the archive.
    Raises FormatError."""
    if path.is_dir():
        yield path
        return
    with archive.unpacked(path, is_named) as folder:
        try:
            yield folder
        except FormatError as error:
            text = str(error).replace(str(folder), str(path))
            raise FormatError(text.replace(_CHOOSE, f"Unpack it, and {_CHOOSE[0].lower()}{_CHOOSE[1:]}")) from None


def load_archive(path: Path, read: Reader) -> Trace:
    """Load all recordings of an archive as one. Raises FormatError."""
    with unpacked(path) as folder:
        out = load(folder, read)
        out.path = str(path)
        out.lost = {reason.replace(str(folder), str(path)): count for reason, count in out.lost.items()}
        return out


def inputs(folder: Path) -> tuple[list[Input], dict[str, int]]:
    """Return the recordings of a folder, and the number of its other files by the reason they are skipped."""
    reasons = {path: _skip_reason(path) for path in _files(folder)}
    # Of the name of a recording's other rank, it should be one: its fault is reported when it is read.
    series = {with_any_rank(path.name) for path, reason in reasons.items() if reason is None} - {
        path.name for path in reasons
    }
    skipped: dict[str, int] = {}
    paths = []
    for path, reason in reasons.items():
        if reason is None or (reason == _OTHER and with_any_rank(path.name) in series):
            paths.append(path)
        else:
            skipped[reason] = skipped.get(reason, 0) + 1
    return named(paths), skipped


def named(paths: Iterable[Path]) -> list[Input]:
    """Return recordings of a run with what their names say of them, by worker and span."""
    by_name = sorted(
        [(*split(path.name), path) for path in paths],
        key=lambda entry: (entry[0], -1 if entry[1] is None else entry[1], entry[2].name),
    )
    ranks = _ranks([worker for worker, _, _ in by_name])
    out: list[Input] = []
    for worker, _, path in by_name:
        span = out[-1].span + 1 if out and out[-1].worker == worker else 1
        out.append(Input(path, worker, span, ranks.get(worker)))
    return out


def groups(recordings: Sequence[Input]) -> Groups:
    """Return the runs of which the recordings of a folder are."""
    if len(recordings) < 2:
        return Groups([list(recordings)] if recordings else [], "")
    workers: dict[str, list[Input]] = {}
    for recording in recordings:
        workers.setdefault(recording.worker, []).append(recording)
    separated = _separate(tuple((name, tuple(map(_Version.of, files))) for name, files in workers.items()))
    parts = list(workers.values())
    out = [[recording for index in run for recording in parts[index]] for run in separated.runs]
    if len(out) == 1:
        return Groups(out, "")
    reasons = (
        ", ".join(separated.reasons[:-1]) + (" and " if len(separated.reasons) > 1 else "") + separated.reasons[-1]
    )
    return Groups(out, f"{len(recordings)} files are {len(out)} runs: {reasons}", separated.kinds)


def sources(folder: Path) -> tuple[dict[str, Source], list[str]]:
    """Return the runs in a folder by their names, and a sentence for each folder whose files are several runs. Raises
    FormatError."""
    out: dict[str, Source] = {}
    reasons = []
    for name, path in runs(folder).items():
        separated = groups(inputs(path)[0])
        if len(separated.runs) < 2:
            out[name] = Source(path)
            continue
        reasons.append(f"{separated.reason}." if name == "." else f"{name}: {separated.reason}.")
        for run in separated.runs:
            files = tuple(recording.path.name for recording in run)
            key = name_of_run(files) if name == "." else f"{name}/{name_of_run(files)}"
            out[key] = Source(run[0].path) if len(files) == 1 else Source(path, files)
    return out, reasons


def name_of_run(files: Sequence[str]) -> str:
    """Return the name of a run of some files of a folder.

    >>> name_of_run(["net.sqlite"]), name_of_run(["a.rank0.sqlite", "a.rank1.sqlite"])
    ('net.sqlite', 'a.rank0.sqlite and 1 more')
    """
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


class _Version(NamedTuple):
    """A file, and what changes when it does."""

    path: Path
    size: int
    changed: int
    rank: int | None

    @staticmethod
    def of(recording: Input) -> _Version:
        try:
            status = recording.path.stat()
        except OSError:  # deleted meanwhile: reading it tells
            return _Version(recording.path, 0, 0, recording.rank)
        return _Version(recording.path, status.st_size, status.st_mtime_ns, recording.rank)


@lru_cache(maxsize=256)
def _separate(workers: tuple[tuple[str, tuple[_Version, ...]], ...]) -> Separation:
    """Separate workers, given as names and files; remembered, because the viewer asks again every few seconds."""
    return separate(
        [
            Worker(name, files[0].rank, [_head(file) for file in files], any(_is_run(file.path) for file in files))
            for name, files in workers
        ]
    )


@lru_cache(maxsize=4096)
def _head(file: _Version) -> Head:
    return Head() if _is_packed(file.path) else formats.head(file.path)


def _is_packed(path: Path) -> bool:
    return path.suffix in _REPORTS or archive.is_archive(path)


def _is_run(path: Path) -> bool:
    """Return whether a file is an archive of several recordings."""
    try:
        return archive.is_archive(path) and sum(map(is_named, archive.names(path))) > 1
    except FormatError:
        return False


def runs(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the runs in a folder, including the folder itself ("."), by their relative paths. Raises FormatError if it
    is not a folder."""
    top = Path(folder)
    if not top.is_dir():
        raise FormatError(f"{top} is not a folder; pass a folder with recordings or runs.")
    out = {}
    for name, below, _ in os.walk(top):
        below[:] = sorted(child for child in below if child != _CAPTURES and not child.startswith("."))
        current = Path(name)
        if any(_skip_reason(path) is None for path in _files(current)):
            out[current.relative_to(top).as_posix()] = current
    return out


class Listing(NamedTuple):
    """The recordings of a run, and the number of other files by the reason they are skipped."""

    recordings: list[Input]
    skipped: dict[str, int]


def listing(folder: Path, files: Sequence[str] | None = None) -> Listing:
    """Return the recordings of a run, by default all files. A folder without recordings that has one run below it is
    that run. Raises FormatError if there is no run, or several."""
    run, (recordings, skipped) = folder, inputs(folder)
    if not recordings:
        below = runs(folder)
        if not below:
            details = "".join(f", {count} {reason}" for reason, count in skipped.items())
            raise FormatError(f"{folder} holds no recording{details}; expected {formats.EXPECTED}.")
        if len(below) > 1:
            names = ", ".join(list(below)[:_MAX_NAMED]) + (", ..." if len(below) > _MAX_NAMED else "")
            raise FormatError(f"{folder} holds {len(below)} runs; choose one with --run NAME: {names}.")
        run = next(iter(below.values()))
        recordings, skipped = inputs(run)
    if files is not None:
        return Listing([recording for recording in recordings if recording.path.name in files], skipped)
    ranks = _ranks_alone(recordings)
    if ranks is not None:
        unranked = [one.path.name for one in recordings if one not in ranks]
        listed = ", ".join(unranked[:_MAX_NAMED]) + (", ..." if len(unranked) > _MAX_NAMED else "")
        return Listing(ranks, skipped | {f"{_BESIDE}: {listed}": len(unranked)})
    _check_one_run(run, recordings)
    return Listing(recordings, skipped)


def choose(path: Path, name: str | None) -> tuple[Path, tuple[str, ...] | None]:
    """Return the path and the files of the run of a folder that a user names: by its name in `sources`, or by a part of
    the name of one of its files that no other run has; without a name the path. Raises UsageError."""
    if name is None:
        return path, None
    if not path.is_dir():
        raise UsageError(f"--run chooses one of the runs of a folder, and {path} is none.")
    known, _ = sources(path)
    hits = [key for key in known if key == name] or [
        key for key, one in known.items() if any(name in text for text in (key, *(one.files or (one.path.name,))))
    ]
    if len(hits) != 1:
        number = "no run" if not hits else f"{len(hits)} runs"
        listed = "; ".join(list(known)[:_MAX_NAMED]) + ("; ..." if len(known) > _MAX_NAMED else "")
        raise UsageError(f"--run: {number} of {path} by the name {name!r}. The runs: {listed or 'none'}.")
    return known[hits[0]]


def _ranks_alone(recordings: Sequence[Input]) -> list[Input] | None:
    """Return the recordings of the only process group, if all that separates the others is that they are of none: a
    server's front end records itself beside its ranks."""
    separated = groups(recordings)
    if len(separated.runs) < 2 or separated.kinds != ("distributed",):
        return None
    of_group = [run for run in separated.runs if any(_head(_Version.of(one)).distributed for one in run)]
    return of_group[0] if len(of_group) == 1 else None


_Read = TypeVar("_Read")


def readable(folder: Path, run: Listing, results: Sequence[_Read | FormatError]) -> tuple[list[_Read], dict[str, int]]:
    """Return what was read of the recordings of a run, and the losses: files that are no recordings, and those that
    cannot be read. Raises FormatError if none can."""
    failed = [str(result) for result in results if isinstance(result, FormatError)]
    if len(failed) == len(results):
        raise FormatError(f"{folder}: none of its {len(failed)} recordings can be read; the first is: {failed[0]}")
    lost = run.skipped | {f"{NOT_READ}{sentence}": 1 for sentence in failed}
    return [result for result in results if not isinstance(result, FormatError)], lost


def unread(recordings: Sequence[Input], results: Sequence[object]) -> list[int | None]:
    """Return the ranks in the names of the recordings that cannot be read."""
    return [one.rank for one, result in zip(recordings, results) if isinstance(result, FormatError)]


def without_recording(
    recordings: Sequence[tuple[Mapping[str, str], Sequence[Process]]], failed: Sequence[int | None]
) -> dict[str, int]:
    """Return the ranks of which a run of several recordings has none, as a loss: neither one of these, by their facts
    and processes, nor one that failed. It has no loss where ranks or their number are not known."""
    sizes = {number(meta.get("distributed.world_size")) for meta, _ in recordings} - {None}
    ranks = {*failed, *(process.rank for _, processes in recordings for process in processes)}
    size = sizes.pop() if len(sizes) == 1 else None
    known = sorted(rank for rank in ranks if rank is not None)
    if size is None or None in ranks or not known or known[-1] >= size or len(recordings) + len(failed) < 2:
        return {}
    gaps = [(low + 1, high - 1) for low, high in zip([-1, *known], [*known, size]) if high > low + 1]
    if not gaps:
        return {}
    texts = [str(low) if low == high else f"{low} to {high}" for low, high in gaps[:_MAX_NAMED]]
    texts += ["..."] if len(gaps) > _MAX_NAMED else []
    missing = size - len(known)
    listed = ", ".join(texts[:-1]) + (" and " if len(texts) > 1 else "") + texts[-1]
    sentence = f"rank {listed} of {size} has" if missing == 1 else f"ranks {listed} of {size} have"
    return {f"{NOT_READ}{sentence} no recording.": missing}


def load(folder: Path, read: Reader, files: Sequence[str] | None = None) -> Trace:
    """Load all recordings of a run as one, by default of all files, as `listing` has them. `read` reads files. Raises
    FormatError if none can be read."""
    run = listing(folder, files)
    results = [
        label_processes(result, recording) if isinstance(result, Trace) else result
        for recording, result in zip(run.recordings, read([recording.path for recording in run.recordings]))
    ]
    traces, lost = readable(folder, run, results)
    lost |= without_recording([(one.meta, one.processes) for one in traces], unread(run.recordings, results))
    traces.sort(key=lambda trace: order_of(trace.processes))
    out = merge(traces, str(folder))
    for reason, count in lost.items():
        out.drop(reason, count)
    return out


def _check_one_run(folder: Path, recordings: Sequence[Input]) -> None:
    """Raise FormatError for recordings of several runs."""
    separated = groups(recordings)
    if len(separated.runs) > 1:
        names = [name_of_run([recording.path.name for recording in run]) for run in separated.runs]
        listed = "; ".join(names[:_MAX_NAMED]) + ("; ..." if len(names) > _MAX_NAMED else "")
        raise FormatError(
            f"{folder}: {separated.reason}. {_CHOOSE}; `pyprof view` of the folder shows all. The runs: {listed}."
        )


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder by name, without hidden ones and annotations. Raises FormatError."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_file() and not e.name.startswith("."))
    except OSError as error:
        raise FormatError(f"{folder} cannot be read ({error.strerror}).") from error
    return [folder / name for name in names if not name.endswith(NOTES)]


def _skip_reason(path: Path) -> str | None:
    """Return the reason to skip a file; None for a recording."""
    if path.suffix in _REPORTS:
        return _TWICE if path.with_suffix(".sqlite").exists() else None
    try:
        if is_profile(path):
            return _DATABASE
        if archive.is_archive(path):
            return None if any(map(is_named, archive.names(path))) else _OTHER
        return None if _TRACE.search(path.name) or formats.is_recognised(path) else _OTHER
    except OSError:
        return _OTHER
    except FormatError:  # it looks like a recording: its fault is reported when it is read
        return None


def _ranks(workers: list[str]) -> dict[str, int]:
    """Return the ranks in the workers' names."""
    out = {}
    for worker in workers:
        numbers = _RANK.findall(worker)
        if len(set(map(int, numbers))) == 1:
            out[worker] = int(numbers[0])
    if out:
        return out
    matches = {worker: _WORKER.match(worker) for worker in workers}
    ranks = [int(match[1]) for match in matches.values() if match]
    if len(ranks) == len(matches) and len(set(ranks)) == len(ranks):
        return dict(zip(matches, ranks))
    return {}


def label_processes(trace: Trace, recording: Input) -> Trace:
    """Add worker, span and rank from the file's name to the processes of a trace. Facts in the file itself take
    precedence."""
    single = len(trace.processes) == 1
    trace.processes = [
        process if process.label is not None else process._replace(
            label=recording.worker, span=recording.span,
            rank=recording.rank if single and process.rank is None else process.rank,
        )
        for process in processes(trace)
    ]  # fmt: skip
    return trace


def order_of(processes: Sequence[Process]) -> tuple[bool, int, str, int]:
    """Return the sort key of a recording by its processes: rank, then name, then span."""
    first = min(processes, key=lambda p: (p.rank is None, p.rank or 0), default=Process(-1))
    return first.rank is None, first.rank or 0, first.label or "", first.span

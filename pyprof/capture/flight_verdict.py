# SPDX-License-Identifier: Apache-2.0
"""Verdict of a flight record: the differences between the last step and the others.

The time of a call is the time its thread spends in it: a call that launches kernels does not wait for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import FrameType, TracebackType
from typing import NamedTuple

from pyprof.capture.output.capture_file import StepRow
from pyprof.capture.output.merge_calls import CallRow
from pyprof.core.marker import CallMarker, caller, decode, user_frames
from pyprof.core.model import Arg, Tensor
from pyprof.core.units import duration

FEWEST = 5  # steps needed for a median
_SHARE = 0.1  # share of the excess time below which a part is not named
_NAMED = 3
_LONGEST = 200  # characters of a message of the program
_MEMORY = ("out of memory", "can't allocate memory")

Key = tuple[str, str]  # operator, user's line


class Extra(NamedTuple):
    """Additional data of a step: ns of Python's garbage collection, and CPU ns of its thread, None if another thread
    reads it."""

    garbage: int
    computed: int | None


class Evidence(NamedTuple):
    """Data available when a record is written. The last of `steps` is its subject, which may still be running.

    `samples` counts the positions of its thread while it was slow: (user's line, innermost function).
    """

    steps: Sequence[StepRow]
    calls: Sequence[CallRow]
    extras: Sequence[Extra]
    samples: Mapping[tuple[str, str], int]
    running: bool


def verdict(reason: str, evidence: Evidence) -> list[str]:
    """Return the sentences of the verdict, the reason first."""
    if not evidence.steps:
        return [reason, "No step had ended."]
    return [reason, *_length(evidence), *_differences(evidence), *_where(evidence)]


def failure(error: BaseException) -> str:
    """Describe an exception, with the user's line."""
    message = " ".join(str(error).split())
    if len(message) > _LONGEST:
        message = message[: _LONGEST - 3] + "..."
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    memory = isinstance(error, MemoryError) or any(part in str(error) for part in _MEMORY)
    line = _line_of(error.__traceback__)
    return f"{'Out of memory' if memory else 'An exception'}{f' at {line}' if line else ''}: {text}"


def _line_of(traceback: TracebackType | None) -> str | None:
    frames = []
    while traceback is not None:
        frames.append(f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return line_of(frames)


def line_of(frames: Sequence[str]) -> str | None:
    """Return the user's line among frames, outermost first; without one the innermost frame.

    >>> line_of(["train.py:9", "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134"])
    'train.py:9'
    """
    users = user_frames(tuple(frames))
    return caller(users) or (users[-1] if users else frames[-1] if frames else None)


def place_of(frame: FrameType) -> tuple[str, str]:
    """Return the user's line that a thread is at, and the innermost function."""
    frames, function = [], frame.f_code.co_name
    at: FrameType | None = frame
    while at is not None:
        frames.append(f"{at.f_code.co_filename}:{at.f_lineno}")
        at = at.f_back
    return line_of(frames[::-1]) or "an unknown line", function


def _length(evidence: Evidence) -> Iterable[str]:
    *earlier, step = evidence.steps
    text = f"Step {step.number} {'has run for' if evidence.running else 'took'} {duration(step.end - step.start)}"
    if len(earlier) < FEWEST:
        yield f"{text}. Too few steps went before to compare it."
        return
    typical = median(earlier_step.end - earlier_step.start for earlier_step in earlier)
    yield f"{text}; the median of the {len(earlier)} before is {duration(typical)}."


def _differences(evidence: Evidence) -> Iterable[str]:
    """Yield the parts that took longer than in the other steps, the longest first, and the calls only in this step."""
    if len(evidence.steps) <= FEWEST:
        return
    sums, arguments = _by_step(evidence)
    last = sums[-1]
    typical = {key: median(totals.get(key, 0) for totals in sums[:-1]) for key in last}
    lengths = [step.end - step.start for step in evidence.steps]
    extra_time = lengths[-1] - median(lengths[:-1])
    outside = [length - sum(totals.values()) for length, totals in zip(lengths, sums)]
    garbage = [extra.garbage for extra in evidence.extras]
    parts: list[tuple[float, str]] = []
    for (op, line), ns in last.items():
        key, before = (op, line), typical[op, line]
        is_known = any(key in totals for totals in sums[:-1])
        text = f"{op} at {line} took {duration(ns)}"
        if not is_known:
            text += "; no other step calls it there."
        else:
            shapes = arguments[-1][key].difference(*(totals[key] for totals in arguments[:-1]))
            text += f", {duration(before)} in the others"
            text += f"; only this step calls it with {', '.join(sorted(shapes)[:2])}." if shapes else "."
        parts.append((ns - before, text))
    for label, now, before in (
        ("passed outside of torch's functions", outside[-1], median(outside[:-1])),
        ("went into Python's garbage collection", garbage[-1], median(garbage[:-1])),
    ):
        parts.append((now - before, f"{duration(now)} {label}, {duration(before)} in the others."))
    parts.sort(key=lambda part: -part[0])
    least = max(_SHARE * extra_time, _SHARE * median(lengths[:-1]))
    listed = [text for excess, text in parts if excess > least][:_NAMED]
    yield from listed
    new = [key for key in last if not any(key in totals for totals in sums[:-1])]
    left = [f"{op} at {line}" for op, line in new if not any(f"{op} at {line} " in text for text in listed)]
    if left:
        yield f"Only this step calls {', '.join(left[:_NAMED])}{' and others' if len(left) > _NAMED else ''}."
    computed = evidence.extras[-1].computed
    if listed and computed is not None and lengths[-1] - computed > extra_time / 2 > 0:
        yield f"Its thread computed for {duration(computed)} of that: it waited for the rest."


def _by_step(
    evidence: Evidence,
) -> tuple[list[Counter[Key]], list[defaultdict[Key, set[str]]]]:
    """Return for each step the ns of each operator and line on its thread, and the arguments of its calls."""
    steps = evidence.steps
    sums: list[Counter[Key]] = [Counter() for _ in steps]
    arguments: list[defaultdict[Key, set[str]]] = [defaultdict(set) for _ in steps]
    markers: dict[str, CallMarker] = {}
    at = 0
    for call in sorted(evidence.calls):
        while at < len(steps) and call.start >= steps[at].end:
            at += 1
        if at == len(steps):
            break
        if call.start < steps[at].start or call.tid != steps[at].tid:
            continue
        marker = markers.get(call.text)
        if marker is None:
            decoded = decode(call.text)
            if not isinstance(decoded, CallMarker):
                continue
            marker = markers[call.text] = decoded
        key = f"{marker.call.mod}.{marker.call.op}", line_of(marker.trace) or "an unknown line"
        sums[at][key] += call.end - call.start
        arguments[at][key].add(_shapes(marker.call.args))
    return sums, arguments


def _shapes(args: Sequence[Arg]) -> str:
    """Return shapes of tensors and values of numbers, in short form."""
    return "(" + ", ".join(_shape(arg.value) for arg in args) + ")"


def _shape(value: object) -> str:
    if isinstance(value, Tensor):
        return "x".join(map(str, value.shape)) or "scalar"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_shape, value[:4])) + (", ...]" if len(value) > 4 else "]")
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else "..."


def _where(evidence: Evidence) -> Iterable[str]:
    samples = Counter(evidence.samples)
    total = samples.total()
    if total:
        (line, function), count = samples.most_common(1)[0]
        yield f"While it was slow its thread was at {line} (in {function}) in {count} of {total} looks."

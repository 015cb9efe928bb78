# SPDX-License-Identifier: Apache-2.0
"""Calls as NVTX ranges, for the tool that listens: Nsight Systems, nvprof, any library that NVTX loads.

`registered`: one range per outermost call in the domain `pyprof`. Its text (`marker.encode`) holds function,
arguments, frames, module and layer; it is built and registered once per distinct call and is a dictionary hit after
that. The payload is the number of the call. `classic`: the nested ranges of the original in the default domain, with
its texts.

The nvtx package returns a DummyDomain when nothing listens: `auto` writes no ranges then. Nothing here raises into
the program, and the package is imported by `configure`, never before.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from pyprof.capture.core.internal_errors import internal, tolerated
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import profiler_enabled
from pyprof.capture.instrument.arguments import Key, arguments
from pyprof.capture.instrument.recorder import ThreadState, recorder
from pyprof.capture.instrument.targets import RNN
from pyprof.core.errors import UsageError
from pyprof.core.marker import encode, encode_classic
from pyprof.core.model import Call

log = logging.getLogger(__name__)
MODES = ("auto", "registered", "classic", "off")
DOMAIN = "pyprof"
# A registered text is never freed: a program whose shapes or layer names never repeat must not fill the memory.
MAX_TEXTS = 100_000
# Set by the tools that listen to NVTX in a process they started.
TOOLS = ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NVPROF_ID")
_MISSING = object()


class Writer:
    """Writer of the ranges of calls. Attributes are kept per thread, since each push changes their payload."""

    def __init__(self, domain: Any, classic: bool):
        self.classic = classic
        self.full = False  # the limit on texts is reached: new ones leave arguments and layer out
        self._domain = domain
        self._push, self._pop = domain.push_range, domain.pop_range
        self._numbers = itertools.count(1)
        self.texts: dict[tuple[Any, ...], tuple[str, ...]] = {}
        self._text_count = 0
        self._lock = threading.RLock()

    def push(self, state: ThreadState, number: int, site: int, args_id: int, key: Key | None) -> int:
        """Open the ranges of a call; return how many. `args_id` is the number of its arguments, `key`."""
        depth = 0
        try:
            call_key = (number, site, args_id, state.layer)
            ranges = state.attributes.get(call_key)
            if ranges is None:
                ranges = self._attributes(state, call_key, key)
            if not self.classic:
                attributes = ranges[0]
                if attributes is not None:
                    attributes.payload = next(self._numbers)
                self._push(attributes)
                return 1
            for attributes in ranges:
                self._push(attributes)
                depth += 1
        except internal() as error:  # never into the user's code
            recorder.drop(f"NVTX range not written ({type(error).__name__})")
        return depth

    def pop(self, depth: int) -> None:
        """Close what `push` opened."""
        try:
            for _ in range(depth):
                self._pop()
        except internal() as error:  # never into the user's code
            recorder.drop(f"NVTX range not closed ({type(error).__name__})")

    def _attributes(self, state: ThreadState, call_key: tuple[Any, ...], key: Key | None) -> tuple[Any, ...]:
        """Return the attributes for the first call of its kind on a thread."""
        with self._lock:
            texts = self.texts.get(call_key)
            if texts is None:
                if self.full:
                    call_key, key = (*call_key[:2], -1, ""), None
                    texts = self.texts.get(call_key)
                if texts is None:
                    texts = self.texts[call_key] = self._make(call_key, key)
                    self._text_count += 1
                    if self._text_count == MAX_TEXTS:
                        self.full = True
                        _say(f"{MAX_TEXTS} different NVTX texts: new ones leave arguments and layer out from now on.")
            ranges = state.attributes.get(call_key)
            if ranges is None:
                make = self._domain.get_event_attributes
                ranges = state.attributes[call_key] = tuple(make(message=text) for text in texts)
            return ranges

    def _make(self, call_key: tuple[Any, ...], key: Key | None) -> tuple[str, ...]:
        number, site, _, layer = call_key
        stacks = recorder.stacks
        mod, op = recorder.functions[number]
        args = arguments(key) if key is not None else ()
        trace = stacks.trace(site)
        if self.classic:
            module = _rnn_module() if mod == "torch" and op in RNN else None
            if module is None:
                return encode_classic(Call(mod, op, args), trace)
            return encode_classic(Call(module[0], "forward", args[:2]), trace, module)  # input, states
        path = stacks.contexts[stacks.sites[site][1]].path if site >= 0 else ""
        return (encode(Call(mod, op, args), layer, trace, path or None),)


def _rnn_module() -> tuple[str, str] | None:
    """Return class and extra_repr of the recurrent module whose `forward` is running. The original marks only these."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(8):
        if frame is None:
            break
        if frame.f_code.co_name == "forward":
            module = frame.f_locals.get("self")
            if isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase)):
                return type(module).__name__, module.extra_repr()
        frame = frame.f_back
    return None


class Plan:
    """NVTX setup of this process, as decided by `init`: the tool that listens, and the writer for it."""

    def __init__(self) -> None:
        self.mode = "off"
        self.writer: Writer | None = None
        self.tool: str | None = None  # the attached tool; None: none, or its ranges are turned off

    def configure(self, mode: str | None) -> None:
        """Choose the mode by argument, else PYPROF_NVTX, else `auto`."""
        if mode is None:
            mode = os.environ.get("PYPROF_NVTX") or "auto"
            if mode not in MODES:
                _say(f"PYPROF_NVTX={mode} is not one of {', '.join(MODES)}; auto is used.")
                mode = "auto"
        self.reset()
        self.mode = mode
        if mode == "off":
            return
        self.tool = next((name for name in TOOLS if name in os.environ), None)
        domain = _domain(None if mode == "classic" else DOMAIN)
        if domain is None:
            if mode != "auto" or self.tool is not None:
                _say("calls cannot be written as NVTX ranges without the nvtx package: pip install nvtx.")
            return
        listens = type(domain).__name__ != "DummyDomain"
        if listens and self.tool is None:
            self.tool = "NVTX"
        if listens or mode != "auto":
            self.writer = Writer(domain, mode == "classic")

    def reset(self) -> None:
        """Return to the state before `init`."""
        self.mode, self.writer, self.tool = "off", None, None
        for state in recorder.threads:  # of the writer before
            state.attributes = {}

    def forget(self) -> None:
        """Forget the texts: numbers of functions, sites and arguments are about to change."""
        if self.writer is not None:
            self.writer.texts.clear()

    def no_file(self) -> str:
        """Return why there is no file under a tool."""
        begin = f"a profiler is attached ({self.tool})"
        if self.writer is not None:
            return f"{begin}: calls are NVTX ranges for it, and there is no file. PYPROF_NVTX=off writes the file."
        return f"{begin} that takes no NVTX ranges: add nvtx to its options, or write a file with PYPROF_NVTX=off."


def attached() -> bool:
    """Return whether a tool that reads NVTX ranges has started this process, whether or not its ranges are written."""
    return plan.tool is not None or any(name in os.environ for name in TOOLS)


def check(mode: str | None) -> None:
    """Raise UsageError for an argument of `init` that is not a mode."""
    if mode is not None and mode not in MODES:
        raise UsageError(f"init(nvtx={mode!r}): use one of {', '.join(map(repr, MODES))}.")


def say_lost() -> None:
    """Print one line after a window without a file, which would hold the counts."""
    if recorder.lost:
        _say("; ".join(f"{reason}: {count}" for reason, count in recorder.lost.items()) + ".")


def _say(sentence: str) -> None:
    print(f"pyprof: {sentence}", file=sys.stderr)


def _domain(name: str | None) -> Any:
    """Return a domain of the nvtx package, None without the package or with one too old to have it."""
    try:
        import nvtx

        return nvtx.get_domain(name) if name is not None else nvtx.get_domain()
    except internal() as error:  # never into the user's code
        log.debug("no NVTX domain: %s", error)
        return None


def push_user(name: str) -> bool:
    """Open a range of `pyprof.annotate` in the default domain; return whether there is one to close."""
    try:
        domain = _domain(None)
        if domain is None:
            return False
        domain.push_range(domain.get_event_attributes(message=name))
        return True
    except internal() as error:  # never into the user's code
        recorder.drop(f"NVTX range not written ({type(error).__name__})")
        return False


def pop_user() -> None:
    """Close the innermost range of `push_user`."""
    with tolerated():
        _domain(None).pop_range()


class Operators:
    """torch's own ranges (`emit_nvtx`), which carry sequence numbers: without them no backward can be matched to its
    forward.

    They need CUDA, and leave when the program runs a profiler of its own. torch keeps their state per thread.
    """

    def __init__(self) -> None:
        self._context: Any = None
        self._thread = 0

    @property
    def running(self) -> bool:
        return self._context is not None

    def start(self) -> None:
        """Start the ranges, unless the program has its own."""
        try:
            if not torch.cuda.is_available() or profiler_enabled():
                return
            emit_nvtx: Any = torch.autograd.profiler.emit_nvtx
            context = emit_nvtx(record_shapes=True)
            context.__enter__()
            self._context, self._thread = context, threading.get_ident()
        except internal() as error:  # never into the user's code
            _say(f"torch's emit_nvtx does not start ({error}); calls are written, sequence numbers are not.")

    def stop(self) -> None:
        """End the ranges; does nothing if they do not run, or were started by another thread."""
        context, self._context = self._context, None
        if context is None or self._thread != threading.get_ident():
            return
        try:
            context.__exit__(None, None, None)
        except internal() as error:  # never into the user's code
            log.debug("emit_nvtx did not end: %s", error)


plan = owned(owned(Plan(), Until.WRITTEN, Plan.forget), Until.SHUTDOWN, Plan.reset)

__all__: Sequence[str] = ("MODES", "Operators", "Plan", "Writer", "plan", "pop_user", "push_user")

# SPDX-License-Identifier: Apache-2.0
"""Device layer of a recording: the choice of the collector for GPU events, and the reason if there is none.

`auto` is torch's own profiler where there is a GPU, and silent where there is none. A collector that was requested
and cannot work gives its reason in one sentence; calls and operators are recorded in any case.
"""

from __future__ import annotations

import logging
import os
import sys

import torch

from pyprof.capture.collectors.cupti import library, pool
from pyprof.capture.collectors.cupti.collector import Cupti
from pyprof.capture.collectors.device import COPY, KERNEL, LAUNCH, SET, Records
from pyprof.capture.collectors.gpus import finish_kernels, initialized
from pyprof.capture.collectors.kineto import Kineto
from pyprof.capture.collectors.kineto_start import ProfilerActivity
from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.torch_internals import look_up
from pyprof.core.errors import CaptureError

log = logging.getLogger(__name__)

_supported_activities = look_up(
    "torch._C._autograd._supported_activities", "what runs on a GPU", check=lambda supported: set(supported())
)

# Variables through which another profiler is injected into a process that uses CUDA.
_INJECTIONS = ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NVPROF_ID")


def kineto_missing() -> str:
    """Return "" if torch's profiler can record a GPU on this machine, else the reason."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch was built without CUDA"
    if not torch.cuda.device_count():  # checked first: without a driver even a torch with CUPTI does not offer CUDA
        return f"torch sees no GPU ({library.driver() or 'is CUDA_VISIBLE_DEVICES empty?'})"
    if _supported_activities is None or ProfilerActivity is None:
        return "PyProf does not support the profiler of this torch"
    if ProfilerActivity.CUDA not in _supported_activities():
        return "the profiler of this torch was built without CUPTI"
    return ""


def injected() -> str:
    """Return the environment variable through which another profiler was loaded into this process, "" for none."""
    return next((name for name in _INJECTIONS if name in os.environ), "")


def cupti_missing() -> str:
    """Return "" if CUPTI can record in this process now, else the reason."""
    if name := injected():
        return f"another profiler is loaded into this process ({name} is set), and CUPTI serves only one"
    if reason := pool.missing():
        return reason
    try:
        library.load()
    except CaptureError as error:
        return str(error)
    return ""


def available() -> dict[str, str]:
    """Return the device collectors of this machine: "" for one that works, else the reason."""
    return {"kineto": kineto_missing(), "cupti": cupti_missing()}


class Layer:
    """Device part of one session."""

    def __init__(self, collector: str, kineto: Kineto, sync: bool = False):
        self.collector, self.missing = collector, ""
        self._kineto = kineto
        self._kineto.sync = sync
        self._cupti = Cupti(sync=sync) if collector == "cupti" else None
        if self._cupti is not None:
            # Kineto takes CUPTI whenever it starts, and ends kinds of ours when it stops.
            self._kineto.started, self._kineto.stopping = self.begin, self.stop
        self._decided = False
        self.records = Records()

    def start(self, held: bool) -> None:
        """Prepare the collectors when a window opens, before torch's profiler starts. `held`: a profiler of the user is
        running."""
        try:
            if not self._decided:
                self._decided = True
                self._decide()
            if held and self._kineto.devices:
                self.missing = "the program's own torch.profiler was running"
            if self._cupti is not None and not self.missing:
                reason = "the program's own torch.profiler holds CUPTI" if held else cupti_missing()
                if reason:
                    raise CaptureError(reason)
        except internal() as error:
            self._fail(error)

    def begin(self) -> None:
        """Start CUPTI after torch's profiler was started or restarted, or is known not to run."""
        if self._cupti is None or self._cupti.running or self.missing:
            return
        try:
            self._cupti.start()
        except internal() as error:
            self._fail(error)

    def _decide(self) -> None:
        # The first profile in a process decides whether Kineto can ever record GPUs: the program's own may need it.
        self._kineto.knows_gpus = not (kineto_missing() or injected())
        if self.collector in ("auto", "kineto"):
            reason = kineto_missing()
            self._kineto.devices = not reason
            if reason and self.collector == "kineto":
                self._say(reason)
            elif reason:
                self.missing = reason

    def step(self) -> None:
        """Report and end full collectors, between two steps."""
        self._kineto.look()
        if self._cupti is not None:
            self._cupti.bound()

    def stop(self) -> None:
        """Stop CUPTI: the window closes, torch's profiler is about to stop, or the user's own is about to start."""
        if self._cupti is None or not self._cupti.running:
            return
        finish_kernels()
        try:
            self._cupti.stop()
        except internal() as error:
            self._fail(error)

    def keep(self) -> None:
        """Keep the records of the window that was closed."""
        for source in (self._kineto, self._cupti):
            if source is not None:
                self.records.extend(source.records)
                source.records = Records()

    def forget(self) -> None:
        """Drop all records."""
        self.keep()
        self.records = Records()

    def cut(self, limit: int, reason: str) -> None:
        """Keep only records launched before a time."""
        remaining = self.records.before(limit)
        remaining.drop(reason, len(self.records) - len(remaining))
        self.records = remaining

    def _fail(self, error: Exception) -> None:
        """Report a failure; the recorded program must go on."""
        if not isinstance(error, CaptureError):
            log.debug("the collector failed", exc_info=True)
            error = CaptureError(f"{type(error).__name__}: {error}; please report this")
        self._say(str(error))

    def _say(self, reason: str) -> None:
        self.missing = reason
        print(
            f"pyprof: the collector {self.collector} records no kernels: {reason.rstrip('.')}.",
            file=sys.stderr,
        )

    def say_empty(self) -> None:
        """Warn if a program used a GPU and not one kernel was recorded."""
        works = self.collector != "none" and not self.missing
        if works and initialized() and not self.records.count(KERNEL, COPY, SET):
            launches = self.records.count(LAUNCH)
            print(
                f"pyprof: NO KERNELS were recorded, though the program uses CUDA ({launches} CUDA calls were "
                "recorded); see docs/troubleshooting.md.",
                file=sys.stderr,
            )

    def facts(self) -> dict[str, str]:
        """Return the rows of PYPROF_META: the collector that worked, or why none did."""
        name = "cupti" if self._cupti is not None else "kineto"
        if self.collector == "none":
            return {"collector": "none"}
        return {"collector": "none", "collector.missing": self.missing} if self.missing else {"collector": name}

# SPDX-License-Identifier: Apache-2.0
"""The device layer of a recording: which collector records what runs on the GPU, and why none does.

`auto` is torch's own profiler where there is a GPU, and nothing to say where there is none. A collector that was asked
for and cannot work says why in one sentence; calls and operators are recorded in any case.
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
from pyprof.capture.core.torch_internals import look_up
from pyprof.errors import CaptureError

log = logging.getLogger(__name__)

_supported_activities = look_up(
    "torch._C._autograd._supported_activities", "what runs on a GPU", check=lambda supported: set(supported())
)

# Variables by which another profiler comes into a process that uses CUDA.
_INJECTIONS = ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NVPROF_ID")


def kineto_missing() -> str:
    """ "" if torch's profiler can record a GPU here, else why not."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch was built without CUDA"
    if not torch.cuda.device_count():  # first: without a driver a torch with CUPTI does not offer CUDA either
        return f"torch sees no GPU ({library.driver() or 'is CUDA_VISIBLE_DEVICES empty?'})"
    if _supported_activities is None or ProfilerActivity is None:
        return "PyProf does not know the profiler of this torch"
    if ProfilerActivity.CUDA not in _supported_activities():
        return "the profiler of this torch was built without CUPTI"
    return ""


def injected() -> str:
    """The variable by which another profiler has come into this process, "" for none."""
    return next((name for name in _INJECTIONS if name in os.environ), "")


def cupti_missing() -> str:
    """ "" if CUPTI can record here now, else why not."""
    if name := injected():
        return f"another profiler is in this process ({name} is set), and CUPTI serves one"
    if reason := pool.missing():
        return reason
    try:
        library.load()
    except CaptureError as error:
        return str(error)
    return ""


def available() -> dict[str, str]:
    """The device collectors of this machine: "" for one that works, else the reason why it does not."""
    return {"kineto": kineto_missing(), "cupti": cupti_missing()}


class Layer:
    """The device's part of one session."""

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
        """A window opens, torch's profiler is not started yet. `held`: a profiler of the user's runs."""
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
        except Exception as error:
            self._fail(error)

    def begin(self) -> None:
        """In a window, torch's profiler has been started, or again; or does not run at all."""
        if self._cupti is None or self._cupti.running or self.missing:
            return
        try:
            self._cupti.start()
        except Exception as error:
            self._fail(error)

    def _decide(self) -> None:
        # Its first profile in a process decides whether Kineto will ever know of GPUs: the program's own may want it.
        self._kineto.knows_gpus = not (kineto_missing() or injected())
        if self.collector in ("auto", "kineto"):
            reason = kineto_missing()
            self._kineto.devices = not reason
            if reason and self.collector == "kineto":
                self._say(reason)
            elif reason:
                self.missing = reason

    def step(self) -> None:
        """Between two steps: tell, and end, what is full."""
        self._kineto.look()
        if self._cupti is not None:
            self._cupti.bound()

    def stop(self) -> None:
        """The window closes, torch's profiler is about to stop, or the user's own one to begin."""
        if self._cupti is None or not self._cupti.running:
            return
        finish_kernels()
        try:
            self._cupti.stop()
        except Exception as error:
            self._fail(error)

    def keep(self) -> None:
        """Keep what the window that was closed has recorded."""
        for source in (self._kineto, self._cupti):
            if source is not None:
                self.records.extend(source.records)
                source.records = Records()

    def forget(self) -> None:
        """Drop what was recorded so far."""
        self.keep()
        self.records = Records()

    def cut(self, limit: int, reason: str) -> None:
        """Keep what was launched before a time."""
        kept = self.records.before(limit)
        kept.drop(reason, len(self.records) - len(kept))
        self.records = kept

    def _fail(self, error: Exception) -> None:
        """Whatever it is, the program that is recorded goes on."""
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
        """A program that used a GPU and gave not one kernel: that is not to be overlooked."""
        works = self.collector != "none" and not self.missing
        if works and initialized() and not self.records.count(KERNEL, COPY, SET):
            launches = self.records.count(LAUNCH)
            print(
                f"pyprof: NO KERNELS were recorded, though the program uses CUDA ({launches} CUDA calls were seen); "
                "see docs/troubleshooting.md.",
                file=sys.stderr,
            )

    def facts(self) -> dict[str, str]:
        """For PYPROF_META: the collector that worked, or why none did."""
        worked = "cupti" if self._cupti is not None else "kineto"
        if self.collector == "none":
            return {"collector": "none"}
        return (
            {"collector": "none", "collector.missing": self.missing}
            if self.missing
            else {"collector": worked}
        )

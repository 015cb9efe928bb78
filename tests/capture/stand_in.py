# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for libcupti (`cupti_fake.c`) and for what torch's profiler does with it, where there is no GPU."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import ProfilerActivity

from pyprof.capture.collectors import kineto, kineto_start
from pyprof.capture.collectors.cupti.library import Library

# ------------------------------------------------------------------------------- the layouts, from the header

_KERNEL9 = (
    "kind:i cache:B shared_config:B registers:H part_requested:i part_executed:i start:Q end:Q completed:Q "
    "device:I context:I stream:I grid_x:i grid_y:i grid_z:i block_x:i block_y:i block_z:i static:i dynamic:i "
    "local_thread:I local_total:I correlation:I grid_id:q name:Q reserved:Q queued:Q submitted:Q launch_type:B "
    "carveout_requested:B carveout:B pad:B shared_executed:I graph_node:Q limit:i graph:I policy:Q channel:I "
    "channel_type:i cluster_x:I cluster_y:I cluster_z:I scheduling:I local_total_v2:Q potential:I active:I"
)
_COPY5 = (
    "kind:i copy_kind:B src:B dst:B flags:B bytes:Q start:Q end:Q device:I context:I stream:I correlation:I "
    "runtime_correlation:I pad:I reserved:Q graph_node:Q graph:I channel:I channel_type:i"
)
_PEER4 = (
    "kind:i copy_kind:B src:B dst:B flags:B bytes:Q start:Q end:Q device:I context:I stream:I src_device:I "
    "src_context:I dst_device:I dst_context:I correlation:I reserved:Q graph_node:Q graph:I channel:I channel_type:i "
    "pad:I"
)
_SET4 = (
    "kind:i value:I bytes:Q start:Q end:Q device:I context:I stream:I correlation:I flags:H memory:H pad:I "
    "reserved:Q graph_node:Q graph:I channel:I channel_type:i device_launched:B pad1:B pad2:H"
)
_API = "kind:i cbid:I start:Q end:Q process:I thread:I correlation:I result:I"
_SYNC1 = "kind:i type:i start:Q end:Q correlation:I context:I stream:I event:I"
_SOURCE = " source_graph:I pad9:I source_node:Q"
_K10 = _KERNEL9 + " device_launched:B p1:B p2:H p3:I"
_K11 = _K10 + " priority:i p4:I"
_K12 = _K11 + " execution:I p5:I"
_COPY6 = _COPY5 + " device_launched:B p1:B p2:H copies:Q"
# Version of CUPTI -> kernel, copy, peer copy, set, synchronisation: the records of that version.
LAYOUTS = {
    24: (_KERNEL9, _COPY5 + " pad2:I", _PEER4, _SET4, _SYNC1),
    28: (_KERNEL9, _COPY6, _PEER4, _SET4, _SYNC1 + " event_sync:Q result:I pad:I"),
    130001: (_K10, _COPY6, _PEER4, _SET4, _SYNC1 + " event_sync:Q result:I pad:I"),
    130100: (_K11, _COPY6, _PEER4, _SET4, _SYNC1 + " event_sync:Q result:I pad:I"),
    130301: (_K12, _COPY6, _PEER4, _SET4, _SYNC1 + " event_sync:Q result:I pad:I"),
    130401: (_K12 + _SOURCE, _COPY6 + _SOURCE, _PEER4, _SET4 + _SOURCE, _SYNC1 + " event_sync:Q result:I pad:I"),
}  # fmt: skip
MARKER, MARKER_BYTES = 12, 56  # a kind that we do not read


class Layout:
    """One kind of record: packs and unpacks by name."""

    def __init__(self, text: str):
        fields = [field.split(":") for field in text.split()]
        self.names = [name for name, _ in fields]
        self.struct = struct.Struct("<" + "".join(code for _, code in fields))

    def pack(self, values: dict[str, int]) -> bytes:
        return self.struct.pack(*(values.get(name, 0) for name in self.names))

    def unpack(self, data: bytes, at: int) -> dict[str, int]:
        return dict(zip(self.names, self.struct.unpack_from(data, at)))


def layouts(version: int) -> dict[int, Layout]:
    kernel, copy, peer, set_, sync = LAYOUTS[version]
    texts = {10: kernel, 1: copy, 22: peer, 2: set_, 38: sync, 5: _API, 4: _API}
    return {kind: Layout(text) for kind, text in texts.items()}


class Fake:
    """The stand-in for libcupti, as in a process that has not used it yet."""

    def __init__(self, path: Path):
        self.library = Library(str(path))
        self._lib: Any = ctypes.CDLL(str(path))
        self._with_gil: Any = ctypes.PyDLL(str(path))
        self._lib.fake_now.restype = ctypes.c_uint64
        self._lib.fake_reset()
        self.version(130001)
        for kind, layout in layouts(130001).items():
            self._lib.fake_size(kind, layout.struct.size)

    def version(self, number: int, error: int = 0) -> None:
        self._lib.fake_version(number, error)

    def size(self, kind: int, size: int) -> None:
        self._lib.fake_size(kind, size)

    def error(self, kind: int, code: int) -> None:
        self._lib.fake_error(kind, code)

    def delay(self, us: int) -> None:
        """Let each traced call hold the library's lock that long before it asks for a buffer."""
        self._lib.fake_delay(ctypes.c_size_t(us))

    def dropped(self, count: int) -> None:
        self._lib.fake_dropped(ctypes.c_size_t(count))

    def now(self) -> int:
        """On the clock of the records."""
        return int(self._lib.fake_now())

    def add(self, data: list[bytes]) -> None:
        """A traced call on this thread, without the GIL, that has these records."""
        joined = b"".join(data)
        self._lib.fake_add(joined, ctypes.c_size_t(len(joined)))

    def call_with_gil(self) -> None:
        """A traced call as those of torch that keep the GIL; it leaves no record."""
        self._with_gil.fake_call()

    def launch(self, correlation: int) -> None:
        """A kernel now, and the call that launched it."""
        now = self.now()
        times = {"start": now, "end": now + 100, "correlation": correlation}
        known = layouts(130001)
        self.add([known[5].pack({**times, "kind": 5, "cbid": 211}), known[10].pack({**times, "kind": 10})])

    def left_out(self) -> set[tuple[bool, int]]:
        """Functions of the driver's API (else the runtime's) that are not recorded."""
        return {
            (bool(driver), number)
            for driver in (0, 1)
            for number in range(1024)
            if self._lib.fake_left_out(driver, number)
        }

    def kineto_start(self, kinds: Sequence[int]) -> None:
        self._lib.fake_kineto_start((ctypes.c_int * len(kinds))(*kinds), len(kinds))

    def kineto_stop(self) -> None:
        self._lib.fake_kineto_stop()

    def kineto_overflow(self) -> None:
        self._lib.fake_kineto_overflow()

    def kineto_stopped(self) -> bool:
        return bool(self._lib.fake_kineto_stopped())

    @property
    def kineto_kernels(self) -> int:
        """Kernels that Kineto has got since the last question."""
        return int(self._lib.fake_kineto_records(10))

    @property
    def kineto_unknown(self) -> int:
        """Buffers of others that were handed back to Kineto: their records are lost."""
        return int(self._lib.fake_kineto_unknown())

    @property
    def enabled(self) -> set[int]:
        return {kind for kind in range(64) if self._lib.fake_enabled(kind)}

    @property
    def thread_ids(self) -> int:
        return int(self._lib.fake_thread_ids())


# Kinds of CUPTI that Kineto enables for an activity of torch, by the name that an activity filter has for it.
_CPU_KINDS = {"EXTERNAL_CORRELATION": 39, "CUDA_RUNTIME": 5, "CUDA_DRIVER": 4}
_CPU_NAMES = {"CPU_OP", "CPU_INSTANT_EVENT", "USER_ANNOTATION", "PYTHON_FUNCTION", *_CPU_KINDS}
_CUDA_KINDS = {
    "GPU_MEMCPY": 1, "GPU_MEMSET": 2, "CONCURRENT_KERNEL": 10, "CUDA_RUNTIME": 5, "CUDA_DRIVER": 4, "OVERHEAD": 17,
}  # fmt: skip


class LibKineto:
    """torch's profiler on a GPU: what it does to libcupti when a profile begins and ends, whoever's it is.

    `by_activities`: as torch 2.13 the library decides at the first profile of the process, by what that one records,
    whether it will ever know of GPUs; before, torch with CUDA always does.
    """

    def __init__(self, fake: Fake, monkeypatch: Any, by_activities: bool):
        self._fake, self._by_activities = fake, by_activities
        self.knows_gpus: bool | None = None  # decided at the first profile
        self._kinds: list[int] = []
        users: Any = torch.autograd.profiler
        for follow, places in (
            (self._prepare, [(kineto_start, "prepare"), (users, "_prepare_profiler")]),
            (self._enable, [(kineto_start, "enable"), (users, "_enable_profiler")]),
            (self._disable, [(kineto, "_disable"), (users, "_disable_profiler")]),
        ):
            for module, name in places:
                monkeypatch.setattr(module, name, follow(getattr(module, name)))

    def _prepare(self, original: Any) -> Any:
        def prepare(config: Any, activities: set[Any], activity_filter: dict[Any, set[str]] | None = None) -> None:
            chosen = activity_filter or {}
            if self.knows_gpus is None:
                self.knows_gpus = ProfilerActivity.CUDA in activities or not self._by_activities
            kinds = set()
            for activity, known in ((ProfilerActivity.CPU, _CPU_KINDS), (ProfilerActivity.CUDA, _CUDA_KINDS)):
                if activity in activities:
                    kinds |= {known[name] for name in chosen.get(activity, known) if name in known}
            self._kinds = sorted(kinds)
            original(config, activities, **({"activity_filter": chosen} if chosen else {}))

        return prepare

    def _enable(self, original: Any) -> Any:
        def enable(*arguments: Any) -> None:
            original(*arguments)
            if self.knows_gpus:
                self._fake.kineto_start(self._kinds)

        return enable

    def _disable(self, original: Any) -> Any:
        def disable(*arguments: Any) -> Any:
            if self.knows_gpus:
                self._fake.kineto_stop()
            return original(*arguments)

        return disable


def users_profile(body: Any) -> None:
    """Run a function under a profile of the program's own with GPU, as torch.profiler does where there is one."""
    from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

    module: Any = torch.autograd.profiler
    activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
    module._prepare_profiler(config, activities)
    module._enable_profiler(config, activities)
    try:
        body()
    finally:
        module._disable_profiler()

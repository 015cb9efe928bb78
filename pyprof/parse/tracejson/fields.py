# SPDX-License-Identifier: Apache-2.0
"""Fields of events: the kind of each category, and the names of its arguments.

A category has had several spellings since 2021, and vendors have their own; they are compared in lower case. Source:
libkineto, output_json.cpp and ActivityType.cpp.
"""

from __future__ import annotations

from typing import Any

import msgspec

(
    OPERATOR, EITHER, ANNOTATION, LAUNCH, PYTHON, ALLOCATION, FLOW, DEVICE_KERNEL, DEVICE_COPY, DEVICE_SET, IGNORED,
) = range(11)  # fmt: skip
_KINDS = {
    "cpu_op": OPERATOR, "operator": EITHER, "user_annotation": ANNOTATION, "python_function": PYTHON,
    "kernel": DEVICE_KERNEL, "concurrent_kernel": DEVICE_KERNEL, "mtia_ccp_events": DEVICE_KERNEL,
    "hpu_op": DEVICE_KERNEL, "gpu_memcpy": DEVICE_COPY, "memcpy": DEVICE_COPY, "gpu_memset": DEVICE_SET,
    "memset": DEVICE_SET, "cpu_instant_event": ALLOCATION,
    "cuda_runtime": LAUNCH, "runtime": LAUNCH, "cuda_driver": LAUNCH, "hip_runtime": LAUNCH, "hip_driver": LAUNCH,
    "xpu_runtime": LAUNCH, "xpu_driver": LAUNCH, "mtia_runtime": LAUNCH, "glow_runtime": LAUNCH,
    "privateuse1_runtime": LAUNCH, "privateuse1_driver": LAUNCH,
    "fwdbwd": FLOW, "forward_backward": FLOW,
    # Duplicates (annotations as the device saw them), or events without work.
    "gpu_user_annotation": IGNORED, "overhead": IGNORED, "trace": IGNORED, "cuda_sync": IGNORED, "cuda_event": IGNORED,
    "cuda_profiler_range": IGNORED, "ac2g": IGNORED, "async": IGNORED, "async_cpu_to_gpu": IGNORED,
    "async_gpu": IGNORED, "collective_comm": IGNORED, "external_correlation": IGNORED, "hardware_counters": IGNORED,
    "mtia_insight": IGNORED, "mtia_counters": IGNORED, "xpu_scope_profiler": IGNORED, "xpu_sync": IGNORED,
}  # fmt: skip
_RAW = msgspec.Raw(b"")


def _field(name: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=name)


class _Communication(msgspec.Struct, gc=False):
    """Fields that describe a collective. Sizes are numbers of elements, of this rank."""

    collective: Any = _field("Collective name")
    dtype: Any = None
    sent: Any = _field("In msg nelems")
    received: Any = _field("Out msg nelems")
    size: Any = _field("Group size")
    group: Any = _field("Process Group Name")
    description: Any = _field("Process Group Description")
    seq: Any = _field("Seq")


class OperatorArgs(_Communication, gc=False):
    external: Any = _field("External id")
    index: Any = _field("Ev Idx")
    seq_nr: Any = _field("Sequence number")
    forward: Any = _field("Fwd thread id")
    shapes: msgspec.Raw = _field("Input Dims", _RAW)
    types: msgspec.Raw = _field("Input type", _RAW)
    strides: msgspec.Raw = _field("Input Strides", _RAW)
    concrete: msgspec.Raw = _field("Concrete Inputs", _RAW)
    stack: Any = _field("Call stack")
    flops: Any = None


class DeviceArgs(_Communication, gc=False):
    device: Any = None
    context: Any = None
    stream: Any = None
    correlation: Any = None
    external: Any = _field("External id")
    external_2021: Any = _field("external id")
    registers: Any = _field("registers per thread")
    shared_memory: Any = _field("shared memory")
    occupancy: Any = _field("est. achieved occupancy %")
    node: Any = _field("graph node id")
    bytes: Any = None
    direction: Any = None  # of a copy by MTIA
    length: Any = _field("size")  # its bytes
    grid: msgspec.Raw = _RAW
    block: msgspec.Raw = _RAW


class LaunchArgs(msgspec.Struct, gc=False):
    correlation: Any = None
    kernel: str | None = None
    node: Any = _field("graph node id")
    external: Any = _field("External id")


class AllocationArgs(msgspec.Struct, gc=False):
    kind: Any = _field("Device Type")
    device: Any = _field("Device Id")
    address: Any = _field("Addr")
    bytes: Any = _field("Bytes")
    allocated: Any = _field("Total Allocated")
    reserved: Any = _field("Total Reserved")


class MetadataArgs(msgspec.Struct, gc=False):
    name: Any = None
    labels: Any = None


DECODERS: dict[type, Any] = {
    kind: msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    for kind in (OperatorArgs, DeviceArgs, LaunchArgs, AllocationArgs, MetadataArgs)
}


def of_category(text: str | None) -> int | None:
    """Return the kind of events of a category, None for an unknown category."""
    return _KINDS.get((text or "").lower())

# SPDX-License-Identifier: Apache-2.0
"""Names of CUDA API calls by the numbers that CUPTI gives them (cbid), and the kind of a CUDA or HIP call by its name.

Databases of nvprof have only the numbers, which never change once assigned. Source: cupti_runtime_cbid.h and
cupti_driver_cbid.h. The calls that programs spend time in are listed; others are named "runtime call 7".

>>> api_name("runtime", 211), api_name("driver", 2)
('cudaLaunchKernel', 'driver call 2')
"""

from __future__ import annotations

import re

_RUNTIME = {
    10: "cudaGetLastError", 13: "cudaLaunch", 16: "cudaSetDevice", 17: "cudaGetDevice", 20: "cudaMalloc",
    21: "cudaMallocPitch", 22: "cudaFree", 25: "cudaMallocHost", 26: "cudaFreeHost", 27: "cudaHostAlloc",
    30: "cudaMemGetInfo", 31: "cudaMemcpy", 32: "cudaMemcpy2D", 39: "cudaMemcpyToSymbol", 40: "cudaMemcpyFromSymbol",
    41: "cudaMemcpyAsync", 44: "cudaMemcpy2DAsync", 47: "cudaMemcpyToSymbolAsync", 48: "cudaMemcpyFromSymbolAsync",
    49: "cudaMemset", 50: "cudaMemset2D", 51: "cudaMemsetAsync", 52: "cudaMemset2DAsync", 126: "cudaThreadSynchronize",
    129: "cudaStreamCreate", 131: "cudaStreamSynchronize", 132: "cudaStreamQuery", 133: "cudaEventCreate",
    134: "cudaEventCreateWithFlags", 135: "cudaEventRecord", 136: "cudaEventDestroy", 137: "cudaEventSynchronize",
    138: "cudaEventQuery", 144: "cudaMemcpy3D", 145: "cudaMemcpy3DAsync", 147: "cudaStreamWaitEvent",
    152: "cudaHostRegister", 160: "cudaMemcpyPeer", 161: "cudaMemcpyPeerAsync", 165: "cudaDeviceSynchronize",
    198: "cudaStreamCreateWithFlags", 200: "cudaDeviceGetAttribute", 202: "cudaStreamCreateWithPriority",
    206: "cudaMallocManaged", 211: "cudaLaunchKernel", 251: "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    269: "cudaLaunchCooperativeKernel", 272: "cudaLaunchCooperativeKernelMultiDevice", 284: "cudaLaunchHostFunc",
    311: "cudaGraphLaunch", 317: "cudaStreamIsCapturing", 370: "cudaEventRecordWithFlags", 373: "cudaMallocAsync",
    375: "cudaFreeAsync", 430: "cudaLaunchKernelExC",
}  # fmt: skip
_DRIVER = {
    9: "cuDeviceGetAttribute", 17: "cuCtxSynchronize", 115: "cuLaunch", 116: "cuLaunchGrid", 117: "cuLaunchGridAsync",
    119: "cuEventRecord", 121: "cuEventSynchronize", 126: "cuStreamSynchronize", 243: "cuMemAlloc", 245: "cuMemFree",
    276: "cuMemcpyHtoD", 277: "cuMemcpyHtoDAsync", 278: "cuMemcpyDtoH", 279: "cuMemcpyDtoHAsync", 280: "cuMemcpyDtoD",
    281: "cuMemcpyDtoDAsync", 295: "cuStreamWaitEvent", 307: "cuLaunchKernel",
}  # fmt: skip
_NAMES = {"runtime": _RUNTIME, "driver": _DRIVER}

API_KINDS = ("launch", "memcpy", "memset", "malloc", "free", "sync", "event", "graph", "other")
STARTS_WORK = (0, 1, 2)  # kinds of calls that start work on a device
_ONE_KERNEL = re.compile(
    r"(?:(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Grid|ByPtr|(?:Cooperative)?Kernel(?:ExC?)?)?(?:Async)?|"
    r"urEnqueueKernelLaunch(?:Exp)?)(?:_pts[dz])?(?:_v\d+)?"
)
# The first pattern that matches decides.
_KINDS = (
    ("graph", r"^(?:cuda|cu)Graph"),
    ("launch", r"^(?:cuda|cu)Launch|^hip\w*Launch"),
    ("memcpy", r"^(?:cuda|cu|hip)Memcpy"),
    ("memset", r"^(?:cuda|cu|hip)Memset"),
    ("sync", r"Synchronize"),
    ("event", r"^(?:cuda|cu|hip)(?:Event|StreamWaitEvent)"),
    ("malloc", r"^(?:cuda|cu|hip)(?:Mem)?(?:Malloc|Alloc|HostAlloc|HostMalloc|HostRegister)"),
    ("free", r"^(?:cuda|cu|hip)(?:Mem)?(?:Free|HostFree|HostUnregister)"),
)


def without_version(name: str) -> str:
    """Return the name of an API call without the version that CUPTI appends.

    >>> without_version("cudaLaunchKernel_v7000")
    'cudaLaunchKernel'
    """
    return name.partition("_v")[0]


def starts_one_kernel(name: str) -> bool:
    """Return whether a call starts exactly one kernel.

    >>> [starts_one_kernel(n) for n in ("cudaLaunchKernel_ptsz_v7000", "hipModuleLaunchKernel", "cudaLaunchHostFunc")]
    [True, True, False]
    """
    return _ONE_KERNEL.fullmatch(name) is not None


def api_name(library: str, number: int) -> str:
    """Return the name of a call of "runtime" or "driver" by its cbid; for one that is not listed, a text with both."""
    return _NAMES.get(library, {}).get(number, f"{library} call {number}")


def api_kind(name: str) -> int:
    """Return the kind of a call, as an index into API_KINDS. A graph launch starts kernels: it is a launch.

    >>> [API_KINDS[api_kind(name)] for name in ("cudaLaunchKernelExC_v11060", "cuMemcpyAsync", "cuCtxSynchronize")]
    ['launch', 'memcpy', 'sync']
    >>> API_KINDS[api_kind("cudaGraphLaunch_v10000")], API_KINDS[api_kind("cudaEventSynchronize_v3020")]
    ('launch', 'sync')
    """
    if "GraphLaunch" in name:
        return API_KINDS.index("launch")
    for kind, pattern in _KINDS:
        if re.search(pattern, name):
            return API_KINDS.index(kind)
    return API_KINDS.index("other")

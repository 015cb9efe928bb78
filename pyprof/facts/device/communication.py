# SPDX-License-Identifier: Apache-2.0
"""Classification of GPU events as communication: kernels of collectives and of messages, and copies between devices.

The kind of an event's name decides (`pyprof.costs.kernels`), for aggregation, reports and rules alike. A copy between
devices is communication though no kernel runs; `kernel_busy` counts kernels only. Whose kernel it is, LIBRARIES says
of its name: the first pattern that matches. Add a library: one row.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.core.model import Bools
from pyprof.costs.kernels import COMMUNICATION
from pyprof.store.files import Store

COPIES, OTHER = "copies between devices", "other"
# Name, pattern in lower case, source of the names.
LIBRARIES = (
    ("NCCL EP", r"nccl_ep::|c10d::nccl_extension", "NCCL's expert parallelism"),
    ("MSCCL", r"mscclpp|msccl", "MSCCL and MSCCL++"),
    ("RCCL", r"rccl", "RCCL's generic kernel; the others have NCCL's names"),
    ("NCCL", r"nccl", "NCCL src/device, also of RCCL"),
    ("DeepEP", r"deep_?ep|dpsk::ep|hybrid_ep::", "DeepEP csrc/kernels and its forks"),
    ("NVSHMEM", r"nvshmem|_on_stream_kernel", "NVSHMEM's own kernels, and those of calls on a stream"),
    (
        "expert parallelism",
        r"pplx::|mori::|moe_ep|moe_comm|moea2a|dispatch_combine|ep(dispatch|combine)|moe_alltoall",
        "pplx-kernels, MoRI, FlashInfer, TensorRT-LLM",
    ),
    ("user buffers", r"userbuffers|ubuf_", "TransformerEngine userbuffers.cu"),
    ("symmetric memory", r"symmetric_memory|multimem|symm_mem", "PyTorch CUDASymmetricMemoryOps.cu, NVLink SHARP"),
    (
        "custom all-reduce",
        r"cross_device_reduce|all_?reduce|(one|two)_?shot|lamport|all_?gather|reduce_?scatter|barrier_all|rsag",
        "vLLM, SGLang, TensorRT-LLM, FlashInfer, AITER",
    ),
    (COPIES, r"(memcpy|^copy) ?\w* ?(ptop|p2p|peer)|memcpypeer", "CUPTI, Nsight, roctracer"),
)


def names(store: Store) -> Bools:
    """Return, by number of a kernel's or copy's name, whether such events are communication."""
    return store.cached("communication", lambda: _names(store))


def _names(store: Store) -> Bools:
    kinds = dict(store.rows("select id, kind from kernel_name"))
    return np.array([kinds.get(i) in COMMUNICATION for i in range(max(kinds, default=0) + 1)], bool)


def library(name: str) -> str:
    """Return the library of a kernel or copy that is communication, by its name.

    >>> library("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), library("void deep_ep::internode_ll::combine<true, 9>")
    ('NCCL', 'DeepEP')
    >>> library("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(P)"), library("all-reduce-start.2")
    ('custom all-reduce', 'other')
    """
    lower = name.lower()
    return next((one for one, pattern, _ in LIBRARIES if re.search(pattern, lower)), OTHER)


def libraries(store: Store) -> dict[int, str]:
    """Return the library of each number of a name that is communication."""
    mask = names(store)
    rows = store.rows("select id, name from kernel_name")
    return {number: library(name) for number, name in rows if mask[number]}

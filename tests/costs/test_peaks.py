# SPDX-License-Identifier: Apache-2.0
"""No kernel of a recording does more than its chip can: what is above a peak has a reason."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from pyprof.core.model import Arg, Call, Tensor
from pyprof.costs.columns import COLUMNS, View
from pyprof.costs.cost import lookup_or_default
from pyprof.costs.hardware import machine
from pyprof.parse import loader
from pyprof.prof import table
from pyprof.profiles import Profile
from tests import kineto

# Recordings, with the chip where the recording does not name it.
RECORDINGS = {
    "kineto/resnet50_v100_6steps.pt.trace.json.gz": None,
    "kineto/dlrm_v100_8ranks.tar.gz": None,
    "kineto/h100_bert_small.json.gz": None,
    "kineto/mi300_resnet_act_checkpoint.json.gz": None,
    "kineto/nccl_a100_rank0of2.json.gz": None,
    "kineto/mi300_sglang_decode": None,
    "kineto/mi300_vllm_prefilldecode_piecewise": "MI300X",
    "nsys/cifar_rtx2070_pyprof_markers.sqlite": None,
    "nsys/h100_2gpu_1s.sqlite": "H100 SXM",
    "nvprof/transformer_lm/net.sql": None,
}
# The bandwidth of the last level of cache over that of the memory: 2.1 of 0.9 TB/s on a V100 (Jia et al.,
# arXiv 1804.06826), some 5.6 of 3.35 on an H100, 17 of 5.3 on an MI300X (AMD's CDNA 3 white paper).
CACHE = 3.3


SMALL = (
    "kineto/h100_bert_small.json.gz",
    "nsys/cifar_rtx2070_pyprof_markers.sqlite",
    "nvprof/transformer_lm/net.sql",
)


@pytest.mark.parametrize("name", [
    name if name in SMALL else pytest.param(name, marks=pytest.mark.long) for name in RECORDINGS
])  # fmt: skip
def test_no_kernel_is_above_a_peak_without_a_reason(data: Path, name: str) -> None:
    profile = Profile(loader.load(data / name), False)
    chip = RECORDINGS[name]
    view = View(profile.rows, machine.named(chip) if chip else profile.hardware)
    frame = table.frame(view, [COLUMNS[key] for key in ("kernel", "op", "sil", "bytes", "gbs", "eff", "effwhy", "hfu")])
    (bandwidth,) = {gpu.bandwidth for gpu in view.hardware.devices.values()} or {view.hardware.every.bandwidth}
    fast = frame["gbs"].to_numpy(float) * 1e9 > CACHE * bandwidth
    above = np.round(frame["eff"].to_numpy(float), 1) > 100
    silent = frame["effwhy"].isna() | frame["effwhy"].astype(str).str.startswith("not explained")
    assert frame[fast | above & silent].drop_duplicates(["kernel", "op"]).to_dict("records") == []
    algorithm = frame["effwhy"].astype(str).str.contains("fewer multiplications than the definition")
    assert not (algorithm & frame[["eff", "hfu"]].notna().any(axis=1)).any()
    assert ((frame["effwhy"].dropna() != "-") & ~algorithm).sum() == above.sum()


TABLE, ROWS = Tensor((10**9,), "float32"), Tensor((768,), "int64")


@pytest.mark.parametrize(
    ("operator", "tensors", "size"),
    [
        ("fbgemm::split_embedding_codegen_lookup_adagrad_function", (TABLE, ROWS), None),
        ("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>", (TABLE,), None),
        ("mine::read_some", (TABLE, ROWS), None),  # indices beside another tensor
        ("aten::index", (TABLE,), None),  # its list of indices was not recorded
        ("triton_poi_fused_0", (ROWS, TABLE), None),
        ("fbgemm::bounds_check_indices", (ROWS,), 8 * 768),
        ("mine::warp", (TABLE,), 4 * 10**9),
        ("c10d::_allgather_base_x", (TABLE,), 4 * 10**9),
    ],
)
def test_what_indices_select_is_not_counted_as_a_whole(
    operator: str, tensors: tuple[Tensor, ...], size: int | None
) -> None:
    assert lookup_or_default(Call("aten", operator, tuple(Arg("", x) for x in tensors))).bytes == size


@pytest.mark.parametrize(
    ("node", "strides", "read"),
    [
        ("MeanBackward1", None, 4),  # not recorded: at least one element
        ("MeanBackward1", [1, 1, 0, 0], 4 * 2 * 8),
        ("DivBackward0", None, 4 * 2 * 8 * 7 * 7),
    ],
)
def test_the_backward_of_a_mean_reads_an_expanded_gradient(
    tmp_path: Path, node: str, strides: list[int] | None, read: int
) -> None:
    """It divides the gradient, expanded to the shape of the mean's input, by a number of 8 bytes."""
    shape = [2, 8, 7, 7]
    args = {"Input Dims": [shape, []], "Input type": ["float", "long int"]}
    if strides is not None:
        args["Input Strides"] = [[8, *strides[1:]], []]
    events = [
        kineto.op("aten::mean", 0, 900, seq=3),
        kineto.op(node, 2000, 2900, 3, 1, tid=102),
        kineto.op("aten::div", 2100, 2800, tid=102, **args),
        kineto.launch(2200, 2300, 5, tid=102),
        kineto.kernel("vectorized_elementwise_kernel", 2400, 2500, 5),
    ]
    (row,) = Profile(loader.load(kineto.write(tmp_path / "t.json", events)), False).table.to_dict("records")
    assert row["bytes"] == read + 8 + 4 * 2 * 8 * 7 * 7


@pytest.mark.long
def test_the_backward_of_a_mean_moves_what_the_raw_trace_says(data: Path) -> None:
    """Of ResNet-50: as many bytes as the input of each mean has, and 12 more: one element read, and the number."""
    path = data / "kineto/resnet50_v100_6steps.pt.trace.json.gz"
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    sizes = [
        4 * math.prod(one["args"]["Input Dims"][0]) for one in raw
        if one.get("name") == "aten::mean" and one["args"].get("Sequence number") is not None
    ]  # fmt: skip
    table = Profile(loader.load(path), False).table
    rows = table[(table["op"] == "aten::mean") & (table["dir"] == "bprop")]
    assert sorted(rows["bytes"]) == sorted(size + 12 for size in sizes)
    assert (rows["eff"] < 100).all()

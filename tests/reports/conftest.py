# SPDX-License-Identifier: Apache-2.0
"""Recordings that several tests of reports look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof import profiles
from tests.build import Kernel, Recording, call, recording, write_capture

MM = call("torch.mm", (64, 32), (32, 16), module="net.first", trace=("net.py:1", "run.py:9"))
RELU = call("torch.relu", (64, 16), module="net.first.act", trace=("net.py:2", "run.py:9"))
LOSS = call("torch.nn.functional.cross_entropy", (64, 16), (64,), trace=("run.py:10",))


def small() -> Recording:
    """Two steps: tensor cores and a plain product, a pointwise kernel, copies, a set, a wait, a file call, a kernel
    outside of operators and one without a launch record; a second device in the second step."""
    step = f"""
enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
    wait 30
file 20 read
> 25 size=4096 copy_kind=1 c
{MM}
    > 70 grid=40,1,1 block=128,1,1 volta_h884gemm_64x64_ldg8_nn
    > 9 size=64 s
    > 30 stream=8 volta_sgemm_128x64_nn
{RELU}
    > 12 grid=200,1,1 block=256,1,1 void at::native::vectorized_elementwise_kernel<4, f, N>(int)
{LOSS}
    > 8 mystery
api 40 cudaStreamSynchronize_v3020
"""
    out = recording(
        step + step.replace("block=256", "device=1 block=256") + "> 6 mystery\n> 5 correlation=none mystery"
    )
    first = min(r.start for r in out.ranges)
    middle = [r.start for r in out.ranges if r.text.startswith("enumerate")][1]
    out.steps = [(0, first, middle), (1, middle, max(k.end for k in out.kernels))]
    return out


@pytest.fixture(scope="session")
def prof(tmp_path_factory: pytest.TempPathFactory) -> profiles.Profile:
    """`small`, loaded."""
    return profiles.load(write_capture(tmp_path_factory.mktemp("reports") / "small.sqlite", small()))


@pytest.fixture(scope="session")
def with_peers(tmp_path_factory: pytest.TempPathFactory) -> profiles.Profile:
    """`small` with a collective and copies to another device: beside a kernel, beside the collective and alone."""
    what = small()
    for at in (min(kernel.start for kernel in what.kernels) + 5, what.steps[1][1] + 6):
        for begin, dur, name, more in (
            (0, 60, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", {}), (50, 20, "c", {"size": 512, "copy_kind": 10}),
            (2, 9, "c", {"size": 64, "copy_kind": 10}), (30, 30, "c", {"size": 64, "copy_kind": 1}),
        ):  # fmt: skip
            stream = 30 + len(what.kernels)
            what.kernels.append(Kernel(name, at + begin, at + begin + dur, stream=stream, **more))
    return profiles.load(write_capture(tmp_path_factory.mktemp("reports") / "peers.sqlite", what))


CPU = f"""
op seq=0 {MM}
    op seq=0 aten::mm
        wait 50
op {RELU}
    op aten::relu
        wait 20
op {RELU}
    op aten::relu
        wait 40
"""


@pytest.fixture(scope="session")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> profiles.Profile:
    """A recording without a GPU."""
    path: Path = tmp_path_factory.mktemp("reports") / "cpu.sqlite"
    return profiles.load(write_capture(path, recording(CPU)))

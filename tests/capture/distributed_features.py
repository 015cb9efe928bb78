# SPDX-License-Identifier: Apache-2.0
"""Features that need more than one process, as a program of one rank; test_features_processes.py starts the ranks."""

from __future__ import annotations

import copy
import json
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pyprof.capture.instrument.targets import COLLECTIVES
from tests.waiting import HANG

from .features import Features, check

features = Features()
Tensor = torch.Tensor


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def train(net: nn.Module, steps: int = 2) -> list[Any]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.full((2, 4), float(step + dist.get_rank() + 1))
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [losses, *(p.detach() for p in net.parameters())]


@features("collectives", *(f"torch.distributed.{name}" for name in COLLECTIVES if hasattr(dist, name)))
def collectives() -> Any:
    rank, world = dist.get_rank(), dist.get_world_size()
    here = torch.arange(4.0) + rank
    parts = [torch.zeros(4) for _ in range(world)]
    objects: list[Any] = [None] * world
    mine: list[Any] = [None]
    out: list[Any] = [here, parts, objects, mine]
    dist.all_reduce(here)
    dist.all_gather(parts, here)
    dist.all_gather_into_tensor(whole := torch.zeros(4 * world), here)
    dist.broadcast(here, src=0)
    dist.reduce(here, dst=0, op=dist.ReduceOp.MAX)
    dist.all_to_all_single(exchanged := torch.zeros(4), here)
    dist.barrier()
    dist.monitored_barrier()
    dist.gather(here, parts if rank == 0 else None, dst=0)
    dist.scatter(scattered := torch.zeros(4), parts if rank == 0 else None, src=0)
    dist.all_gather_object(objects, {"rank": rank})
    dist.gather_object(rank, objects if rank == 0 else None)
    dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None)
    dist.broadcast_object_list(shared := [rank])
    peer = 1 - rank
    if rank == 0:
        dist.send(here, peer)
        dist.recv(here, peer)
        dist.send_object_list([1], peer)
        dist.recv_object_list(received := [None], peer)
    else:
        dist.recv(here, peer)
        dist.send(here, peer)
        dist.recv_object_list(received := [None], peer)
        dist.send_object_list([2], peer)
    sending, arrived = dist.isend(here, peer), torch.zeros(4)
    dist.irecv(arrived, peer).wait()
    sending.wait()
    both = torch.zeros(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, here, peer), dist.P2POp(dist.irecv, both, peer)]):
        work.wait()
    work = dist.all_reduce(here, async_op=True)
    work.wait()
    return [*out, whole, exchanged, scattered, shared, received, arrived, both, rest(here, world)]


def rest(here: Tensor, world: int) -> list[Any]:
    """Those that gloo, or an older torch, may not have: called as a program calls them, or not seen as calls."""
    piece, flat, zero = torch.zeros(4 // world), torch.zeros(4 * world), torch.zeros
    pieces, halves = [zero(4 // world) for _ in range(world)], list(here.chunk(world))
    return [piece, flat, pieces, *map(attempt, (
        lambda: dist.reduce_scatter(piece, halves),
        lambda: dist.reduce_scatter_tensor(piece, here),
        lambda: dist.reduce_scatter_single(piece, here),
        lambda: dist.all_gather_single(flat, here),
        lambda: dist.all_to_all(pieces, halves),
        lambda: dist.all_reduce_coalesced([here]),
        lambda: dist.all_gather_coalesced([[zero(4)] for _ in range(world)], [here]),
    ))]  # fmt: skip


def attempt(function: Any) -> Any:
    """Wait for a collective, or say the error."""
    try:
        given = function()
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError) as error:
        return type(error).__name__
    if isinstance(given, dist.Work):
        given.wait()
    return None


@features("DistributedDataParallel", "torch.nn.functional.linear", "torch.optim.AdamW.step", long=True)
def ddp() -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    net = nn.parallel.DistributedDataParallel(model())
    out = train(net)
    with net.no_sync():
        net(torch.ones(1, 4)).sum().backward()
    hooked = nn.parallel.DistributedDataParallel(model(), static_graph=True)
    hooked.register_comm_hook(None, fp16_compress_hook)
    with hooked.join():
        out += train(hooked, 2 + dist.get_rank())
    clone = copy.deepcopy(net.module)
    return [*out, *(p.grad for p in net.parameters()), clone(torch.ones(1, 4))]


@features("fully_shard", "torch.nn.functional.linear", "torch.distributed.all_gather_", "torch.optim.AdamW.step")
def fsdp() -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    out = []
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16)):
        net = model()
        for layer in net:
            fully_shard(layer, mp_policy=policy)
        out += train(fully_shard(net, mp_policy=policy))
        out.append([type(p).__name__ for p in net.parameters()])
    return out


@features("DTensor and tensor parallel", "torch.matmul", "Tensor.__add__", "torch.nn.functional.linear")
def dtensor() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = distribute_tensor(torch.arange(16.0).reshape(4, 4), mesh, [Shard(0)])
    y = torch.matmul(x, x.redistribute(mesh, [Replicate()])) + 1
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out = net(torch.ones(2, 4))
    out.sum().backward()
    return [y, y.full_tensor(), out, *(p.grad for p in net.parameters())]


@features("ZeroRedundancyOptimizer", "torch.optim.ZeroRedundancyOptimizer.step", long=True)
def zero() -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return [p.detach() for p in net.parameters()]


def main(rank: int, world: int, folder: Path) -> None:
    """Check every feature; what is wrong with one goes to a file of this rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
                            timeout=timedelta(seconds=HANG))  # fmt: skip
    said = {}
    for name, feature in features.items():
        place = folder / f"rank{rank}" / name.replace(" ", "_")
        place.mkdir(parents=True)
        try:
            check(feature, place)
            said[name] = ""
        except AssertionError as error:
            said[name] = f"{type(error).__name__}: {error}" if str(error) else "AssertionError"
    (folder / f"rank{rank}.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()

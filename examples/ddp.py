# SPDX-License-Identifier: Apache-2.0
"""Train with DistributedDataParallel on several processes: gloo on CPU, nccl on GPU. One recording per rank.

    PYPROF_OUTPUT=net.sqlite python examples/ddp.py              two ranks that the script starts itself
    torchrun --nproc-per-node 2 -m pyprof run examples/ddp.py    the launcher starts them

Both write net.rank0.sqlite and net.rank1.sqlite. Look at: c10d::allreduce_ in the backward, where DDP averages the
gradients of a bucket; all_reduce of the loss; which rank waits for which.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pyprof

WIDTH, CLASSES, BATCH = 128, 10, 32


def train(steps=3):
    rank = dist.get_rank()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(0)  # the same model everywhere
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)).to(device)
    model = DistributedDataParallel(net, device_ids=[device] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)  # other data on each rank
    x, labels = torch.randn(BATCH, WIDTH, device=device), torch.randint(CLASSES, (BATCH,), device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        pyprof.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"ddp on {device.type}: loss {mean.item() / dist.get_world_size():.4f}")


def main():
    """One rank; the launcher's variables say which."""
    pyprof.init()  # here, not above: a child of multiprocessing that imports this file again is no rank yet
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train()
    dist.barrier()  # no rank takes the group down while another still uses it
    dist.destroy_process_group()


def start(rank, size, port):
    """A rank that this script has started: what torchrun would set."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        with socket.socket() as probe:  # a free port
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        size = min(2, torch.cuda.device_count()) if torch.cuda.is_available() else 2
        torch.multiprocessing.spawn(start, (size, port), nprocs=size)

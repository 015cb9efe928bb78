# SPDX-License-Identifier: Apache-2.0
"""Record the traces of this folder anew, with torch.profiler on a CPU.

    python examples/data/make.py [FOLDER]        default: this folder

`trace.pt.trace.json.gz` is one process: three steps of a small network for images, with shapes, stacks and memory, its
batches from a DataLoader. `before` and `after` are two runs of two ranks each, with DistributedDataParallel over gloo;
`after` updates all parameters in one call per operation (`foreach=True`). Paths of the machine that records are cut to
what follows its site-packages or this repository.
"""

import gzip
import socket
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).resolve().parent
STEPS, BATCH = 3, 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(8 * 15 * 15, 10)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


def record(path, model, foreach, stacks):
    """Train for some steps and write the trace of those after the first two."""
    data = TensorDataset(torch.randn((STEPS + 2) * BATCH, 3, 32, 32), torch.randint(10, ((STEPS + 2) * BATCH,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=foreach)
    criterion = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "trace.json"
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=STEPS),
            on_trace_ready=lambda done: done.export_chrome_trace(str(raw)),
            record_shapes=True,
            profile_memory=stacks,
            with_stack=stacks,
        ) as profiler:
            for images, labels in DataLoader(data, batch_size=BATCH):
                optimizer.zero_grad()
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                profiler.step()
        text = raw.read_text(encoding="utf-8")
    for place in (Path(torch.__file__).parents[1], HERE.parents[1], raw.parent, Path(sys.base_prefix)):
        text = text.replace(f"{place}/", "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.replace(socket.gethostname(), "host").encode(), 9, mtime=0))


def rank_of_two(rank, port, folder):
    """One rank: both runs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=rank)
    for name, foreach in (("before", False), ("after", True)):
        torch.manual_seed(0)
        model = DistributedDataParallel(Net())
        record(folder / name / f"rank{rank}.pt.trace.json.gz", model, foreach, stacks=False)
    dist.barrier()
    dist.destroy_process_group()


def main(folder=HERE):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    record(folder / "trace.pt.trace.json.gz", Net(), foreach=False, stacks=True)
    with socket.socket() as probe:  # a free port
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(rank_of_two, (port, folder), nprocs=2)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))

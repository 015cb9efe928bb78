#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs before and after a change, on this machine: the saving that the first finding predicted, and what the
change gave.

    python benchmarks/pairs.py [BEFORE AFTER ...] >> docs/accuracy.md

Each program is recorded twice, once with a fault and once without it. BEFORE and AFTER: recordings of programs of your
own, two for each pair. Run it on a quiet machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyprof  # noqa: E402
from pyprof.rules.context import Run  # noqa: E402
from pyprof.rules.evaluation import BOUNDS, evaluate  # noqa: E402

PROGRAM = """\
import gc, re, sys, torch
from torch import nn
from torch.nn import functional as F
fault = {fault!r}
torch.manual_seed(0)
torch.set_num_threads(1)
words = "the quick brown fox jumps over the lazy dog".split()
names = {{word: number for number, word in enumerate(words)}}
text = " ".join(words * 6_000)

def tokenize(text):
    return torch.tensor([names[word.lower()] for word in re.findall("[a-z]+", text)][:4096]).view(64, 64)

class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()
    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        if fault != "a loop in a backward":
            return grad * (x > 0)
        out = torch.empty_like(grad)
        for row in range(len(x)):
            for column in range(0, 512, 64):
                part = slice(column, column + 64)
                out[row, part] = grad[row, part] * (x[row, part] > 0)
        return out

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(60_000, 64, sparse=fault != "dense gradients")
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6))
        self.head = nn.Linear(512, 16)
    def forward(self, x, tokens):
        x = x + self.table(tokens).mean(1).repeat(1, 8)
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(Relu.apply(x))

def forward(x, own):
    if fault == "a loop over samples":
        return torch.cat([net(x[row : row + 1], own[row : row + 1]) for row in range(len(x))])
    return net(x, own)

net = Net()
data = torch.randn(64, 512)
if fault == "float64":
    net, data = net.double(), data.double()
looped = fault == "an optimizer's loop"
others = [one for one in net.parameters() if one is not net.table.weight]
optimizer = torch.optim.AdamW(others, fused=not looped, foreach=False if looped else None)
tables = torch.optim.SGD([net.table.weight], lr=0.1)
tokens, target = tokenize(text), torch.randint(0, 16, (64,))
torch.autograd.set_detect_anomaly(fault == "anomaly mode")

held_out, right = torch.randn(96, 512, dtype=data.dtype), 0

def evaluate():
    own = torch.cat([tokens, tokens[:32]])
    return int((net(held_out, own).argmax(1) == 0).sum())

def step(x):
    global right
    own = tokenize(text) if fault == "a tokenizer in the loop" else tokens
    optimizer.zero_grad()
    tables.zero_grad()
    if fault == "a second forward":
        net(x, own)
    loss = F.cross_entropy(forward(x, own), target)
    loss.backward()
    optimizer.step()
    tables.step()
    if fault == "evaluation with graphs":
        right += evaluate()
    else:
        with torch.no_grad():
            right += evaluate()
    if fault == "gc.collect()":
        gc.collect()
    if fault == "torch.save":
        torch.save(net.state_dict(), {path!r})

for _ in range(20):
    step(data)
print(right)
"""
FAULTS = (
    "float64", "dense gradients", "an optimizer's loop", "anomaly mode", "a tokenizer in the loop", "a second forward",
    "evaluation with graphs", "gc.collect()", "torch.save", "a loop over samples", "a loop in a backward",
)  # fmt: skip


def record(fault: str, folder: Path) -> Path:
    """Record the program with a fault, or without one."""
    script, out = folder / "train.py", folder / f"{fault or 'none'}.sqlite".replace(" ", "_")
    script.write_text(PROGRAM.format(fault=fault, path=str(folder / "net.pt")))
    command = [sys.executable, "-m", "pyprof", "run", "--quiet", "-o", str(out), str(script)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return out


def row(name: str, before: Path, after: Path) -> str:
    """Return a row of the table: the first finding, what it predicted, and what the change gave."""
    profiles = [pyprof.load(path) for path in (before, after)]
    runs = [Run(profile.source()) for profile in profiles]
    steps = [run.wall / run.steps for run in runs]
    first = next((outcome for outcome in evaluate(runs[0].source) if outcome.finding is not None), None)
    saving = first.finding.saving if first and first.finding else None
    predicted = saving / runs[0].steps if saving is not None else None
    measured = steps[0] - steps[1]
    bound = "at most " if first and first.rule.id in BOUNDS else ""
    return (
        f"| {name} | {steps[0] / 1e6:.1f} | {first.rule.id if first else '-'} | "
        f"{'-' if predicted is None else f'{bound}{predicted / 1e6:.1f}'} | {measured / 1e6:.1f} |"
    )


def main() -> None:
    print(
        "\n## Programs before and after a change\n\nRecorded by `python benchmarks/pairs.py` on a machine of two cores "
        "without a GPU, torch with one thread, and\nfrom recordings of others. Times in ms a step.\n\n"
        "| change | step before | first finding | predicted | measured |\n|---|---|---|---|---|"
    )
    own = [Path(one) for one in sys.argv[1:]]
    for before, after in zip(own[::2], own[1::2]):
        print(row(f"{before.name} to {after.name}", before, after))
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:  # both at a time: a machine is not as fast all the time
            print(row(f"without {fault}", *(record(one, Path(folder)) for one in (fault, ""))), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording adds to a call and to a training step.

    python benchmarks/capture.py --rounds 15

Every round runs the same work in each mode, in turn, on one thread, and takes the CPU time of the process; a figure is
the median over the rounds of (mode less nothing) of the same round. The modes: PyProf initialised but not recording,
call sites only, call sites and operators (the default), calls as NVTX ranges with nobody listening, torch.profiler
with shapes, and with shapes and stacks, and the method of the original PyProf: the whole Python stack and a text of all
arguments at every call, written here in a few lines and put on the same functions. Closing a window, or torch.profiler,
costs extra and is printed apart, per unit of work, with the file that is written: ours, or the JSON trace of torch.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.nn.functional as F

import pyprof
from pyprof.capture import controller
from pyprof.capture.core import worker_log
from pyprof.capture.instrument import targets
from pyprof.capture.instrument.patch import Registry
from pyprof.capture.instrument.recorder import recorder
from pyprof.capture.session import Session

AIM = 1 / 8  # of what the original's method adds to a call
IDLE_NS, SITE_NS = 150, 1500  # per call, initialised and with sites
IDLE_SHARE, SITES_SHARE = 0.01, 0.03  # of a step, the second for the medium transformer
INIT_MS = 50
MEDIUM = "transformer, 4 layers of 128"
_CLOSING: dict[str, list[int]] = {}  # CPU time of closing the window, by mode
_CALLS: list[int] = []  # calls recorded in the window that was closed last


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def idle() -> Iterator[None]:
    pyprof.init()
    try:
        yield
    finally:
        pyprof.shutdown()


@contextmanager
def _window(mode: str, operators: bool) -> Iterator[None]:
    controller.init_only()  # what stays between init and shutdown: an optimizer's step is one call
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
        session = Session(os.path.join(folder, "net.sqlite"), max_events=10**9)
        session.operators_given_up = not operators  # what a program with its own torch.profiler gets
        session.open()
        try:
            yield
        finally:
            _CALLS[:] = [sum(len(state.calls) // 6 for state in recorder.threads)]
            begin = process_time_ns()
            with redirect_stderr(StringIO()):
                session.close()
                session.write()
            _CLOSING.setdefault(mode, []).append(process_time_ns() - begin)
            session.forget()
            pyprof.shutdown()


def sites() -> Any:
    return _window("sites", operators=False)


def sites_and_operators() -> Any:
    return _window("sites + operators", operators=True)


@contextmanager
def ranges() -> Iterator[None]:
    pyprof.init(nvtx="registered")
    try:
        yield
    finally:
        pyprof.shutdown()


@contextmanager
def _torch_profiler(mode: str, **options: bool) -> Iterator[None]:
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)
    profiler.start()
    try:
        yield
    finally:
        begin = process_time_ns()
        profiler.stop()
        with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
            profiler.export_chrome_trace(os.path.join(folder, "trace.json"))
        _CLOSING.setdefault(mode, []).append(process_time_ns() - begin)


def shapes() -> Any:
    return _torch_profiler(SHAPES, record_shapes=True)


def shapes_and_stacks() -> Any:
    return _torch_profiler(STACKS, record_shapes=True, with_stack=True)


# The original's method (apex.pyprof.nvtx.nvmarker), without the NVTX calls that it ends in.


def stack_text() -> str:
    return str({"traceMarker": [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_stack()[:-2]]})


def argument_text(mod: str, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    records: list[dict[str, Any]] = []

    def add(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).split(".")[-1]
            records.append({"name": name, "type": "tensor", "shape": tuple(value.size()), "dtype": dtype})
        elif isinstance(value, (list, tuple)) and any(isinstance(item, (torch.Tensor, list)) for item in value):
            for item in value:
                add("", item)
        elif isinstance(value, (bool, int, float, str, list, tuple)):
            records.append({"name": name, "type": type(value).__name__, "value": value})

    for value in args:
        add("", value)
    for name, value in kwargs.items():
        add(name, value)
    return str({"mod": mod, "op": op, "args": records})


@contextmanager
def original() -> Iterator[None]:
    registry = Registry()
    inside = [False]

    def wrap(owner: Any, mod: str, name: str) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:  # the same calls as ours: the outermost
                return function(*args, **kwargs)
            inside[0] = True
            try:
                stack_text()
                argument_text(mod, name, args, kwargs)
                return function(*args, **kwargs)
            finally:
                inside[0] = False

        registry.replace(owner, name, call)

    for namespace in targets.namespaces():
        for name, _ in targets.functions(namespace):
            if not isinstance(getattr(namespace.module, name), type):
                wrap(namespace.module, namespace.mod, name)
    for name in targets.tensor_methods():
        wrap(torch.Tensor, "Tensor", name)
    try:
        yield
    finally:
        registry.undo()


IDLE, SITES, BOTH = "init, not recording", "sites", "sites + operators"
SHAPES, STACKS, ORIGINAL = "torch.profiler, shapes", "torch.profiler, + stacks", "original's method"
MODES: dict[str, Callable[[], Any]] = {
    "nothing": nothing,
    IDLE: idle,
    SITES: sites,
    BOTH: sites_and_operators,
    "NVTX, no listener": ranges,
    SHAPES: shapes,
    STACKS: shapes_and_stacks,
    ORIGINAL: original,
}


class Work(NamedTuple):
    """Something to run: `units` times per measurement; `calls` of it are seen at call level (0: counted)."""

    run: Callable[[], Any]
    units: int
    unit: str


def tiny_calls(depth: int) -> Callable[[], Any]:
    """Four calls on tensors of four elements, at a depth of so many Python frames of the user's."""
    x, y = torch.ones(4), torch.ones(4)

    def calls() -> None:
        torch.add(x, y)
        F.relu(x)
        x.mul(y)
        x + y

    def descend(left: int) -> None:
        if left:
            descend(left - 1)
        else:
            for _ in range(100):
                calls()

    return lambda: descend(depth - 5)


def lenet() -> Callable[[], Any]:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(6, 16, 5),
        torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(400, 120), torch.nn.ReLU(),
        torch.nn.Linear(120, 84), torch.nn.ReLU(), torch.nn.Linear(84, 10),
    )  # fmt: skip
    images, labels = torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
    return _training(model, lambda: F.cross_entropy(model(images), labels))


def cnn() -> Callable[[], Any]:
    def block(channels: int, out: int) -> list[torch.nn.Module]:
        return [torch.nn.Conv2d(channels, out, 3, 2, 1), torch.nn.BatchNorm2d(out), torch.nn.ReLU()]

    layers = [*block(3, 32), *block(32, 64), *block(64, 128), torch.nn.AdaptiveAvgPool2d(1)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128, 10))
    images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
    return _training(model, lambda: F.cross_entropy(model(images), labels))


def transformer(width: int, length: int) -> Callable[[], Any]:
    layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    tokens = torch.randn(4, length, width)
    return _training(model, lambda: model(tokens).square().mean())


def _training(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def works(scale: float) -> dict[str, Work]:
    """What is measured; `scale` shortens it."""

    def times(count: int) -> int:
        return max(1, round(count * scale))

    return {
        "tiny calls, stack depth 5": Work(tiny_calls(5), times(8), "call"),
        "tiny calls, stack depth 45": Work(tiny_calls(45), times(8), "call"),
        "LeNet, batch 16": Work(lenet(), times(10), "step"),
        "transformer, 4 layers of 64": Work(transformer(64, 32), times(5), "step"),
        MEDIUM: Work(transformer(128, 128), times(3), "step"),
        "CNN, 3 blocks, batch 8": Work(cnn(), times(3), "step"),
    }


def measure(mode: str, work: Work) -> int:
    """CPU time of the work in a mode, ns; a first run warms up."""
    gc.collect()
    with MODES[mode]():
        work.run()
        begin = process_time_ns()
        for _ in range(work.units):
            work.run()
        return process_time_ns() - begin


def compare(name: str, work: Work, rounds: int) -> str:
    """A table: time per unit in each mode, what that adds to nothing, and the share of the original's."""
    _CLOSING.clear()
    spent: dict[str, list[int]] = {mode: [] for mode in MODES}
    modes = list(MODES)
    calls = 0
    for number in range(rounds):
        for place in range(len(modes)):  # another order each time
            mode = modes[(place + number) % len(modes)]
            spent[mode].append(measure(mode, work))
            if mode == "sites":
                calls = _CALLS[0] // (work.units + 1)
    units = work.units * (calls if work.unit == "call" else 1)
    base = median(spent["nothing"]) / units
    added = {
        mode: median(a - b for a, b in zip(spent[mode], spent["nothing"])) / units
        for mode in modes
        if mode != "nothing"
    }
    closing = {mode: median(_CLOSING[mode]) / (work.units + 1) * work.units / units for mode in _CLOSING}
    lines = [f"{name}: {base / 1000:,.2f} us per {work.unit}, {calls} recorded calls per run"]
    lines.append(
        f"  {'':26}{'us per ' + work.unit:>14}{'added us':>12}{'added %':>9}{'added ns per call':>19}"
        f"{'x original':>12}{'closing us':>12}  aim"
    )
    for mode, extra in added.items():
        per_call = extra if work.unit == "call" else extra / max(calls, 1)
        row = f"  {mode:26}{(base + extra) / 1000:14,.2f}{extra / 1000:12,.2f}{100 * extra / base:9.1f}"
        row += f"{per_call:19,.0f}{extra / added[ORIGINAL]:12.3f}{closing.get(mode, 0) / 1000:12,.2f}"
        lines.append(f"{row}  {_aims(name, work, mode, per_call, base, added, closing)}".rstrip())
    return "\n".join(lines)


def _aims(
    name: str,
    work: Work,
    mode: str,
    per_call: float,
    base: float,
    added: dict[str, float],
    closing: dict[str, float],
) -> str:
    """What we want of a mode, and whether it is so."""
    aims: list[tuple[str, bool]] = []
    if mode == IDLE and work.unit == "call":
        aims.append((f"<= {IDLE_NS} ns per call", per_call <= IDLE_NS))
    if mode == IDLE and work.unit == "step":
        aims.append((f"<= {IDLE_SHARE:.0%}", added[mode] <= IDLE_SHARE * base))
    if mode == SITES:
        aims.append(("<= 1/8 of the original", added[mode] <= AIM * added[ORIGINAL]))
        if work.unit == "call":
            aims.append((f"<= {SITE_NS} ns per call", per_call <= SITE_NS))
        if name == MEDIUM:
            aims.append((f"<= {SITES_SHARE:.0%}", added[mode] <= SITES_SHARE * base))
    if mode == BOTH and work.unit == "step":
        less = added[mode] + closing[mode] <= added[STACKS] + closing[STACKS]
        aims.append((f"<= {STACKS}, with closing", less))
    return ", ".join(f"{text}{'' if met else ' MISSED'}" for text, met in aims)


INIT = """
import gc, time, torch

def timed(label, run):
    begin = time.process_time_ns()
    run()
    print(label, (time.process_time_ns() - begin) / 1e6)

def initialise():
    import pyprof
    pyprof.init()

timed("init", initialise)
import pyprof
gc.collect()  # a collection of torch's objects falls due soon after they are made: 0.1 s that are not ours
for label in ("first", "later"):
    timed(label, lambda: pyprof.start("net.sqlite"))
    pyprof.stop()
"""


def start_up(rounds: int) -> str:
    """CPU time of init() and of opening windows, in processes of their own, torch imported, its objects collected."""
    spent: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
            done = subprocess.run(
                [sys.executable, "-c", INIT],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
        for line in done.stdout.splitlines():
            label, value = line.split()
            spent.setdefault(label, []).append(float(value))
    took = {label: median(values) for label, values in spent.items()}
    return (
        f"import pyprof and init(): {took['init']:.0f} ms "
        f"(aim: <= {INIT_MS} ms{'' if took['init'] <= INIT_MS else ' MISSED'}), "
        f"opening the first window: {took['first']:.0f} ms, a later one: {took['later']:.1f} ms"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Example: capture.py --rounds 15")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each mode; default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="length of a run; default: %(default)s")
    return parser


class _Indices:
    """The queue of a worker's indices: one sample a batch."""

    def get(self, timeout: float) -> Any:
        return 1, [0]


class _Batches:
    """The queue of a worker's batches, which drops them."""

    def __init__(self) -> None:
        self._send_bytes: Callable[[bytes], None] = lambda data: None

    def put(self, item: Any) -> None:
        pass


def _loop(
    dataset_kind: int, dataset: Any, index_queue: Any, data_queue: Any, auto_collation: bool, collate_fn: Any,
    worker_id: int,
) -> None:  # fmt: skip
    """Do what torch's loop of a worker does, without other processes."""
    for _ in range(1000):
        number, indices = index_queue.get(timeout=1)
        data_queue.put((number, collate_fn([dataset[index] for index in indices])))
        data_queue._send_bytes(b"")


def worker_cost(rounds: int) -> str:
    """Return what the log of a loader's worker adds to the CPU time of a batch."""
    log, added = worker_log.SharedLog(1), []
    for _ in range(rounds):
        times = [process_time_ns()]
        for run in (_loop, partial(worker_log.follow, _loop, log)):
            run(0, [0], _Indices(), _Batches(), True, len, 0)
            times.append(process_time_ns())
        added.append(times[2] - times[1] - (times[1] - times[0]))
    return f"a worker of a data loader: {median(added) / 1e6:.1f} µs a batch of one sample"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}, one thread")
    print(start_up(min(arguments.rounds, 5)), flush=True)
    print(worker_cost(arguments.rounds), flush=True)
    for name, work in works(arguments.scale).items():
        print("\n" + compare(name, work, arguments.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

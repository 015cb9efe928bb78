#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording adds to a call and to a training step.

    python benchmarks/capture.py --rounds 15

Every round runs the same work in each mode, in turn, on one thread, and takes the CPU time of the process; a figure is
the median over the rounds of (mode less nothing) of the same round. The modes: PyProf initialised but not recording,
call sites only, call sites and operators (the default), and the method of the original PyProf: the whole Python stack
and a text of all arguments at every call, written here in a few lines and put on the same calls. Closing a window costs
extra and is printed apart; writing the file is not included.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torch.nn.functional as F

import pyprof
from pyprof.capture import targets
from pyprof.capture.patch import Registry
from pyprof.capture.recorder import recorder
from pyprof.capture.session import Session

AIM = 1 / 8  # of what the original's method adds to a call
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
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-") as folder:
        session = Session(os.path.join(folder, "net.sqlite"), max_events=10**9)
        session.operators_given_up = not operators  # what a program with its own torch.profiler gets
        session.open()
        try:
            yield
        finally:
            _CALLS[:] = [sum(len(state.calls) // 6 for state in recorder.threads)]
            begin = process_time_ns()
            session.close()
            _CLOSING.setdefault(mode, []).append(process_time_ns() - begin)
            session.forget()


def sites() -> Any:
    return _window("sites", operators=False)


def sites_and_operators() -> Any:
    return _window("sites + operators", operators=True)


# The original's method (apex.pyprof.nvtx.nvmarker), without the NVTX calls that it ends in.


def stack_text() -> str:
    return str(
        {"traceMarker": [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_stack()[:-2]]}
    )


def argument_text(mod: str, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    records: list[dict[str, Any]] = []

    def add(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).split(".")[-1]
            records.append({"name": name, "type": "tensor", "shape": tuple(value.size()), "dtype": dtype})
        elif isinstance(value, (list, tuple)) and any(
            isinstance(item, (torch.Tensor, list)) for item in value
        ):
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


MODES: dict[str, Callable[[], Any]] = {
    "nothing": nothing,
    "init, not recording": idle,
    "sites": sites,
    "sites + operators": sites_and_operators,
    "original's method": original,
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


def transformer() -> Callable[[], Any]:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    tokens = torch.randn(4, 32, 64)
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
        "transformer, 4 layers of 64": Work(transformer(), times(5), "step"),
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
    lines = [f"{name}: {base / 1000:,.2f} us per {work.unit}, {calls} recorded calls per run"]
    lines.append(
        f"  {'':22}{'us per ' + work.unit:>14}{'added us':>12}{'added %':>9}{'added ns per call':>19}"
        f"{'x original':>12}{'closing us':>12}  aim"
    )
    added = {
        mode: median(a - b for a, b in zip(spent[mode], spent["nothing"])) / units
        for mode in modes
        if mode != "nothing"
    }
    reference = added["original's method"]
    for mode, extra in added.items():
        per_call = extra if work.unit == "call" else extra / max(calls, 1)
        closing = median(_CLOSING[mode]) / (work.units + 1) * work.units / units if mode in _CLOSING else 0.0
        share = extra / reference if reference > 0 else float("nan")
        aim = f"<= 0.125{'' if share <= AIM else ' MISSED'}" if mode == "sites" else ""
        row = f"  {mode:22}{(base + extra) / 1000:14,.2f}{extra / 1000:12,.2f}{100 * extra / base:9.1f}"
        lines.append(f"{row}{per_call:19,.0f}{share:12.3f}{closing / 1000:12,.2f}  {aim}".rstrip())
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Example: capture.py --rounds 15")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each mode; default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="length of a run; default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}, one thread"
    )
    for name, work in works(arguments.scale).items():
        print("\n" + compare(name, work, arguments.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

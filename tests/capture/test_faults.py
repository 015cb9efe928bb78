# SPDX-License-Identifier: Apache-2.0
"""A fault of PyProf's own, at every point of a window's life: the program is what it is without PyProf.

Every function of the package that another function of it calls while a window is opened, paused, read and closed
raises in turn (`sys.settrace`). Losses, what is printed and the exit code stay, and nothing stays patched.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyprof.capture.process import faults
from tests.conftest import LONG
from tests.forks import ROOT, Forks

PARTS = 16  # of the functions; all of them take minutes

PROGRAM = """
import sys, types
import torch
import torch.nn.functional as F
from torch import nn
import pyprof

plain = type(F), torch.Tensor.mul, nn.Module.__call__, torch.autograd.profiler.record_function.__enter__
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []

def train():
    with pyprof.annotate("layer:step"):
        loss = F.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 2))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())

pyprof.init()
with pyprof.profile("net.sqlite", wait=1, warmup=1, active=2, repeat=2) as p:
    for _ in range(8):
        train()
        p.step()
pyprof.start("other.sqlite")
train()
pyprof.step()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
    train()
pyprof.stop()
with pyprof.flight(steps=6, slow=1e9) as record:
    for _ in range(9):
        train()
    record.dump()
    train()
    with pyprof.profile("third.sqlite"):
        train()
pyprof.shutdown()
assert plain == (type(F), torch.Tensor.mul, nn.Module.__call__, torch.autograd.profiler.record_function.__enter__)
print(losses, torch.get_rng_state().sum().item(), [q.sum().item().hex() for q in model.parameters()])
sys.exit(3)
"""
# What makes one function raise. A copy of a wrapper has the file of the place it stands in, and is known by its names.
PRELUDE = """
import sys
own, target, which = {own!r}, {target!r}, {which}
seen = {{}}
def inside(frame):
    code = frame.f_code if frame is not None else None
    return code is not None and (code.co_filename.startswith(own) or "sites" in code.co_freevars)
caught = "safely", "at_bound", "guarded", "contained", "contained.<locals>.call", "report", "_name", "Session._unpatch"
unguarded = "contained.<locals>.call", "profile.__init__", "flight.__init__"
def importing(frame):
    while frame is not None and frame.f_code.co_filename.startswith(own):
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False
def trace(frame, event, arg):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(own) or not inside(frame.f_back):
        return None
    # What a module is made of, what catches faults, entry points before their first line, and checks of arguments.
    caller = frame.f_back.f_code.co_qualname
    if importing(frame) or code.co_qualname in caught or caller in unguarded:
        return None
    name = code.co_filename[len(own):].removesuffix(" (importlib._bootstrap)") + ":" + code.co_qualname
    seen[name] = seen.get(name, 0) + 1
    if name == target and seen[name] == which:
        raise ValueError("injected")
    return None
from pyprof.capture import pace
pace.MOST, pace._mallinfo = 75, None  # so that torch's records are read in the middle of a window
sys.settrace(trace)
if target is None:
    import atexit, json
    atexit.register(lambda: open("seen.json", "w").write(json.dumps(seen)))
"""


def prelude(target: str | None, which: int = 1) -> str:
    return PRELUDE.format(own=f"{ROOT}/pyprof/capture/", target=target, which=which)


@pytest.fixture(scope="module")
def plain(compiler_forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, int]]:
    """What the program prints, and how often it comes to each function."""
    folder = tmp_path_factory.mktemp("plain")
    code, program = compiler_forks.run(folder, PROGRAM, prelude=prelude(None))
    assert code == 3, program.stderr
    assert program.stderr.count("pyprof") == 1  # the program's own torch.profiler is one line
    return program.stdout, json.loads((folder / "seen.json").read_text())


def check(target: str, which: int, plain: str, compiler_forks: Forks, folder: Path) -> str:
    """Return what the program printed on stderr, and why it is not what it should be, "" if it is."""
    folder.mkdir()
    code, program = compiler_forks.run(folder, PROGRAM, prelude=prelude(target, which))
    told = [line for line in program.stderr.splitlines() if "injected" in line]
    if (code, program.stdout) != (3, plain) or "Traceback" in program.stderr or len(told) > 1:
        return f"{target} at call {which}: exit code {code}, {program.stdout!r}\n{program.stderr}"
    return ""


def test_an_internal_error_is_reported_once_and_counted_each_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("injected")

    lost = Counter[str]()
    monkeypatch.setattr(faults, "_reported", set())
    monkeypatch.setattr(faults, "recorder", SimpleNamespace(drop=lambda reason: lost.update([reason])))
    faults.guarded(broken)
    assert faults.contained(broken)() is None
    faults.guarded(int)
    assert capsys.readouterr().err.count("(ValueError: injected). The program goes on") == 1
    assert list(lost.values()) == [2]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in (3, 10))])
def test_a_fault_anywhere_leaves_the_program_alone(
    part: int, plain: tuple[str, dict[str, int]], compiler_forks: Forks, tmp_path: Path
) -> None:
    """At the first call of every 64th function; the long form has three of sixteen, and of one its last call."""
    output, seen = plain
    assert len(seen) > 200
    wrong = []
    # A comprehension is a part of its function, as it is from Python 3.12 on.
    targets = [(target, count) for target, count in sorted(seen.items()) if not target.endswith(("comp>", "genexpr>"))]
    for number, (target, count) in enumerate(targets):
        if number % (PARTS if LONG else 4 * PARTS) == part:
            for which in sorted({1, count} if LONG and not part else {1}):
                wrong.append(check(target, which, output, compiler_forks, tmp_path / f"{number}.{which}"))
    assert not list(filter(None, wrong)), "\n".join(filter(None, wrong))

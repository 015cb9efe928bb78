# SPDX-License-Identifier: Apache-2.0
"""Run every command of an installed PyProf once, on a model of two layers, and check what they say.

python scripts/smoke.py, with the Python that has PyProf and torch. Works in a temporary folder; ends with a line of
versions, or with the first check that fails. `scripts/matrix.py` runs it for each set of versions.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

MODEL = """import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


if __name__ == "__main__":
    import pyprof

    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        loss = net(torch.ones(4, 16)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pyprof.step()
"""
WINDOW = """
import torch
import pyprof
from model import Net

net = Net()
with pyprof.profile("window.sqlite", wait=1, active=2) as p:
    for _ in range(4):
        net(torch.ones(4, 16)).sum().backward()
        p.step()
kernels = pyprof.load("window.sqlite").kernels
forward = kernels[(kernels.op == "linear") & (kernels.direction == "fprop")]
print(int(forward.flops.sum()))
calls = pyprof.estimate(net, torch.ones(4, 16))
print(int(calls.flops[calls.op == "linear"].sum()))
"""
# FLOPs of two steps by hand: 2·M·N·K of each product, M = 4 rows. The first layer's input needs no gradient.
FORWARD = {"first": 2 * 2 * 4 * 16 * 32, "second": 2 * 2 * 4 * 32 * 8}
BACKWARD = {"first": FORWARD["first"], "second": 2 * FORWARD["second"]}


def check(what: str, holds: bool, seen: object) -> None:
    """End with a sentence if something is not as it must be."""
    if not holds:
        sys.exit(f"{what}: {str(seen)[-600:]}")


def command(*words: str) -> str:
    """Run a command of PyProf; returns what it prints."""
    program = Path(sys.executable).with_name(words[0])
    done = subprocess.run([sys.executable, program, *words[1:]], capture_output=True, text=True)
    bad = done.returncode or "Traceback" in done.stderr or "failed (" in done.stderr or "lacks or has" in done.stderr
    check(" ".join(words), not bad, f"exit code {done.returncode}, {done.stderr or done.stdout}")
    return done.stdout


def main() -> None:
    """Run them all."""
    Path("model.py").write_text(MODEL)
    Path("window.py").write_text(WINDOW)
    command("pyprof", "run", "-o", "net.sqlite", "model.py")
    rows = _kernels()
    _check_rows(rows)
    info = json.loads(command("pyprof", "info", "--json", "net.sqlite"))
    check("pyprof info", "torch" in json.dumps(info), info)
    done = subprocess.run([sys.executable, "window.py"], capture_output=True, text=True)
    both = sum(FORWARD.values())
    check("profile and estimate", done.stdout.split() == [str(both), str(both // 2)], done.stdout + done.stderr)
    estimate = command("pyprof", "estimate", "--csv", "model.py")
    check("pyprof estimate", "Net" in estimate, estimate)
    for report in ("summary", "op_type", "group_node", "step_time", "kernel"):
        text = command("pyprof", "report", report, "net.sqlite", "--format", "json")
        check(f"pyprof report {report}", bool(json.loads(text)), text)
    command("pyprof", "save", "-o", "net_dldb.sqlite", "net.sqlite")
    command("pyprof", "diff", "net.sqlite", "window.sqlite")
    command("pyprof", "export", "-o", "net.json.gz", "net.sqlite")
    command("pyprof", "report", "op_type", "net.json.gz")
    _check_view()
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "pandas", "pyarrow", "adbc-driver-sqlite")}
    import torch

    print("|", " | ".join((str(torch.__version__), platform.python_version(), *versions.values())), "|")


def _kernels() -> list[dict[str, str]]:
    Path("net.dict").write_text(command("pyprof", "parse", "net.sqlite"))
    columns = ("dir", "phase", "op", "module", "caller", "kernel", "flops")
    text = command("prof.py", "--csv", "-c", ",".join(columns), "net.dict")
    lines = list(csv.reader(io.StringIO(text)))
    return [dict(zip(columns, line)) for line in lines[1:]]


def _check_rows(rows: list[dict[str, str]]) -> None:
    """Operator, module, line, direction and FLOPs of the two layers, and of the optimizer."""
    linear = [row for row in rows if row["op"] == "linear"]
    check("modules", {row["module"] for row in linear} == {"first", "second"}, linear)
    line = f"model.py:{_line('self.second(F.relu')}"
    check("lines", {row["caller"].rpartition("/")[2] for row in linear} == {line}, linear)
    flops: Counter[tuple[str, str]] = Counter()
    for row in linear:
        if row["dir"] == "fprop" or row["kernel"] == "aten::mm":
            flops[row["dir"], row["module"]] += int(row["flops"])
    expected = {("fprop", name): count for name, count in FORWARD.items()}
    expected |= {("bprop", name): count for name, count in BACKWARD.items()}
    check("FLOPs", flops == expected, dict(flops))
    steps = [row for row in rows if row["op"] == "SGD.step"]
    line = f"model.py:{_line('optimizer.step()')}"
    seen = {(row["phase"], row["caller"].rpartition("/")[2]) for row in steps}
    check("optimizer", seen == {("optimizer", line)}, seen)


def _line(text: str) -> int:
    return next(number for number, line in enumerate(MODEL.splitlines(), 1) if text in line)


def _check_view() -> None:
    """The page and a figure of it."""
    program = Path(sys.executable).with_name("pyprof")
    words = ["view", "--no-browser", "--no-token", "-p", "0", "net_dldb.sqlite"]
    server = subprocess.Popen(
        [sys.executable, program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split("?")[0].strip().rstrip("/")
        check("pyprof view", address.startswith("http://"), address)
        for path, part in (("/", b"<title>"), ("/api/overview", b"{")):
            body = _get(address + path)
            check(f"pyprof view, {path}", part in body, body[:200])
    finally:
        server.terminate()
        server.communicate()


def _get(address: str) -> bytes:
    for _ in range(300):  # the database may be busy being opened
        try:
            with urllib.request.urlopen(address) as answer:
                return bytes(answer.read())
        except OSError as error:
            last = error
            time.sleep(0.1)
    sys.exit(f"pyprof view: {address}: {last}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()

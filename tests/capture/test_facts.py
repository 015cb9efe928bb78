# SPDX-License-Identifier: Apache-2.0
"""Facts of the run stand in the file; what they are gathered from is let go of; what it cost is estimated."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pyprof
from pyprof.capture import pace
from pyprof.capture.environment import facts, overhead
from pyprof.capture.instrument import seen_objects
from pyprof.capture.instrument.recorder import local, recorder

from .conftest import Recorded

Record = Callable[..., Recorded]
ROOT = Path(__file__).parents[2]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(144, 5)
        self.norm.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(self.conv(x)).flatten(1))
        return out


def train() -> None:
    """Two steps; at the end of the window the model, its optimizer and its loader are gone."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.123, amsgrad=True, foreach=False)
    loss = nn.CrossEntropyLoss()
    for x, y in DataLoader(TensorDataset(torch.randn(4, 3, 8, 8), torch.arange(4)), 2, drop_last=True):
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            out = net(x.to(memory_format=torch.channels_last))
        loss(out.float(), y).backward()
        optimizer.step()
        pyprof.step()
    net(torch.randn(1, 3, 8, 8))


@pytest.fixture
def meta(record: Record) -> dict[str, str]:
    return record(train).table("PYPROF_META")


def part(meta: dict[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in meta.items()
        if name.startswith(prefix) and not name.removeprefix(prefix)[:1].isdigit()
    }


def test_model_is_counted_once_with_its_gradients_as_the_optimizer_met_them(meta: dict[str, str]) -> None:
    numbers = [112, 4, 4, 725]  # convolution, scale and shift of the norm, linear layer
    trainable = sum(numbers) - 4
    assert part(meta, "model.0.") == {
        "class": "Net",
        "training": "yes",
        "parameters": str(sum(numbers)),
        "parameters_bytes": str(4 * sum(numbers)),
        "parameter_tensors": "6",
        "trainable": str(trainable),
        "trainable_bytes": str(4 * trainable),
        "buffers_bytes": str(4 * (4 + 4) + 8),
        "dtypes": "float32",
        "gradients": str(trainable),
        "gradients_bytes": str(4 * trainable),
    }
    assert "model.1.class" not in meta  # the loss function has no parameters, the layers are parts


def test_a_part_that_is_called_by_itself_is_no_model_beside_the_whole(record: Record) -> None:
    net = Net()

    def body() -> None:
        net.conv(torch.ones(1, 3, 8, 8))
        net(torch.ones(1, 3, 8, 8))

    meta = record(body).table("PYPROF_META")
    assert [value for name, value in meta.items() if name.startswith("model.") and "class" in name] == ["Net"]
    assert meta["model.0.gradients"] == "0"


def test_symbolic_sizes_are_not_counted() -> None:
    class Symbolic(torch.Tensor):
        def numel(self) -> Any:
            return "s0"

    total = seen_objects.Total()
    assert not total.add(torch.ones(2).as_subclass(Symbolic))
    assert total.count == 0


def test_optimizer_has_its_flags_and_not_its_recipe(meta: dict[str, str]) -> None:
    found = part(meta, "optimizer.0.")
    wanted = {"class": "Adam", "amsgrad": "yes", "foreach": "no", "fused": "default", "capturable": "no"}
    assert wanted.items() <= found.items()
    assert found["groups"] == "1"
    assert found["gradients"] == "841"
    assert not {"lr", "betas", "eps", "weight_decay", "params"} & found.keys()
    assert "0.123" not in meta.values()


def test_loader_has_its_settings(meta: dict[str, str]) -> None:
    assert part(meta, "loader.0.") == {
        "num_workers": "0",
        "pin_memory": "no",
        "persistent_workers": "no",
        "batch_size": "2",
        "drop_last": "yes",
        "dataset": "TensorDataset",
    }


def test_autocast_that_was_left_before_the_end_is_seen(meta: dict[str, str]) -> None:
    assert part(meta, "autocast.cpu.") == {"at_end": "no", "seen": "yes", "dtype": "bfloat16"}


def test_inputs_of_convolutions_are_counted_by_memory_format(meta: dict[str, str]) -> None:
    assert part(meta, "convolution.inputs.") == {"channels_last": "2", "contiguous": "1"}


def test_layout_of_a_tensor_is_what_torch_says() -> None:
    for shape, format_, name in (
        ((2, 3, 4, 5), torch.channels_last, "channels_last"),
        ((2, 3, 4, 5, 6), torch.channels_last_3d, "channels_last_3d"),
        ((2, 3, 4, 5), torch.contiguous_format, "contiguous"),
    ):
        x = torch.empty(shape, memory_format=format_)
        stride = None if x.is_contiguous() else x.stride()
        assert facts.memory_format(x.shape, stride) == name
    assert facts.memory_format((2, 3, 4, 5), (120, 40, 10, 2)) == "other"
    assert facts.memory_format((2, 3), None) is None


@pytest.mark.parametrize(
    ("name", "change", "restore", "value"),
    [
        ("matmul.precision", lambda: torch.set_float32_matmul_precision("high"),
         lambda: torch.set_float32_matmul_precision("highest"), "high"),
        ("cudnn.benchmark", lambda: setattr(torch.backends.cudnn, "benchmark", True),
         lambda: setattr(torch.backends.cudnn, "benchmark", False), "yes"),
        ("deterministic", lambda: torch.use_deterministic_algorithms(True, warn_only=True),
         lambda: torch.use_deterministic_algorithms(False), "yes"),
        ("anomaly_mode", lambda: torch.autograd.set_detect_anomaly(True),
         lambda: torch.autograd.set_detect_anomaly(False), "yes"),
        ("default_dtype", lambda: torch.set_default_dtype(torch.float64),
         lambda: torch.set_default_dtype(torch.float32), "float64"),
    ],
)  # fmt: skip
def test_switches_of_torch_are_those_at_the_end(
    name: str, change: Callable[[], object], restore: Callable[[], object], value: str
) -> None:
    assert facts.gather()[name] != value
    change()
    try:
        assert facts.gather()[name] == value
    finally:
        restore()


def test_machine_and_versions(meta: dict[str, str]) -> None:
    assert meta["torch"] == torch.__version__
    assert meta["pyprof"] == pyprof.__version__
    assert meta["python"] == sys.version.split()[0]
    assert int(meta["cpu.count"]) >= int(meta["cpu.usable"]) >= 1
    if Path("/proc/cpuinfo").exists():  # what peaks of a processor follow from
        assert int(meta["cpu.usable"]) >= int(meta["cpu.cores"]) >= int(meta["cpu.sockets"]) >= 1
        assert meta["cpu.id"]
        assert meta["cpu.virtual"] in ("yes", "no")
    assert int(meta["cpu.memory_bytes"]) > 1 << 28
    assert meta["threads.intraop"] == str(torch.get_num_threads())
    assert meta["gpu.count"] == str(torch.cuda.device_count())
    assert meta["compile.regions"] == "0"
    assert not [name for name in meta if name.startswith("distributed.")]


def test_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    found = facts.gather()
    assert found["switch.OMP_NUM_THREADS"] == "7"
    assert found["switch.NCCL_DEBUG"] == "INFO"
    assert not [name for name, value in found.items() if "hunter2" in value or "KEY" in name]


@pytest.mark.parametrize(
    "words",
    [["--api-key", "hunter2"], ["--api-key=hunter2"], ["--hf_token", "hunter2"], ["wandb.api_key=hunter2"],
     ["--data", "https://me:hunter2@host/x"], ["--password=hunter2"]],
)  # fmt: skip
def test_secrets_of_the_command_line_are_not_written(words: list[str]) -> None:
    command = facts.command(["train.py", "--lr", "1", *words, "--epochs", "3"])
    assert "hunter2" not in command
    assert command.startswith("train.py --lr 1 ")
    assert command.endswith(" --epochs 3")


def test_one_fact_that_fails_loses_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("mine")

    whole = facts.gather()
    for name in ("matmul.precision", "gpu.count"):
        monkeypatch.setitem(facts._SINGLE, name, broken)
    monkeypatch.setattr(facts, "_amp", broken)
    lost = whole.keys() - facts.gather().keys()
    assert lost == {"matmul.precision", "gpu.count", "autocast.cpu.at_end", "autocast.cpu.seen"}


def test_a_model_that_cannot_be_described_harms_nothing(record: Record) -> None:
    class Odd(nn.Linear):
        def parameters(self, recurse: bool = True) -> Any:
            raise RuntimeError("mine")

    meta = record(lambda: Odd(2, 2)(torch.ones(1, 2))).table("PYPROF_META")
    assert "model.0.parameters" not in meta
    assert "torch" in meta


def test_nothing_that_was_met_is_kept_alive(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(1, 3, 8, 8)).sum().backward()
        optimizer.step()
        references = [weakref.ref(net), weakref.ref(optimizer), weakref.ref(net.conv.weight)]
        optimizer.zero_grad()
        del net, optimizer
        gc.collect()
        assert [reference() for reference in references] == [None] * 3
    assert [list(known) for known in (seen_objects.models, seen_objects.optimizers, seen_objects.loaders)] == [
        [],
        [],
        [],
    ]
    pyprof.shutdown()


def test_distributed_rank_and_size(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as distributed

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which the next line replaces
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        meta = record(lambda: torch.ones(2)).table("PYPROF_META")
    finally:
        distributed.destroy_process_group()
    assert part(meta, "distributed.") == {"rank": "0", "world_size": "1", "backend": "gloo"}


def test_compiled_code_is_told(record: Record) -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
    compiled(torch.ones(2))
    meta = record(lambda: compiled(torch.ones(2))).table("PYPROF_META")
    assert int(meta["compile.frames"]) >= 1
    assert meta["compile.regions"] == "1"


def test_overhead_is_the_recorded_calls_times_what_one_costs(meta: dict[str, str]) -> None:
    found = {name: int(value) for name, value in part(meta, "overhead.").items()}
    assert found["per_call_ns"] > 0
    assert found["per_module_ns"] > 0
    assert found["modules"] == 2 * 5 + 4  # the last forward is without the loss
    assert found["calls"] > 20
    assert found["sites_ns"] == found["calls"] * found["per_call_ns"] + found["modules"] * found["per_module_ns"]
    assert 0 < found["sites_per_step_ns"] <= found["sites_ns"] // 2
    assert found["windows"] == 1
    assert found["window_ns"] > found["sites_ns"]
    assert found["pauses"] == found["paused_ns"] == 0
    assert found["reading_cpu_ns"] > 0


def test_overhead_has_the_pauses(record: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_mallinfo", None)
    monkeypatch.setattr(pace, "MOST", 150)
    recorded = record(lambda: [torch.tanh(torch.ones(3)) for _ in range(100)])
    lengths = [length for (length,) in recorded.query("select end - start from PYPROF_PAUSE where what = 'reading'")]
    meta = recorded.table("PYPROF_META")
    assert len(lengths) > 0
    assert (int(meta["overhead.pauses"]), int(meta["overhead.paused_ns"])) == (len(lengths), sum(lengths))


def test_calibration_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> object:
        return (
            len(recorder.threads), len(recorder.functions), dict(recorder.keys), len(recorder.stacks.sites),
            len(recorder.stacks.by_key), recorder.active, local.state, len(local.state.calls), recorder.lost,
        )  # fmt: skip

    before = state()
    assert overhead.calibrate() is not None
    assert state() == before
    monkeypatch.setattr(overhead, "_call", lambda *_: 1 // 0)
    assert overhead.calibrate() is None


@pytest.mark.parametrize("name", sorted({*facts._SINGLE, "switch", "model", "optimizer", "loader", "overhead"}))
def test_every_fact_is_documented(name: str) -> None:
    assert f"`{name}" in (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""The coverage ledger: of which share of the time the figures are known, and exact. No gap is without a reason.

Programs are recorded here, whatever torch runs for them on this machine's CPU; recordings of others have GPU kernels.
Times vary from run to run, so the claims are about rows: no product without exact FLOPs, no gap that is not expected.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

import pyprof
from pyprof.core.model import BASES
from pyprof.core.netdict import read
from pyprof.costs import coverage
from pyprof.costs.columns import View
from pyprof.costs.unknown_costs import gaps
from pyprof.profiles import load
from tests import build
from tests.build import call, examples, recording
from tests.parse.test_join import recordings

Program = Callable[[], None]


def train(
    model: nn.Module, *inputs: torch.Tensor, optimizer: Callable[..., torch.optim.Optimizer] | None = None
) -> None:
    """Two steps of forward, backward and optimizer: the first of an optimizer makes its state."""
    optimizer = optimizer or torch.optim.SGD
    update = optimizer(model.parameters(), lr=1e-3)
    for _ in range(2):
        update.zero_grad()
        out = model(*inputs)
        (out[0] if isinstance(out, tuple) else out).float().square().mean().backward()
        update.step()


def mlp() -> None:
    train(nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 5), nn.LogSoftmax(-1)), torch.randn(7, 12))


def convolutions() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4, padding="same"), nn.ConvTranspose2d(8, 4, 2, stride=2), nn.GroupNorm(2, 4),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 2),
    )  # fmt: skip
    train(net, torch.randn(2, 3, 16, 16))
    train(nn.Sequential(nn.Conv1d(3, 4, 5), nn.SiLU()), torch.randn(2, 3, 16))
    train(nn.Sequential(nn.Conv3d(2, 4, 3, dilation=2), nn.InstanceNorm3d(4)), torch.randn(1, 2, 7, 7, 7))
    train(nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last), torch.randn(2, 4, 9, 9))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(16, 48), nn.RMSNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        few = F.scaled_dot_product_attention(query, key[:, :2], value[:, :2], enable_gqa=True)
        masked = F.scaled_dot_product_attention(query, key, value, attn_mask=torch.ones(6, 6).tril().log())
        return (out + few + masked).transpose(1, 2).flatten(2)


def attention() -> None:
    train(Attention(), torch.randn(2, 6, 16))
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.1)
    train(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 6, 16))
    heads = nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 6, 16)
    train(heads, x, x, x)
    nn.TransformerEncoder(layer, 1).eval()(x)


def recurrent() -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        train(kind(5, 8, num_layers=2, bidirectional=True), torch.randn(4, 2, 5))
    train(nn.LSTMCell(5, 8), torch.randn(2, 5))
    train(nn.GRUCell(5, 8), torch.randn(2, 5))


def tables() -> None:
    tokens = torch.randint(50, (3, 7))
    train(nn.Sequential(nn.Embedding(50, 8), nn.LayerNorm(8)), tokens)
    train(nn.EmbeddingBag(50, 8, mode="sum"), tokens)


def losses() -> None:
    x, target = torch.randn(6, 5, requires_grad=True), torch.randint(5, (6,))
    total = F.cross_entropy(x, target, label_smoothing=0.1) + F.mse_loss(x, torch.zeros(6, 5))
    total = total + F.binary_cross_entropy_with_logits(x, torch.ones(6, 5)) + F.smooth_l1_loss(x, torch.ones(6, 5))
    total = total + F.kl_div(F.log_softmax(x, -1), torch.full((6, 5), 0.2), reduction="batchmean")
    total.backward()


def optimizers() -> None:
    some = torch.optim
    for kind in (some.Adam, some.AdamW, some.Adagrad, some.RMSprop, some.NAdam, some.Adadelta, some.Adamax):
        for foreach in (False, True):
            train(
                nn.Linear(4, 3),
                torch.randn(2, 4),
                optimizer=lambda p, lr, k=kind, f=foreach: k(p, lr=lr, foreach=f),
            )
    train(nn.Linear(4, 3), torch.randn(2, 4), optimizer=lambda p, lr: some.AdamW(p, lr=lr, fused=True))
    train(
        nn.Linear(4, 3),
        torch.randn(2, 4),
        optimizer=lambda p, lr: some.SGD(p, lr=lr, momentum=0.9, nesterov=True),
    )


def products() -> None:
    a, b = (torch.randn(2, 4, 4, requires_grad=True) for _ in range(2))
    out = torch.einsum("bij,bjk->bik", a, b) + torch.bmm(a, b) + torch.baddbmm(a, a, b) + a @ b[0] + a[0] @ b
    out = out + torch.tensordot(a, b, dims=([2], [1])).sum((1, 2))[:, None, None]
    out = out + torch.mv(a[0], b[0, 0]).sum() + torch.dot(a[0, 0], b[0, 0]) + torch.addmm(a[0], a[1], b[1])
    (out + F.bilinear(a[0], b[0], torch.randn(4, 4, 4))).sum().backward()
    torch._int_mm(*(torch.randint(9, (32, 32), dtype=torch.int8) for _ in range(2)))


def mixed() -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    with torch.autocast("cpu", torch.bfloat16):
        train(net, torch.randn(4, 16), optimizer=torch.optim.AdamW)


def recomputed() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    x = torch.randn(3, 8, requires_grad=True)
    with set_checkpoint_early_stop(False):  # else an exception ends the last product of the recomputation
        checkpoint(net, x, use_reentrant=False).sum().backward()
    checkpoint(net, x, use_reentrant=True).sum().backward()


def clipped() -> None:
    net = nn.Linear(8, 8)
    net(torch.randn(3, 8)).sum().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    nn.utils.clip_grad_value_(net.parameters(), 0.5)


def moved() -> None:
    x = torch.randn(5, 6, requires_grad=True)
    rows = torch.tensor([0, 2, 2])
    parts = [
        x[1:4],
        x[rows],
        x.index_select(0, rows),
        x.flip(0)[:3],
        torch.stack([x[0]] * 3),
        x.roll(1, 0)[:3],
    ]
    y = torch.cat([*parts, x.expand(2, 5, 6)[0], *x.chunk(2), F.pad(x, (0, 0, 1, 0))])
    y = torch.where(y > 0, y, y.cumsum(0)).masked_fill(y > 2, 0).t().contiguous().clone().reshape(-1)
    (y.sort().values.topk(5).values.to(torch.float64).sum() + y.gather(0, rows).std() + y.norm()).backward()
    torch.zeros(5, 6).scatter_add_(0, torch.zeros(5, 6, dtype=torch.int64), x.detach()).to("cpu")


PROGRAMS = [mlp, convolutions, attention, recurrent, tables, losses, optimizers, products, mixed, recomputed, clipped,
            moved]  # fmt: skip


# A selection compares as often as the data makes it: its formula says the bytes only. Torch does not record the index
# tensors of index_put, a list with holes.
OPEN = {
    moved: {
        ("aten::topk", "formula", "FLOPs"),
        ("aten::_index_put_impl_ backward", "unknown", "FLOPs and bytes"),
    }
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_product_has_exact_flops_and_every_operator_a_formula(program: Program, tmp_path: Path) -> None:
    view = recorded(program, tmp_path)
    for kind, rows in coverage.products(view).items():
        left = rows & ~coverage.exact_flops(view)
        assert [view.rows.names[n] for n in set(view.rows.name[left].tolist())] == [], kind
    found = gaps(view.rows, view.costs)
    assert {(gap.operator, gap.basis, gap.lacks) for gap in found} == OPEN.get(program, set())


@pytest.mark.parametrize("program", [mlp, mixed, recomputed], ids=lambda program: program.__name__)
def test_the_rows_of_products_add_up_to_what_torch_counts(program: Program, tmp_path: Path) -> None:
    with FlopCounterMode(display=False) as counter:
        program()
    view = recorded(program, tmp_path)
    products = np.any(list(coverage.products(view).values()), axis=0)
    assert int(view.costs.flops.values[products].sum()) == counter.get_total_flops() > 0


def recorded(program: Program, folder: Path) -> View:
    with pyprof.profile(str(folder / "net.sqlite")):
        program()
    pyprof.shutdown()
    return _view(folder / "net.sqlite")


def _view(path: Path) -> View:
    profile = load(path)
    return View(profile.rows, profile.hardware)


def shares(view: View) -> dict[str, dict[str, float]]:
    """The ledger's lines, in percent of the time."""
    total = int(view.rows.duration.sum())
    return {e.what: {part: 100 * ns / total for part, ns in e.parts.items()} for e in coverage.ledger(view)}


# Of recordings with kernels, whose times stand in the file. The gaps have no shapes in the recording: ranges of torch
# without arguments (1 of the V100 model: a scalar), and a pooling without its window.
RECORDINGS = {
    "nvprof/transformer_lm/net.sql": {"accumulate_grad backward", "sum", "add", "ones_like"},
    "nsys/cifar_rtx2070_pyprof_markers.sqlite": {"max_pool2d"},
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_of_others_reach_the_aims(name: str, data: Path) -> None:
    view = _view(data / name)
    found = shares(view)
    assert found["products"][coverage.INEXACT] == 0
    assert found["products"][coverage.EXACT] > 40  # there are products
    assert found["FLOPs"]["default"] == found["bytes"]["default"] == 0
    assert {gap.operator for gap in gaps(view.rows, view.costs)} == RECORDINGS[name]


def test_a_recording_without_shapes_claims_nothing(data: Path) -> None:
    view = _view(data / "nsys/h100_2gpu_1s.sqlite")
    found = shares(view)
    assert found["FLOPs"]["unknown"] == found["bytes"]["unknown"] == 100
    assert found["products"][coverage.EXACT] == 0
    assert found["products"][coverage.INEXACT] > 80  # the names of the kernels say so
    whys = {gap.why for gap in gaps(view.rows, view.costs)}
    assert whys == {"no launch record", "its arguments were not recorded"}


MADE = f"""
    {call("torch.nn.functional.linear", (8, 4), (5, 4), trace=["train.py:9"], module="net.fc")}
        aten::addmm, seq = 10
            > 50 sgemm
    {call("mine::fused", (8, 4))}
        > 20 volta_sgemm_mine
        > 10 helper
    {call("torch.relu", 3)}
        > 9 elementwise_kernel
    aten::relu
        > 6 relu
    > 4 stray
    > 1 correlation=none alone
"""


@pytest.fixture
def made(tmp_path: Path) -> View:
    return _view(build.write_nsys(tmp_path / "f", recording(MADE)))


def test_each_line_says_what_share_of_the_time_is_known(made: View) -> None:
    known = {e.what: e.parts["known"] for e in coverage.ledger(made) if "known" in e.parts}
    assert known == {"operator": 95, "shapes": 80, "source line": 50, "module": 50, "launch record": 99}


def test_a_default_never_counts_as_exact(made: View) -> None:
    parts = {entry.what: entry.parts for entry in coverage.ledger(made)}
    assert parts["products"] == {coverage.EXACT: 50, coverage.INEXACT: 20, coverage.NOT_PRODUCT: 30}
    assert parts["bytes"] == {
        "formula": 50,
        "view": 0,
        "default": 30,
        "unknown": 20,
        "approximate": 0,
        "recorded": 0,
    }
    assert parts["FLOPs"] == {
        "formula": 50,
        "view": 0,
        "default": 0,
        "unknown": 50,
        "approximate": 0,
        "recorded": 0,
    }


def test_every_gap_has_a_name_and_a_reason(made: View) -> None:
    assert [(g.operator, g.basis, g.why, g.time, g.rows) for g in gaps(made.rows, made.costs)] == [
        ("mine::fused", "default", "no formula", 30, 2),
        ("relu", "unknown", "no shapes were recorded", 9, 1),
        ("aten::relu", "unknown", "its arguments were not recorded", 6, 1),
        ("no operator", "unknown", "no operator around the launch", 4, 1),
        ("no operator", "unknown", "no launch record", 1, 1),
    ]
    lines = coverage.text(made, "net.sqlite").splitlines()
    assert lines[0] == "net.sqlite: 7 kernels, 100 ns; percent of that time"
    assert lines[-1] == "  lost: 1 GPU events without a launch record (kept)"
    assert "  operator      known 95.0 %, unknown 5.0 % (2 rows)" in lines
    assert "  products      exact FLOPs 50.0 %, no exact FLOPs 20.0 %, no product 30.0 %" in lines
    assert "  mine::fused 30.0 %: default, FLOPs and bytes; no formula" in lines


def test_a_product_kernel_without_flops_is_not_exact(tmp_path: Path) -> None:
    """The helpers of a call have 0; a matrix product among them is a fault."""
    text = f"{call('torch.relu', (8, 4))}\n  > 9 elementwise_kernel\n  > 7 volta_sgemm"
    view = _view(build.write_nsys(tmp_path / "f", recording(text)))
    parts = {entry.what: entry.parts for entry in coverage.ledger(view)}
    assert parts["products"] == {coverage.EXACT: 0, coverage.INEXACT: 7, coverage.NOT_PRODUCT: 9}


def test_a_backward_of_parts_joins_the_gradients(tmp_path: Path) -> None:
    text = f"""
    {call("Tensor.chunk", (8, 4), 2)}
        aten::split, seq = 3
    thread 2
    SplitBackward0, seq = 3
        > 9 CatArrayBatchedCopy
    """
    view = _view(build.write_nsys(tmp_path / "f", recording(text)))
    assert (view.costs.flops.values.tolist(), view.costs.bytes.values.tolist()) == ([0], [2 * 4 * 32])


def test_on_the_cpu_unknown_work_around_views_is_not_zero(tmp_path: Path) -> None:
    text = f"""
    op {call("mine::kernel", (8, 4))}
        wait 90
        op {call("aten::empty", [8, 4])}
            wait 1
    op {call("mine::composite", (8, 4))}
        op {call("aten::relu", (8, 4))}
            wait 9
    op {call("aten::unflatten_dense_tensors", (8, 4))}
        op {call("aten::view", (8, 4))}
            wait 9
    """
    view = _view(build.write_capture(tmp_path / "f", recording(text)))
    found = {view.rows.names[n]: BASES[b] for n, b in zip(view.rows.name.tolist(), view.costs.basis.tolist())}
    assert found == {
        "mine::kernel": "default", "aten::empty": "view", "mine::composite": "formula", "aten::relu": "formula",
        "aten::unflatten_dense_tensors": "view", "aten::view": "view",
    }  # fmt: skip


def test_on_the_cpu_the_events_say_what_a_move_to_a_device_moved(tmp_path: Path) -> None:
    copied = f"""
    op {call("aten::to", (8, 4), 6, 0, 0, False, False, False, 0)}
        op {call("aten::_to_copy", (8, 4), 6)}
            wait 9
    """
    text = f"{call('Tensor.to', (8, 4), 'cpu')}\n    {copied}"
    view = _view(build.write_capture(tmp_path / "f", recording(text)))
    assert sum(view.costs.bytes.values.tolist()) == 2 * 4 * 32
    still = _view(build.write_capture(tmp_path / "g", recording(text.replace("_to_copy", "view"))))
    assert sum(still.costs.bytes.values.tolist()) == 0


def test_the_benchmark_prints_a_row_per_recording_and_names_what_misses_the_aims(root: Path, tmp_path: Path) -> None:
    known = MADE[: MADE.index("{'pyprof': 1, 'mod': 'aten'")]  # up to the operator of another library
    good, bad = (build.write_nsys(tmp_path / name, recording(text)) for name, text in (("good", known), ("bad", MADE)))
    command = [sys.executable, str(root / "benchmarks" / "shares.py"), "--aims", str(good)]
    done = subprocess.run([*command, str(bad)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines()[2] == (
        "| good | 1 | 0.0 | 100.0, 0.0, 0.0, 0.0, 0.0, 0.0 | 100.0, 0.0, 0.0, 0.0, 0.0, 0.0 | 100.0 (100.0) | - | - |"
    )
    assert "* mine::fused, 30.00 % in 2 rows: default, no exact FLOPs and bytes; no formula" in done.stdout
    assert done.stdout.endswith("are missed by: bad.\n")


def test_without_rows_the_ledger_is_empty() -> None:
    assert coverage.text(View(read([])), "net.dict").startswith("net.dict: 0 kernels, 0 ns")


@examples(15)
@given(recordings())
def test_the_parts_of_each_line_add_up(what: build.Recording) -> None:
    found = _view(build.write_nsys(Path(build.scratch()) / "f", what))
    total = int(found.rows.duration.sum())
    assert {sum(entry.parts.values()) for entry in coverage.ledger(found)} == {total}
    assert {sum(entry.counts.values()) for entry in coverage.ledger(found)} == {len(found.rows)}

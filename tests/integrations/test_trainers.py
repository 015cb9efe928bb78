# SPDX-License-Identifier: Apache-2.0
"""Trainers with PyProf's callbacks: the training is the same, steps have the trainer's numbers, errors stay theirs."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pyprof
from pyprof.errors import MissingPackage, UsageError
from pyprof.integrations.transformers import PyProfCallback as TransformersCallback

pytest.importorskip("lightning", reason="trainers: lightning is not installed")
from lightning.pytorch import LightningModule, Trainer

from pyprof.integrations import lightning as ours

Maker = Callable[..., Any]
CALLBACK, PROFILER = "callback", "profiler"
LINE = "self.net(batch)"


class Net(LightningModule):
    """A model with dropout, so that a single number drawn by a callback changes everything. `fail`: an error in a
    batch."""

    def __init__(self, fail: BaseException | None = None, at: int = 3):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
        self.fail, self.at, self.losses = fail, at, []

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        if self.fail is not None and number == self.at:
            raise self.fail
        loss = self.net(batch).square().mean()
        self.losses.append(loss.detach().clone())
        return loss

    def test_step(self, batch: torch.Tensor, number: int) -> None:
        self.net(batch)

    validation_step = test_step

    def predict_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        return self.net(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def loader(count: int = 8) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.randn(2 * count, 8), batch_size=2, shuffle=True)


def lightning_trainer(kind: str | None, path: Path, more: dict[str, Any] | None = None, **options: Any) -> Trainer:
    """A trainer with the callback or the profiler."""
    own: dict[str, Any] = {}
    if kind == CALLBACK:
        own["callbacks"] = [ours.PyProfCallback(str(path), **options)]
    elif kind == PROFILER:
        own["profiler"] = ours.Profiler(str(path), **options)
    return Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": 1, **(more or {})}, **own,
    )  # fmt: skip


def fit(kind: str | None, path: Path, more: dict[str, Any] | None = None, **options: Any) -> Net:
    torch.manual_seed(7)
    net, batches = Net(), loader()
    lightning_trainer(kind, path, more, **options).fit(net, batches)
    return net


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    pyprof.shutdown()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.sqlite"


def steps(path: Path) -> list[int]:
    """Numbers of the marked steps of a recording."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("select number from PYPROF_STEP order by start")]


def lines(path: Path) -> set[str]:
    """Texts of the lines to which operators are attributed."""
    out = set()
    for place in pyprof.load(path).query("select distinct line from ops where line is not null")["line"]:
        file, _, number = place.rpartition(":")
        out.add(Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1].strip())
    return out


def ranges(path: Path) -> set[str]:
    return set(pyprof.load(path).query("select distinct name from ranges")["name"])


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(torch.equal(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize("kind", [CALLBACK, PROFILER])
def test_lightning_trains_the_same_and_steps_are_its_own(kind: str, path: Path) -> None:
    plain, profiled = fit(None, path), fit(kind, path, wait=2, warmup=1, active=3)
    assert same(plain.losses, profiled.losses)
    assert same(list(plain.parameters()), list(profiled.parameters()))
    assert steps(path) == [3, 4, 5]
    assert "loss = self.net(batch).square().mean()" in lines(path)
    assert ({"training_step", "backward", "optimizer_step"} <= ranges(path)) == (kind == PROFILER)

# SPDX-License-Identifier: Apache-2.0
"""A row's module is the path that `named_modules` of the model gives, in forward and backward; so is its layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pyprof
from pyprof.parse import loader
from pyprof.parse.rows import rows

from .conftest import Recorded

Record = Callable[..., Recorded]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.lin(x))
        return out


class Model(nn.Module):
    """Modules in lists and dictionaries, one in two places, and one that is used by another than its owner."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
        self.tied = self.blocks[0].lin

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.heads["a"](self.tied(x))
        return out.sigmoid()


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.jit.script(nn.Linear(4, 4))
        self.outer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outer(self.inner(x))
        return out


class Wrapped(nn.Module):
    """As DataParallel and the like hold a model."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x)


def modules(recorded: Recorded, operator: str) -> dict[str, list[str | None]]:
    """By direction, the modules of the rows of an operator, in order of time."""
    found = rows(loader.load(recorded.path))
    out: dict[str, list[str | None]] = {"fprop": [], "bprop": []}
    for name, site in zip(found.name, found.site):
        place = found.sites[site]
        if found.names[name] == operator:
            out[("fprop", "bprop", "na")[place.direction]].append(place.module)
    return out


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("build", "paths"),
    [
        (Model, ["blocks.0.lin", "blocks.1.lin", "blocks.0.lin", "heads.a"]),
        (lambda: Wrapped(Model()),
         ["module.blocks.0.lin", "module.blocks.1.lin", "module.blocks.0.lin", "module.heads.a"]),
        (lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4)), ["0.0", "1"]),
        (lambda: nn.Linear(4, 4), ["Linear"]),
        (Scripted, ["inner", "outer"]),
    ],
    ids=["lists, dictionaries, tied", "wrapped", "sequential", "alone", "scripted"],
)  # fmt: skip
def test_products_are_in_the_module_that_computes_them(
    build: Callable[[], nn.Module], paths: list[str], record: Record
) -> None:
    torch.manual_seed(0)
    net, x = build(), torch.randn(3, 4)
    known = {name: module for name, module in net.named_modules() if name}
    assert all(path in known or path == type(net).__name__ for path in paths)
    recorded = record(lambda: net(x).sum().backward())
    assert modules(recorded, "aten::addmm")["fprop"] == paths
    # A weight's gradient each, and an input's for all but the first; the last layer comes first.
    backward = [path for path in reversed(paths) for _ in range(2)][:-1]
    assert modules(recorded, "aten::mm")["bprop"] == backward


def test_the_root_is_known_by_its_class_and_a_part_by_its_path_in_it(record: Record) -> None:
    net, x = Model(), torch.randn(3, 4)
    recorded = record(lambda: net(x))
    assert modules(recorded, "aten::sigmoid")["fprop"] == ["Model"]
    assert modules(recorded, "aten::tanh")["fprop"] == ["blocks.0", "blocks.1"]


def test_layers_of_the_user_are_carried_to_the_backward(record: Record) -> None:
    net, x = Model(), torch.randn(3, 4)

    def step() -> None:
        with pyprof.annotate("layer:model"):
            with pyprof.annotate("layer:first"):
                hidden = net.blocks[0](x)
            out = net.blocks[1](hidden)
        out.sum().backward()

    found = rows(loader.load(record(step).path))
    layers: dict[str, set[tuple[tuple[str, ...], str | None]]] = {"fprop": set(), "bprop": set()}
    for name, site in zip(found.name, found.site):
        place = found.sites[site]
        if found.names[name] in ("aten::tanh", "aten::tanh_backward"):
            layers[("fprop", "bprop", "na")[place.direction]].add((place.layer, place.module))
    assert layers["fprop"] == layers["bprop"] == {(("model", "first"), "Block"), (("model",), "Block")}


class Maker(nn.Module):
    """Makes a module each time it runs, and later keeps one that it calls at the same place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.looks = 0

    def named_modules(self, *args: Any, **more: Any) -> Any:
        self.looks += 1
        return super().named_modules(*args, **more)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = getattr(self, "last", None) or nn.Sequential(nn.Softmax(dim=-1))
        out: torch.Tensor = last(self.linear(x))
        return out


def test_modules_that_a_model_makes_are_not_looked_for_each_time(record: Record) -> None:
    model = Maker()

    def body() -> None:
        x = torch.ones(2, 4)
        for _ in range(100):
            x = model(x)

    recorded = record(body)
    assert modules(recorded, "aten::_softmax")["fprop"] == ["Maker.Sequential.Softmax"] * 100
    assert model.looks < 30  # the logarithm of the calls, for each of the two modules, and a few


def test_a_module_that_is_kept_later_gets_its_path(record: Record) -> None:
    model = Maker()

    def body() -> None:
        x = torch.ones(2, 4)
        for _ in range(3):
            x = model(x)
        model.last = nn.Sequential(nn.Softmax(dim=-1))
        for _ in range(20):
            x = model(x)

    paths = modules(record(body), "aten::_softmax")["fprop"]
    assert paths[:3] == ["Maker.Sequential.Softmax"] * 3
    assert paths[-10:] == ["last.0"] * 10

# SPDX-License-Identifier: Apache-2.0
"""Features of PyTorch, each a function that is run with and without PyProf: what it gives must be the same bit for bit.

Add a feature: a function in one of the files test_features_*.py, decorated with its name and with calls that the
recording must hold. It returns what can be compared: tensors, numbers, texts, and lists, tuples or dicts of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import pyprof
from tests.cli import parse

from .conftest import Recorded

Run = Callable[[], Any]


class Feature(NamedTuple):
    """`calls`: the beginnings of names of calls that the recording must hold. `long`: takes seconds, so only twice."""

    run: Run
    calls: tuple[str, ...]
    long: bool


class Features(dict[str, Feature]):
    """The features of one file, by name."""

    def __call__(self, name: str, *calls: str, long: bool = False) -> Callable[[Run], Run]:
        assert name not in self

        def add(run: Run) -> Run:
            self[name] = Feature(run, calls, long)
            return run

        return add

    def names(self, *long: str) -> list[Any]:
        """Parameters of a test: all names, some of them for the long form alone."""
        return [pytest.param(name, marks=pytest.mark.long) if name in long else name for name in self]


def check(feature: Feature, folder: Path) -> Recorded:
    """Run a feature without PyProf, in a window, initialised only, and after shutdown; look into the window's file."""
    path = folder / "net.sqlite"
    plain, values = _run(feature), {}
    with pyprof.profile(str(path)):
        values["in a window"] = _run(feature)
    if not feature.long:
        values["initialised"] = _run(feature)
    path = _written(path)
    pyprof.shutdown()
    if not feature.long:
        values["after shutdown"] = _run(feature)
    for when, value in values.items():
        assert comparable(value) == comparable(plain), when
    recorded = Recorded(path)
    assert recorded.table("PYPROF_LOST") == {}
    names = recorded.names
    missing = [call for call in feature.calls if not any(name.startswith(call) for name in names)]
    assert missing == [], f"recorded: {sorted(set(names))}"
    parses(path)
    return recorded


def _written(path: Path) -> Path:
    """The file: each rank has one of its own."""
    (found,) = path.parent.glob(f"{path.stem}*{path.suffix}")
    return found


def parses(path: Path) -> None:
    """`pyprof parse` reads the file, and finds rows in it."""
    out = path.with_suffix(".dict")
    assert parse([str(path), "-o", str(out)]) == 0
    assert out.read_text().startswith("{")


def _run(feature: Feature) -> Any:
    torch.manual_seed(3)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return feature.run()


def comparable(value: Any) -> Any:
    """Plain data that is equal where, and only where, every bit is."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    assert value is None or isinstance(value, (bool, int, float, complex, str, type, torch.dtype, torch.Size)), type(
        value
    )
    return value


def _tensor(value: torch.Tensor) -> Any:
    if value.is_nested:
        return ["nested", *(comparable(part) for part in value.unbind())]
    about = [
        type(value).__name__,
        value.dtype,
        value.shape,
        str(value.layout),
        str(value.device),
        value.requires_grad,
    ]
    if value.layout is torch.sparse_coo:
        value = value.coalesce()
        return [*about, comparable(value.indices()), comparable(value.values())]
    if value.layout is torch.sparse_csr:
        return [*about, comparable([value.crow_indices(), value.col_indices(), value.values()])]
    about.append(value.stride())
    if hasattr(value, "to_local"):
        return [*about, str(value.placements), comparable(value.to_local())]
    if value.is_meta or hasattr(value, "fake_mode"):
        return about
    with torch._C.DisableTorchFunctionSubclass():
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.is_quantized:
            return [*about, plain.q_scale(), comparable(plain.int_repr())]
        if plain.is_complex():
            plain = torch.view_as_real(plain)
        return [*about, plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()]

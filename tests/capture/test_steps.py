# SPDX-License-Identifier: Apache-2.0
"""Steps that the script does not mark: those of its optimizer, else of its data loader; also for `profile()`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pyprof
from pyprof.capture import steps
from pyprof.capture.instrument import user_ranges

from .conftest import Recorded

x = torch.ones(2, 2)


def numbers(path: Path) -> list[int]:
    return [number for (number,) in Recorded(path).query("select number from PYPROF_STEP order by start")]


def powers(path: Path) -> list[float]:
    """Which turns of a loop were recorded: the exponent of each torch.pow."""
    calls = [call for call in Recorded(path).calls if call.name == "torch.pow"]
    return [call.marker.call.args[1].value for call in calls]  # type: ignore[misc]


def optimized(turns: int, end: Callable[[], object] = lambda: None) -> None:
    w = torch.ones(2, requires_grad=True)
    one, two = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([w], lr=0.1)
    for i in range(turns):
        torch.pow(x, i)
        w.sum().backward()
        one.step()
        two.step()
        end()


def loaded(turns: int, end: Callable[[], object] = lambda: None) -> None:
    data = TensorDataset(torch.arange(float(turns)))
    for epoch in range(2):
        for i, _ in enumerate(DataLoader(data)):
            torch.pow(x, i + epoch * turns)
            for _ in DataLoader(TensorDataset(torch.arange(3.0))):  # another one ends no step
                pass
            end()


@pytest.fixture
def no_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other tests may not be collected yet."""
    monkeypatch.setattr(steps, "_optimizers", lambda: False)


@pytest.fixture(params=[optimized, loaded])
def program(request: pytest.FixtureRequest, no_optimizers: None) -> Iterator[Callable[..., None]]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"active": 2}, [0, 1]),
        ({"wait": 2, "active": 2}, [2, 3]),
        ({"wait": 1, "warmup": 1, "active": 2}, [2, 3]),
        ({"warmup": 2, "active": 1}, [2]),
        ({"wait": 1, "active": 1}, [1]),
    ],
)
def test_a_schedule_whose_script_marks_no_steps(
    options: dict[str, int], wanted: list[int], program: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), **options):
        program(6)
        assert path.exists()
    assert numbers(path) == powers(path) == wanted
    pyprof.shutdown()
    assert not user_ranges.on_optimizer_step
    assert not user_ranges.on_loader_next


@pytest.mark.parametrize("of_profile", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"active": 1}, {"active": 2}, {"wait": 1, "active": 1}, {"wait": 2, "active": 2},
        {"wait": 1, "warmup": 1, "active": 1}, {"warmup": 1, "active": 2}, {"warmup": 2, "active": 1}, {"wait": 3},
    ],
)  # fmt: skip
def test_marks_of_the_script_go_before(options: dict[str, int], of_profile: bool, tmp_path: Path) -> None:
    """The loop ends a step after the optimizer's, as most do."""
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), **options) as p:
        optimized(7, p.step if of_profile else pyprof.step)
    first = options.get("wait", 0) + options.get("warmup", 0)
    wanted = list(range(first, first + options.get("active", 7)))[: 7 - first]
    assert numbers(path) == powers(path) == wanted
    assert [each.name for each in tmp_path.iterdir()] == ["net.sqlite"]


@pytest.mark.parametrize(("options", "wanted"), [({"wait": 1, "active": 2}, [1, 2]), ({"active": 2}, [1, 2])])
def test_marks_that_come_after_the_window_begin_it_anew(
    options: dict[str, int], wanted: list[int], tmp_path: Path
) -> None:
    """A loop that steps its optimizer several times before it says that a step has ended."""
    path = tmp_path / "net.sqlite"
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    with pyprof.profile(str(path), **options) as p:
        for i in range(6):
            for _ in range(5):
                optimizer.step()
            torch.pow(x, i)
            p.step()
    assert numbers(path) == powers(path) == wanted
    assert len(numbers(tmp_path / "net.1.sqlite")) == 2  # those of the optimizer


def test_windows_that_repeat_are_found_too(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), wait=1, active=1, repeat=2):
        optimized(6)
    assert powers(tmp_path / "net.sqlite") == [1]
    assert powers(tmp_path / "net.1.sqlite") == [3]


def test_an_optimizer_that_has_not_stepped_yet_keeps_loaders_from_ending_steps(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    with pyprof.profile(str(path), wait=1, active=1):
        for i, _ in enumerate(DataLoader(TensorDataset(torch.arange(12.0)))):
            torch.pow(x, i)
            w.sum().backward()
            if i % 4 == 3:
                optimizer.step()
    assert powers(path) == [4, 5, 6, 7]
    assert numbers(path) == [1]


def test_optimizers_are_found() -> None:
    gc.collect()
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    assert steps._optimizers()
    del optimizer

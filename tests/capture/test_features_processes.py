# SPDX-License-Identifier: Apache-2.0
"""Features with several processes: loaders with workers, collectives, DDP, FSDP2, DTensor (two ranks over gloo)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.forks import Forks

from . import distributed_features
from .conftest import Recorded
from .features import Features, check

features = Features()
pytestmark = pytest.mark.filterwarnings("ignore")


def batches(**options: Any) -> list[torch.Tensor]:
    dataset = TensorDataset(torch.arange(12.0).reshape(6, 2))
    loader = DataLoader(dataset, batch_size=2, shuffle=True, **options)
    return [torch.mul(batch, 2) for _ in range(2) for (batch,) in loader]


@features("DataLoader without workers", "torch.mul")
def loader() -> Any:
    return batches()


@features("DataLoader with forked workers", "torch.mul")
def forked() -> Any:
    return batches(num_workers=2, multiprocessing_context="fork")


@features("DataLoader with spawned workers", "torch.mul", long=True)
def spawned() -> Any:
    return batches(num_workers=1, multiprocessing_context="spawn", persistent_workers=True)


@pytest.mark.parametrize("name", features.names("DataLoader with spawned workers"))
def test_it_is_the_same_with_pyprof(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorded = check(features[name], tmp_path)
    assert [text for text, _ in recorded.ranges if text.startswith("enumerate(DataLoader)#")]
    assert capfd.readouterr().err.count("\n") == 1  # the parent's line: workers say nothing
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.dict", "net.sqlite"]


WORLD = 2


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Path:
    """A folder with what each rank said and recorded."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch without gloo")
    folder = tmp_path_factory.mktemp("ranks")
    source = (
        f"import sys\nfrom pathlib import Path\nfrom {__package__} import distributed_features\n"
        f"distributed_features.main(int(sys.argv[1]), {WORLD}, Path.cwd())\n"
    )
    started = [forks.start(folder, source, arguments=[str(rank)]) for rank in range(WORLD)]
    for program in started:
        assert program.wait() == 0, program.stderr
    return folder


@pytest.mark.parametrize("rank", range(WORLD))
@pytest.mark.parametrize("name", distributed_features.features)
@pytest.mark.long
def test_it_is_the_same_on_every_rank(name: str, rank: int, ranks: Path) -> None:
    assert json.loads((ranks / f"rank{rank}.json").read_text())[name] == ""


def test_a_collective_has_its_tensors_as_arguments(ranks: Path) -> None:
    recorded = Recorded(ranks / "rank0" / "collectives" / "net.rank0.sqlite")
    calls = [call for call in recorded.calls if call.name == "torch.distributed.all_gather_into_tensor"]
    assert [call.shapes for call in calls] == [[(4 * WORLD,), (4,)]]
    assert "distributed_features.py" in calls[0].user_lines[-1]
    assert recorded.table("PYPROF_META")["distributed.world_size"] == str(WORLD)

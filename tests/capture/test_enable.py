# SPDX-License-Identifier: Apache-2.0
"""Recording without an edit: `pyprof enable`, the programs that are recorded then, and those that are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.capture import autostart
from pyprof.commands import enable as enabling
from tests.cli import start
from tests.forks import ROOT
from tests.waiting import HANG

from .conftest import Recorded
from .test_steps import numbers

UNWANTED = (
    "PYPROF_OUTPUT",
    "PYPROF_STEPS",
    "PYPROF_OPTIONS",
    "PYPROF_TRIGGER",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
)


class Environment:
    """A virtual environment in which `pyprof enable` has run; what is installed here is there too."""

    def __init__(self, folder: Path):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        packages = {path for path in sys.path if path.endswith("-packages")}
        (self.site / "others.pth").write_text("\n".join(sorted(packages)) + "\n")
        self.before = self.files()
        self.said = self.run(folder, "-m", "pyprof", "enable")

    def files(self) -> set[str]:
        return {path.name for path in self.site.iterdir()}

    def run(self, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python in a folder."""
        environment = {name: value for name, value in os.environ.items() if name not in UNWANTED}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables
        command = [self.python, *words]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANG
        )


@pytest.fixture(scope="session")
def enabled(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


def test_enable_says_where_and_what_to_set(enabled: Environment) -> None:
    assert enabled.said.returncode == 0, enabled.said.stderr
    assert enabled.said.stdout.startswith(f"{enabled.site / enabling.NAME}: written. ")
    assert all(name in enabled.said.stdout for name in autostart.VARIABLES)
    assert "keep PYTHONPATH" in enabled.said.stderr
    assert enabled.files() - enabled.before == {enabling.NAME}


def test_without_a_variable_nothing_of_ours_is_imported(enabled: Environment, tmp_path: Path) -> None:
    look = "import sys; print([name for name in sys.modules if 'pyprof' in name], *map(type, sys.meta_path))"
    plain = enabled.run(tmp_path, "-c", look, PYPROF_OPTIONS="memory")
    assert plain.stdout.startswith("[]")
    assert "pyprof" not in plain.stdout
    asked = enabled.run(tmp_path, "-c", look, PYPROF_TRIGGER="1")
    assert "pyprof.capture.autostart.Finder" in asked.stdout
    assert "torch" not in asked.stdout
    assert plain.stderr == asked.stderr == ""


def test_a_python_without_pyprof_starts_as_ever(enabled: Environment, tmp_path: Path) -> None:
    (tmp_path / "pyprof").mkdir()
    (tmp_path / "pyprof" / "__init__.py").write_text("raise RuntimeError('broken')")
    for path in ("/nowhere", str(tmp_path)):
        run = enabled.run(tmp_path, "-c", "print('end')", PYTHONPATH=path, PYPROF_STEPS="0:1")
        assert (run.returncode, run.stdout, run.stderr) == (0, "end\n", "")


STUB = "import sys\nprint('torch', __loader__ is __spec__.loader)\n"


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A folder with a torch that is none: ours fails on it."""
    (tmp_path / "torch.py").write_text(STUB)
    return tmp_path


def test_what_fails_after_the_import_of_torch_is_one_sentence(enabled: Environment, stub: Path) -> None:
    source = "import importlib.util as u; assert u.find_spec('torch'); import torch; import torch; print('end')"
    run = enabled.run(stub, "-c", source, PYPROF_OUTPUT="net.sqlite", PYTHONPATH=f"{stub}:{ROOT}")
    assert (run.returncode, run.stdout) == (0, "torch True\nend\n")
    assert run.stderr.count("\n") == 1, run.stderr
    assert run.stderr.startswith("pyprof: nothing is recorded (")
    assert "net.sqlite" not in os.listdir(stub)


def test_an_import_of_torch_that_fails_is_the_programs_own(enabled: Environment, stub: Path) -> None:
    (stub / "torch.py").write_text("import nosuchmodule")
    source = """
for turn in range(2):
    try: import torch
    except ImportError as error: print(error)
    open("torch.py", "w").write("raise ImportError('again')")
"""
    run = enabled.run(stub, "-c", source, PYPROF_OUTPUT="net.sqlite", PYTHONPATH=f"{stub}:{ROOT}")
    assert (run.stdout, run.stderr) == ("No module named 'nosuchmodule'\nagain\n", "")


@pytest.mark.parametrize(
    ("command", "name", "leaves_alone"),
    [
        ("python train.py --steps 5", "train.py", False),
        ("python -u -W ignore -X dev /a/train.py", "/a/train.py", False),
        ("python -c import~torch", "", False),
        ("python -m package.train", "package.train", False),
        ("python - x", "-", False),
        ("python", "", False),
        ("/usr/bin/python3 /usr/bin/torchrun --nproc-per-node 2 train.py", "/usr/bin/torchrun", True),
        ("python -m torch.distributed.run train.py", "torch.distributed.run", True),
        ("python -um torch.distributed.launch train.py", "torch.distributed.launch", True),
        ("python bin/accelerate launch train.py", "bin/accelerate", True),
        ("python -u -m deepspeed.launcher.launch train.py", "deepspeed.launcher.launch", True),
        ("python bin/pyprof run train.py", "bin/pyprof", True),
        ("python -m pyprof run train.py", "pyprof", True),
        (
            "python x/torch/_inductor/compile_worker/__main__.py",
            "x/torch/_inductor/compile_worker/__main__.py",
            True,
        ),
    ],
)
def test_what_a_process_runs(command: str, name: str, leaves_alone: bool) -> None:
    assert autostart.program(command.split()) == name
    assert autostart.is_launcher(name) is leaves_alone


def test_a_folder_that_cannot_be_written_and_a_file_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(enabling, "file_of_environment", lambda: str(tmp_path / "nowhere" / enabling.NAME))
    assert start("enable", []) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"pyprof enable: {tmp_path}/nowhere/{enabling.NAME} cannot be written (the folder does not")
    assert error.count("\n") == 1
    path = tmp_path / enabling.NAME
    path.write_text("import theirs\n")
    monkeypatch.setattr(enabling, "file_of_environment", lambda: str(path))
    assert start("enable", []) == start("disable", []) == 1
    assert capsys.readouterr().err.count("was not written by pyprof enable: move it away.\n") == 2
    assert path.read_text() == "import theirs\n"


def test_disable_undoes_exactly_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(enabling, "file_of_environment", lambda: str(tmp_path / enabling.NAME))
    monkeypatch.setattr(enabling, "_is_importable", lambda: True)
    assert start("disable", []) == 0
    assert "nothing to undo" in capsys.readouterr().out
    assert start("enable", []) == start("enable", []) == 0
    assert os.listdir(tmp_path) == [enabling.NAME]
    assert start("disable", []) == 0
    assert os.listdir(tmp_path) == []
    assert capsys.readouterr().err == ""


# Programs without an edit. Each process imports torch, which takes a second or two.

DDP = """\
import torch
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=.1)
for i in range(5):
    model(torch.ones(4, 4)).sum().backward()
    optimizer.step()
torch.distributed.barrier()  # torch 2.15 aborts now and then where a rank leaves while another is still at it
torch.distributed.destroy_process_group()
"""


def recordings(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".sqlite"))


@pytest.mark.long
def test_ranks_of_torchrun(enabled: Environment, tmp_path: Path) -> None:
    words = "-m torch.distributed.run --standalone --nproc-per-node 2 train.py"
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / "train.py").write_text(DDP)
        run = enabled.run(folder, *words.split(), PYPROF_STEPS="2:4")
        if ABORTED not in run.stderr:
            break
    assert run.returncode == 0, run.stderr
    assert recordings(folder) == ["net.rank0.sqlite", "net.rank1.sqlite"]
    for name in recordings(folder):
        assert numbers(folder / name) == [2, 3]
        assert any(call.name == "torch.nn.functional.linear" for call in Recorded(folder / name).calls)


PARENT = """\
import subprocess, sys
for i in range(2): subprocess.run([sys.executable, "child.py"], check=True)
subprocess.run([sys.executable, "-c", "import torch; torch.__version__"], check=True)
"""
CHILD = """\
from pyprof import annotate  # whose import is where torch is imported first
import torch
with annotate("mine"): torch.tanh(torch.ones(2))
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, i): return torch.ones(2) * i
for batch in torch.utils.data.DataLoader(Data(), num_workers=1): batch.log2()
"""


@pytest.mark.long
def test_a_plain_subprocess(enabled: Environment, tmp_path: Path) -> None:
    """Two have a file each, though they have one name; who starts them, workers and one that computes nothing none."""
    (tmp_path / "parent.py").write_text(PARENT)
    (tmp_path / "child.py").write_text(CHILD)
    run = enabled.run(tmp_path, "parent.py", PYPROF_OUTPUT="net.sqlite")
    assert run.returncode == 0, run.stderr
    assert recordings(tmp_path) == ["net.1.sqlite", "net.sqlite"]
    for name in recordings(tmp_path):
        names = Recorded(tmp_path / name).names
        assert names.count("torch.tanh") == 1
        assert names.count("Tensor.log2") == 2
        assert "Tensor.__mul__" not in names
    assert run.stderr.count("\n") == 3, run.stderr


SPAWN = """\
import gc, os, torch
def rank(number, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.distributed.init_process_group("gloo", rank=number, world_size=2)
    torch.distributed.all_reduce(torch.ones(2))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
def helper(number, port): torch.tanh(torch.ones(2))
if __name__ == "__main__":
    import socket
    refers = [[] for _ in range(100_000)]
    gc.collect()  # of milliseconds, which is recorded where the process computes
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    torch.multiprocessing.start_processes(rank, (port,), nprocs=2, start_method={method!r})
    torch.multiprocessing.start_processes(helper, (port,), nprocs=1, start_method={method!r})
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ranks_of_multiprocessing(method: str, enabled: Environment, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWN.format(method=method))
    run = enabled.run(tmp_path, "train.py", PYPROF_OUTPUT="net.sqlite")
    assert run.returncode == 0, run.stderr
    assert recordings(tmp_path) == ["net.rank0.sqlite", "net.rank1.sqlite"]


@pytest.mark.long
def test_a_program_under_the_command_is_recorded_once(enabled: Environment, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.tanh(torch.ones(2))\n")
    words = ["-m", "pyprof", "run", "--quiet", "-o", "run.sqlite", "train.py"]
    run = enabled.run(tmp_path, *words, PYPROF_OUTPUT="net.sqlite")
    assert run.returncode == 0, run.stderr
    assert recordings(tmp_path) == ["run.sqlite"]


ACCELERATE = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 4)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for (batch,) in data:
    accelerator.backward(model(batch).sum())
    optimizer.step()
accelerator.end_training()
"""
# A process of gloo ranks ends like this in 1 of 10 runs on a busy machine, without PyProf as well.
ABORTED = "terminate called without an active exception"
LIGHTNING = """\
import torch, lightning
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def training_step(self, batch, index): return self.layer(batch[0]).sum()
    def validation_step(self, batch, index): self.layer(batch[0])
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=.1)
if __name__ == "__main__":
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 4)), batch_size=4)
    lightning.Trainer(
        max_steps=5, accelerator="cpu", strategy="ddp", devices=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(Net(), data, data)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "launcher", "variable"),
    [
        (
            ACCELERATE,
            "-m accelerate.commands.launch --multi_gpu --num_processes 2",
            "PYPROF_OUTPUT=net.sqlite",
        ),
        (LIGHTNING, "", "PYPROF_STEPS=2:4"),
    ],
    ids=["accelerate", "lightning"],
)
def test_ranks_of_other_launchers(
    source: str, launcher: str, variable: str, enabled: Environment, tmp_path: Path
) -> None:
    name, _, value = variable.partition("=")
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / "train.py").write_text(source)
        run = enabled.run(folder, *launcher.split(), "train.py", **{name: value})
        if ABORTED not in run.stderr:
            break
    assert run.returncode == 0, run.stderr
    assert recordings(folder) == ["net.rank0.sqlite", "net.rank1.sqlite"]
    for each in recordings(folder):
        assert numbers(folder / each) == ([2, 3] if name == "PYPROF_STEPS" else [])
        assert any(call.name == "torch.nn.functional.linear" for call in Recorded(folder / each).calls)

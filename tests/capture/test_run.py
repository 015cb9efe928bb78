# SPDX-License-Identifier: Apache-2.0
"""Scripts as their authors wrote them: alone, and under `pyprof run`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import pyprof
from tests.forks import Forks
from tests.waiting import HANG, until

from .conftest import OURS, Recorded

# The story of the original's README: capture one iteration of a loop.
ORIGINAL = """\
import torch
import torch.cuda.profiler as profiler
import pyprof
pyprof.init()

net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
images, labels = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
iters, iter_to_capture = 4, 2
with torch.autograd.profiler.emit_nvtx():
    for iter in range(iters):
        if iter == iter_to_capture:
            profiler.start()
        output = net(images)
        loss = criterion(output, labels)
        loss.backward()
        optimizer.step()
        if iter == iter_to_capture:
            profiler.stop()
print("trained")
"""
ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    """How a run ended."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


def python(folder: Path, *args: str, **environment: str) -> Done:
    """A process of its own; slow to start."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, *args], cwd=folder, env=variables, capture_output=True, text=True, timeout=HANG
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a text as the script net.py under capture, in this process, into net.sqlite."""
    from pyprof.capture.run import run as run_script

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pyprof"])
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    def call(source: str, *args: str) -> Done:
        Path("net.py").write_text(source)
        code = run_script("net.py", list(args), "net.sqlite", 10**6)
        return Done(code, *capsys.readouterr())

    yield call
    pyprof.shutdown()


START, STOP = "            profiler.start()\n", "            profiler.stop()\n"


def test_init_without_a_window_says_how_to_record(compiler_forks: Forks, tmp_path: Path) -> None:
    code, done = compiler_forks.run(
        tmp_path, ORIGINAL.replace(START, "            pass\n").replace(STOP, "            pass\n")
    )
    assert (code, done.stdout) == (0, "trained\n")
    assert done.stderr.count("\n") == 1
    assert "pyprof run SCRIPT" in done.stderr
    assert "torch.cuda.profiler.start()" in done.stderr
    assert os.listdir(tmp_path) == ["net.py"]


def test_original_script_alone_then_parse_and_prof(compiler_forks: Forks, tmp_path: Path) -> None:
    """`python net.py && parse.py net.sqlite > net.dict && prof.py net.dict`, as users of the original type it."""
    assert compiler_forks.run(tmp_path, ORIGINAL)[0] == 0
    folder = ROOT / "pyprof"
    parsed = python(tmp_path, str(folder / "parse" / "parse.py"), "net.sqlite")
    assert parsed.returncode == 0, parsed.stderr
    (tmp_path / "net.dict").write_text(parsed.stdout)
    table = python(tmp_path, str(folder / "prof" / "prof.py"), "--csv", "-c", "dir,op,trace", "net.dict").stdout
    assert '"fprop","conv2d","net.py:15"' in table.replace(f"{tmp_path}/", "")
    assert '"bprop","conv2d","net.py:15"' in table.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("p.start()\ntorch.ones(2)\np.stop()\ntorch.rand(2)\np.start()\ntorch.zeros(2)\np.stop()\ntorch.eye(2)",
         [["torch.ones", "torch.zeros"]]),
        ("with p.profile():\n    torch.ones(2)\ntorch.rand(2)", [["torch.ones"]]),
        ("p.start()\ntorch.ones(2)", [["torch.ones"]]),  # never stopped
        ("p.stop()\ntorch.eye(2)\np.start()\ntorch.ones(2)\np.stop()", [["torch.ones"]]),
        ("with torch.autograd.profiler.emit_nvtx():\n    p.start()\n    torch.ones(2)\n    p.stop()",
         [["torch.ones"]]),
        ("p.start()\ntorch.ones(2)\np.stop()\nwith pyprof.profile():\n    torch.zeros(2)\n",
         [["torch.ones"], ["torch.zeros"]]),
        ("p.start()\ntorch.ones(2)\np.stop()\nraise SystemExit(0)", [["torch.ones"]]),
    ],
)  # fmt: skip
def test_after_init_alone_windows_of_the_cuda_profiler_are_one_file(
    source: str, names: list[list[str]], forks: Forks, tmp_path: Path
) -> None:
    program = f"import pyprof, torch\nimport torch.cuda.profiler as p\npyprof.init()\n{source}\n"
    code, done = forks.run(tmp_path, program)
    assert (code, done.stdout) == (0, "")
    files = ["net.sqlite", "net.1.sqlite"][: len(names)]
    assert sorted(os.listdir(tmp_path)) == sorted(["net.py", *files])
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == files
    found = [Recorded(tmp_path / name) for name in files]
    assert [recorded.names for recorded in found] == names
    assert all(recorded.ops for recorded in found)


def test_a_terminated_program_has_the_windows_that_it_closed(forks: Forks, tmp_path: Path) -> None:
    program = (
        "import os, signal, pyprof, torch\nimport torch.cuda.profiler as p\npyprof.init()\n"
        "p.start()\ntorch.ones(2)\np.stop()\nos.kill(os.getpid(), signal.SIGTERM)\ntorch.zeros(2)\n"
    )
    code, _ = forks.run(tmp_path, program)
    assert code == -15
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones"]


def test_where_no_file_can_be_written_the_windows_of_the_cuda_profiler_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    (tmp_path / "net.sqlite").mkdir()  # a folder has the name
    monkeypatch.chdir(tmp_path)
    pyprof.init()
    for _ in range(2):
        torch.cuda.profiler.start()
        torch.ones(2)
        torch.cuda.profiler.stop()
    with pyprof.profile("other.sqlite"):
        torch.zeros(2)
    pyprof.shutdown()
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("pyprof: net.sqlite ")
    assert second.startswith("other.sqlite: ")
    assert Recorded(tmp_path / "other.sqlite").names == ["torch.zeros"]


def test_after_init_alone_the_cuda_profiler_opens_no_window_where_a_tool_has_the_recording(
    compiler_forks: Forks, tmp_path: Path
) -> None:
    code, done = compiler_forks.run(tmp_path, ORIGINAL, NVPROF_ID="1")
    assert (code, done.stdout, done.stderr) == (0, "trained\n", "")
    assert os.listdir(tmp_path) == ["net.py"]


def test_window_of_a_rank_of_multiprocessing_is_a_file_of_its_own(forks: Forks, tmp_path: Path) -> None:
    source = (
        "import os, multiprocessing, torch, pyprof\nimport torch.cuda.profiler as p\n"
        "def work(rank):\n"
        "    if rank is not None: os.environ.update(RANK=str(rank), WORLD_SIZE='2')\n"
        "    pyprof.init()\n    p.start()\n    torch.ones(2)\n    p.stop()\n"
        "context = multiprocessing.get_context('fork')\n"
        "children = [context.Process(target=work, args=(rank,)) for rank in (0, 1, None)]\n"
        "for child in children: child.start()\n"
        "for child in children: child.join()\n"
    )
    code, done = forks.run(tmp_path, source)
    assert code == 0
    assert sorted(os.listdir(tmp_path)) == ["net.py", "net.rank0.sqlite", "net.rank1.sqlite"], done.stderr
    assert Recorded(tmp_path / "net.rank1.sqlite").names == ["torch.ones"]


def test_calls_of_the_cuda_runtime_open_the_window_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.cudart() of a build with CUDA gives this module; here one stands in for it."""
    import types

    import torch

    runtime = types.ModuleType("cudart")
    started: list[str] = []
    runtime.__dict__.update(
        cudaProfilerStart=lambda: started.append("start") or 0,
        cudaProfilerStop=lambda: started.append("stop") or 0,
    )
    monkeypatch.setattr(torch._C, "_cudart", runtime, raising=False)
    monkeypatch.chdir(tmp_path)
    before = dict(vars(runtime))
    pyprof.init()
    assert runtime.cudaProfilerStart() == 0
    torch.ones(2)
    assert runtime.cudaProfilerStop() == 0
    torch.zeros(2)
    pyprof.shutdown()
    assert started == ["start", "stop"]
    assert vars(runtime) == before
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones"]


@pytest.mark.parametrize(
    "way",
    ["alone", "run", *(pytest.param(way, marks=pytest.mark.long) for way in ("environment", "process"))],
)
def test_original_script_recorded_is_its_window(way: str, compiler_forks: Forks, tmp_path: Path) -> None:
    if way == "process":  # which has imported nothing
        (tmp_path / "net.py").write_text(ORIGINAL)
        code, stdout, stderr = python(tmp_path, "-m", "pyprof", "run", "--quiet", "net.py")
    else:
        environment = {"PYPROF_OUTPUT": "net.sqlite"} if way == "environment" else {}
        code, done = compiler_forks.run(tmp_path, ORIGINAL, *(["run"] if way == "run" else []), **environment)
        stdout, stderr = done.stdout, done.stderr
    assert (code, stdout) == (0, "trained\n"), stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == [
        "torch.nn.functional.conv2d",
        "torch.nn.functional.relu",
        "Tensor.flatten",
        "torch.nn.functional.linear",
        "torch.nn.functional.cross_entropy",
        "torch.ones_like",
        "torch.optim.SGD.step",
    ]
    around = way in ("environment", "alone")  # a line of what forks
    assert recorded.calls[0].user_lines[around:] == [f"{tmp_path}/net.py:15"]
    assert {op.name for op in recorded.ops} >= {"aten::mkldnn_convolution", "ConvolutionBackward0"}
    assert stderr.startswith("net.sqlite: ")
    assert stderr.count("\n") == 1


def test_without_a_window_of_its_own_the_whole_script_is_recorded(tmp_path: Path, run: Run) -> None:
    done = run("import torch\ntorch.ones(2).exp()\n")
    assert done.returncode == 0
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == ["torch.ones", "Tensor.exp"]
    assert recorded.calls[0].marker.trace == (f"{tmp_path}/net.py:2",)
    assert done.stderr.startswith("net.sqlite: ")


def test_script_sees_what_python_would_give_it(tmp_path: Path, run: Run) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    source = (
        "import pickle, sys, __main__, beside\n"
        "class A: pass\n"
        "assert type(pickle.loads(pickle.dumps(A()))) is A\n"
        "print(__name__, __file__, sys.argv, __main__.A.__module__, beside.value)\n"
    )
    done = run(source, "--lr", "1")
    assert done.stdout == f"__main__ {tmp_path}/net.py ['net.py', '--lr', '1'] __main__ 7\n"


@pytest.mark.parametrize(
    ("ending", "code", "error"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('gone wrong')", 1, "gone wrong\n"),
        ("raise ValueError('mine')", 1, "ValueError: mine\n"),
        ("def f(): raise KeyboardInterrupt\nf()", 130, "KeyboardInterrupt\n"),
    ],
)
def test_the_script_ends_as_it_would_and_the_file_is_written(
    ending: str, code: int, error: str, tmp_path: Path, run: Run
) -> None:
    done = run(f"import sys, torch\ntorch.ones(2)\n{ending}\n")
    assert done.returncode == code
    assert error in done.stderr
    assert OURS not in done.stderr
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones"]


def test_traceback_is_the_scripts_own(tmp_path: Path, run: Run) -> None:
    source = "def f(x):\n    return x + '1'\nf(2)\n"
    (tmp_path / "net.py").write_text(source)
    plain = python(tmp_path, "net.py").stderr
    assert run(source).stderr.startswith(plain)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("with pyprof.profile():\n    torch.ones(2)\ntorch.zeros(2)", ["torch.ones"]),
        ("pyprof.start()\ntorch.ones(2)\npyprof.stop()\ntorch.zeros(2)", ["torch.ones"]),
        (
            "torch.ones(2)\npyprof.step()\ntorch.zeros(2)\npyprof.step()",
            ["torch.eye", "torch.ones", "torch.zeros"],
        ),
        (
            "import torch.cuda.profiler as p\np.start()\ntorch.ones(2)\np.stop()\ntorch.rand(2)\n"
            "p.start()\ntorch.zeros(2)\np.stop()",
            ["torch.ones", "torch.zeros"],
        ),
    ],
)
def test_a_window_of_the_script_replaces_the_whole_run(source: str, names: list[str], tmp_path: Path, run: Run) -> None:
    done = run(f"import pyprof, torch\ntorch.eye(2)\n{source}\n")
    assert done.returncode == 0, done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == names
    assert len(recorded.query("select * from PYPROF_STEP")) == source.count("step()")
    assert os.listdir(tmp_path).count("net.sqlite") == 1


def test_script_with_its_own_profiler_keeps_its_trace(tmp_path: Path, run: Run) -> None:
    source = (
        "import torch\nwith torch.profiler.profile(acc_events=True) as p:\n    torch.ones(2).exp()\n"
        "print(sum(e.name == 'aten::exp' for e in p.events()))\ntorch.zeros(2)\n"
    )
    done = run(source)
    assert done.stdout == "1\n"
    assert "its own torch.profiler" in done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == ["torch.ones", "Tensor.exp", "torch.zeros"]
    assert recorded.table("PYPROF_META")["layers"] == "sites"


def test_threads_that_the_script_leaves_behind_are_recorded(tmp_path: Path, run: Run) -> None:
    source = (
        "import threading, time, torch\n"
        "def work():\n    time.sleep(0.1)\n    torch.ones(2).exp()\n"
        "threading.Thread(target=work).start()\n"
    )
    assert run(source).returncode == 0
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones", "Tensor.exp"]


_LEFT_BEHIND = {
    "open executor": (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"
        "print(pool.submit(lambda: torch.ones(3).exp().numel()).result())\n"
    ),
    "exit hook": (
        "import threading\nevent = threading.Event()\nthreading._register_atexit(event.set)\n"
        "threading.Thread(target=lambda: [event.wait(), print(torch.ones(3).exp().numel())]).start()\n"
    ),
    "later thread": (
        "import sys, threading\nevent = threading.Event()\n"
        "def last(): print(torch.ones(3).exp().numel())\n"
        "def second(): event.wait(); threading.Thread(target=last).start()\n"
        "def first(): threading.main_thread().join(0.05); event.set()\n"
        "threading.Thread(target=second).start()\nthreading.Thread(target=first).start()\nsys.exit(3)\n"
    ),
    "error": (
        "import atexit, threading\natexit.register(print, 'atexit')\n"
        "threading.Thread(target=lambda: print(torch.ones(3).exp().numel())).start()\nraise ValueError('mine')\n"
    ),
    "executor of a loop": (
        "import asyncio\nloop = asyncio.new_event_loop()\n"
        "print(loop.run_until_complete(loop.run_in_executor(None, lambda: torch.ones(3).exp().numel())))\n"
    ),
    "open pools of processes": (
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "pool, executor = multiprocessing.Pool(2), ProcessPoolExecutor(2)\n"
        "print(pool.map(abs, range(4)), list(executor.map(abs, range(4))), torch.ones(3).exp().numel())\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("left", _LEFT_BEHIND)
def test_run_ends_when_the_program_would(left: str, forks: Forks, tmp_path: Path) -> None:
    source = f"import torch\n{_LEFT_BEHIND[left]}"
    whole = forks.whole()
    code, plain = whole.run(tmp_path, source)
    recorded_code, done = whole.run(tmp_path, source, "run")
    assert (recorded_code, done.stdout) == (code, plain.stdout)
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones", "Tensor.exp"]


@pytest.mark.long
def test_run_ends_although_the_compiler_left_its_pool_open(compiler_forks: Forks, tmp_path: Path) -> None:
    source = (
        "import torch\nnet = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()))\n"
        "net(torch.ones(2, 4)).sum().backward()\nprint('trained')\n"
    )
    code, done = compiler_forks.whole().run(tmp_path, source, "run", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "empty"))
    assert (code, done.stdout) == (0, "trained\n"), done.stderr
    assert Recorded(tmp_path / "net.sqlite").ops


def test_a_program_that_leaves_at_once_does_so(forks: Forks, tmp_path: Path) -> None:
    code, done = forks.run(tmp_path, "import os, torch\ntorch.ones(2)\nos._exit(7)\n", "run")
    assert (code, done.stderr) == (7, "")
    assert os.listdir(tmp_path) == ["net.py"]


@pytest.mark.parametrize(
    "start", ["threading.Thread(target=wait, name='stuck')", "ThreadPoolExecutor(1, 'stuck').submit(wait)"]
)
def test_a_thread_that_does_not_end_is_named_and_ctrl_c_writes(start: str, forks: Forks, tmp_path: Path) -> None:
    source = (
        "import atexit, threading, torch\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "atexit.register(print, 'atexit')\n"
        "def wait():\n    threading.Event().wait()\n"
        f"torch.ones(2)\nthread = {start}\ngetattr(thread, 'start', int)()\n"
    )
    prelude = "import pyprof.capture.run as run\nrun._PATIENCE = 0.1\n"
    program = forks.start(tmp_path, source, "run", prelude=prelude)
    until(lambda: program.err.exists() and "the script is over" in program.stderr)
    program.signal(signal.SIGINT)
    assert (program.wait(), program.stdout) == (0, "atexit\n")
    (line,) = [line for line in program.stderr.splitlines() if line.startswith("pyprof: ")]
    assert "'stuck" in line
    assert f"{tmp_path}/net.py:5" in line
    assert Recorded(tmp_path / "net.sqlite").names == ["torch.ones"]


def test_workers_of_a_data_loader_are_quiet(tmp_path: Path, run: Run) -> None:
    source = (
        "import torch\n"
        "class D(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return torch.ones(2) * i\n"
        "if __name__ == '__main__':\n"
        "    for batch in torch.utils.data.DataLoader(D(), 2, num_workers=1): batch.exp()\n"
    )
    done = run(source)
    assert done.returncode == 0, done.stderr
    names = Recorded(tmp_path / "net.sqlite").names
    assert names.count("Tensor.exp") == 2
    assert "Tensor.__mul__" not in names
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_script_on_stdin_runs_as_python_runs_it(tmp_path: Path) -> None:
    source = (
        "import sys, os\n"
        "print(sys.argv, sys.path[0], __name__, __file__, sys.stdin.read(), os.getcwd())\n"
        "import torch\ntorch.ones(2).exp()\nraise SystemExit(3)\n"
    )

    def ends(*command: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, *command, "-", "--lr", "1"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, input=source, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, out, err = ends("-m", "pyprof", "run")
    assert (code, out) == ends()[:2]
    assert err.startswith("net.sqlite: ")
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == ["torch.ones", "Tensor.exp"]
    assert recorded.calls[1].marker.trace == ("<stdin>:4",)


def test_a_closed_stdin_is_a_usage_error(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m pyprof run - <&-"
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("pyprof run: - cannot be read")


def test_missing_script_is_a_usage_error() -> None:
    from pyprof.capture.run import run as run_script
    from pyprof.core.errors import UsageError

    with pytest.raises(UsageError, match=r"nowhere\.py cannot be read"):
        run_script("nowhere.py", [], "net.sqlite", 10)


GONE = "import os, shutil, sys, torch\ntorch.ones(2) + 1\n{}\nsys.exit({})\n"


@pytest.mark.parametrize(
    ("gone", "code", "words", "expected"),
    [
        (True, 0, ["--strict"], 74),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in ((True, 0, [], 0), (True, 3, ["--strict"], 3), (False, 0, ["--strict"], 0))
        ),
    ],
)
def test_a_recording_that_could_not_be_written(
    gone: bool, code: int, words: list[str], expected: int, tmp_path: Path
) -> None:
    """By default the exit code is the script's: a training that ran has not failed."""
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(GONE.format("shutil.rmtree('out')" if gone else "", code))
    done = python(tmp_path, "-m", "pyprof", "run", *words, "--quiet", "-o", "out/net.sqlite", "train.py")
    assert done.returncode == expected, done.stderr
    assert ("could not be written" in done.stderr.splitlines()[-1]) is gone

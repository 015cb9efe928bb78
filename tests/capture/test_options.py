# SPDX-License-Identifier: Apache-2.0
"""What is recorded on request as a whole: how it is asked for, that it changes nothing, and its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyprof
from pyprof.capture.core.options import Given, options
from pyprof.commands.main import main
from pyprof.core.errors import UsageError
from pyprof.parse import loader
from tests.forks import Forks

from .conftest import OURS, Recorded

Record = Callable[..., Recorded]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
ALL: dict[str, Any] = {"memory": True, "io": True, "api_backtrace": 0, "sample": "cpu"}
TABLES = {"PYPROF_MEMORY", "PYPROF_IO", "PYPROF_API", "PYPROF_STACK", "PYPROF_SAMPLE"}
SCRIPT = """\
import sys, torch
x = torch.zeros(3)
torch.save(x, sys.argv[1])
x.sum().item()
"""

# What users of nsys profile and of dlprof give them.
NSYS = """
    -w true | -t cuda | -t nvtx | -t osrt | -t cudnn | -t cublas | -s cpu | -s none | -o | -f true
    | --capture-range=cudaProfilerApi | --stop-on-range-end=true | --cudabacktrace=true | --cudabacktrace-threshold=
    | --osrt-threshold= | -x true
"""
DLPROF = """
    -h | --help | -V | --version | -f | --force= | -v | --verbosity= | -m | --mode= | --nsys_database=
    | --nsys_base_name=
    | --nsys_opts= | -y | --delay= | -d | --duration= | --key_node= | --key_op= | --iter_start= | --iter_stop=
    | --output_path= | --profile_name= | --reports= | --formats= | --domains= | --dump_model_data= | --tb_dir= | -b
    | --suppress_tb_files=
"""


def rows(heading: str) -> list[tuple[str, str]]:
    """Option and ours of each row of the table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(option.strip(), " | ".join(ours).strip()) for option, *ours in cells]


@pytest.mark.parametrize(("heading", "listed"), [("Nsight Systems", NSYS), ("DLProf", DLPROF)])
def test_the_page_names_every_option_and_says_something_of_it(heading: str, listed: str) -> None:
    named = {span: ours for option, ours in rows(heading) for span in re.findall("`([^`]+)`", option)}
    options = [option.strip() for option in listed.split("|")]
    assert [option for option in options if option not in named] == []
    assert all(ours.startswith(("always", "not yet", "not applicable")) or "`" in ours for ours in named.values())


def test_every_option_of_ours_on_the_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    spans = re.findall(r"`(pyprof [^`]*)`", PAGE)
    assert len(spans) > 20
    for span in spans:
        command, *words = span.split()[1:]
        words = [command, *words] if command.startswith("-") else words
        arguments = ["--help"] if command.startswith("-") else [command, "--help"]
        with pytest.raises(SystemExit):
            main(arguments)
        known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", capsys.readouterr().out))
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert flags <= known, span


def test_every_option_of_a_recording_is_on_the_page_and_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    for name in Given.__annotations__:
        assert f"`{name}=" in PAGE
        option = name.replace("_", "-")
        assert f"--{option}" in text
        assert f"`pyprof run --{option}" in PAGE


def test_the_command_line_asks_for_all_four(forks: Forks, tmp_path: Path) -> None:
    words = ["run", "--memory", "--io", "--api_backtrace=0", "-s", "cpu"]
    code, done = forks.run(tmp_path, SCRIPT, *words, arguments=["net.pt"])
    assert code == 0, done.stderr
    recorded = Recorded(tmp_path / "net.sqlite")
    facts = recorded.table("PYPROF_META")
    assert int(facts["memory.events"]) > 0
    assert (facts["io.accesses"], facts["api_backtrace.threshold_ns"]) == ("1", "0")
    assert "samples" in facts
    frames = [frame for (frame,) in recorded.query("select value from PYPROF_STACK join StringIds s on frameId = s.id")]
    assert f"{tmp_path / 'net.py'}:4" in frames
    assert not [frame for frame in frames if frame.startswith(OURS) or "runpy" in frame]


@pytest.mark.parametrize(
    ("words", "least"),
    [(["--api_backtrace", "--io"], 10_000), (["--api_backtrace", "77"], 77), (["--io"], None)],
)
def test_the_threshold_of_the_command_line(
    words: list[str], least: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr("pyprof.capture.run.run", lambda *arguments: given.append(arguments[5]) or 0)
    assert main(["run", "--quiet", *words, "train.py"]) == 0
    assert options(given[0]).api_backtrace == least


@pytest.mark.parametrize("text", ["train.py", "-1", "1.5", "1_000", ""])
def test_a_threshold_that_is_no_number_is_a_sentence(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", f"--api_backtrace={text}", "train.py"])
    assert left.value.code == 2
    assert "before a script name use --api-backtrace=10000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sample": "gpu"}, "expected 'cpu' or 'none'"),
        ({"api_backtrace": -1}, "expected nanoseconds"),
        ({"api_backtrace": "10"}, "expected nanoseconds"),
        ({"memroy": True}, "memroy is not an option of a recording"),
    ],
)
def test_what_is_no_option_is_a_sentence(given: Any, said: str, tmp_path: Path) -> None:
    path = str(tmp_path / "net.sqlite")
    for ask in (pyprof.profile, pyprof.start, pyprof.init):
        with pytest.raises(UsageError, match=said):
            ask(path, **given)
    assert list(tmp_path.iterdir()) == []


def names(recorded: Recorded) -> set[str]:
    return {name for (name,) in recorded.query("select name from sqlite_master")} & TABLES


def test_what_init_asks_for_holds_for_later_windows_until_shutdown(tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    pyprof.init(io=True, memory=True)
    for given, expected in [({}, {"PYPROF_IO", "PYPROF_MEMORY"}), ({"io": False}, {"PYPROF_MEMORY"})]:
        with pyprof.profile(str(path), **given):  # type: ignore[arg-type]
            torch.empty(1)
        assert names(Recorded(path)) == expected
    pyprof.shutdown()
    with pyprof.profile(str(path)):
        torch.empty(1)
    pyprof.shutdown()
    assert names(Recorded(path)) == set()


def test_without_them_nothing_of_them_is_loaded(forks: Forks, tmp_path: Path) -> None:
    code = """
import sys, torch, pyprof
with pyprof.profile("net.sqlite"):
    assert "synchronize" in vars(torch.cpu) and type(torch.cpu).__name__ == "module"
    assert type(open).__name__ == "builtin_function_or_method"
    torch.empty(1).item()
print(*sorted(name for name in sys.modules if name.startswith("pyprof.capture.")))
"""
    status, done = forks.run(tmp_path, code)
    assert status == 0, done.stderr
    loaded = done.stdout.split()
    assert "pyprof.capture.session" in loaded
    modules = ("allocations", "file_access", "api_stacks", "sampler", "stack_rows")
    assert not {f"pyprof.capture.extras.{name}" for name in modules} & set(loaded)
    for name in modules:
        assert (ROOT / "pyprof" / "capture" / "extras" / f"{name}.py").exists()


def encoder(train: bool) -> Any:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).train(train)
    x = torch.randn(2, 5, 16)
    if not train:
        with torch.no_grad():
            return [net(x)]
    net(x).square().sum().backward()
    return [parameter.grad for parameter in net.parameters()]


def reads() -> Any:
    """Everything that brings a value to Python, in a loop that depends on it."""
    x = torch.rand(4)
    while x.sum() < 100:
        x = x * (1 + float(x.max())) + x.tolist()[0] + [0.5, 0.25][(x > 1).any().long()]
    return [x, torch.tensor(x.numpy().sum()), torch.tensor(x.mean().item()), torch.tensor(1 in x)]


def scripted() -> Any:
    module = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return [module(torch.randn(2, 4)), torch.jit.trace(nn.GELU(), torch.randn(2))(torch.randn(2))]


def compiled_model() -> Any:
    torch._dynamo.reset()
    body = torch.compile(lambda x: F.relu(torch.add(x, x)).mul(2), backend="eager", fullgraph=True)
    return [body(torch.randn(3, 4))]


def scaled() -> Any:
    net = nn.Linear(4, 2)
    optimizer, scaler = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cpu")
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.randn(3, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return [*net.parameters(), torch.tensor(scaler.get_scale())]


def transforms() -> Any:
    x = torch.randn(3, 4)
    return [torch.func.vmap(torch.func.grad(lambda row: (row * row).sin().sum()))(x)]


@pytest.mark.parametrize(
    "model",
    [lambda: encoder(True), lambda: encoder(False), reads, scripted, compiled_model, scaled, transforms],
    ids=["encoder", "fast path", "reads", "jit", "compile", "amp", "vmap of grad"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_results_with_all_of_them_are_bit_for_bit_the_same(model: Callable[[], Any], record: Record) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(3)
        return model()  # type: ignore[no-any-return]

    results = [run()]
    recorded = record(lambda: results.append(run()), **ALL)
    assert len(results[0]) == len(results[1]) > 0
    assert all(torch.equal(one, other) for one, other in zip(*results))
    assert names(recorded) == TABLES


def test_values_that_a_program_reads_and_compiles_are_the_same(record: Record, tmp_path: Path) -> None:
    """A compiled function that waits and reads a file is not compiled again when the window opens or closes."""
    compiled = 0

    def backend(module: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return module.forward

    path = tmp_path / "x.pt"
    torch.save(torch.tensor(3.0), path)

    @torch.compile(backend=backend)
    def body(x: torch.Tensor) -> Any:
        y = x * 2
        torch.cpu.synchronize()
        if y.sum() > 1:
            y = y + float(y[0]) + torch.load(path)
        return y

    x = torch.ones(4)
    torch._dynamo.reset()
    results = [body(x), body(x)]
    once = compiled
    record(lambda: results.append(body(x)), **ALL)
    results.append(body(x))
    assert compiled == once > 0
    assert all(torch.equal(result, results[0]) for result in results)


def test_a_fault_in_an_option_is_counted_and_the_others_go_on(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("pyprof.capture.extras.file_access.FileAccess.start", fails)
    recorded = record(lambda: torch.ones(1).item(), **ALL)
    assert [count for reason, count in recorded.table("PYPROF_LOST").items() if "fails failed (OSError)" in reason] == [
        1
    ]
    assert recorded.query("select count(*) from PYPROF_API")[0][0] == 1


def test_the_file_is_read_and_info_shows_how_many_rows_there_are(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_text("one")

    def body() -> None:
        torch.ones(3).sum().item()
        path.read_bytes()

    recorded = record(body, **ALL)
    assert len(loader.load(recorded.path).io) == 1
    assert main(["info", str(recorded.path)]) == 0
    shown = dict(re.findall(r"^  (\S+) +(.+)$", capsys.readouterr().out, re.M))
    assert shown["memory.events"] == str(recorded.query("select count(*) from PYPROF_MEMORY")[0][0]) != "0"
    assert (shown["io"], shown["io.accesses"]) == ("1", "1")
    assert "samples" in shown


@pytest.mark.parametrize("number", [0, -1])
def test_a_bound_that_keeps_nothing_is_a_sentence(number: int, tmp_path: Path) -> None:
    path = str(tmp_path / "net.sqlite")
    for begin in (pyprof.profile, pyprof.start, pyprof.init):
        with pytest.raises(UsageError, match=f"max_events={number}: expected 1 or more"):
            begin(path, max_events=number)

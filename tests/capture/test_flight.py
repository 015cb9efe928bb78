# SPDX-License-Identifier: Apache-2.0
"""The last steps are in memory, and written with a verdict when something goes wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

import pyprof
from pyprof.capture.flight_verdict import Evidence, Extra, failure, verdict
from pyprof.capture.output.capture_file import StepRow
from pyprof.capture.output.merge_calls import CallRow
from pyprof.core.errors import PyProfError
from pyprof.core.marker import encode
from pyprof.core.model import Arg, Call, Tensor
from pyprof.core.units import duration
from pyprof.overview.figures import figures
from tests.forks import Forks

from .conftest import Recorded

PROGRAM = """
import os, signal, threading, time
import torch, pyprof
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4, 8)
def train(steps, planted=lambda: None, at=40):
    for step in range(steps):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if step == at: planted()
        optimizer.step()
"""


@pytest.fixture
def forks(compiler_forks: Forks) -> Forks:
    """The programs have an optimizer."""
    return compiler_forks


def run(forks: Forks, folder: Path, program: str, code: int = 0) -> str:
    status, done = forks.run(folder, PROGRAM + program)
    assert status == code, done.stderr
    return str(done.stderr)


def line(program: str, text: str) -> int:
    """The number of the line that a text stands in."""
    lines = (PROGRAM + program).splitlines()
    return next(number for number, each in enumerate(lines, 1) if text in each)


def read(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        facts = dict(connection.execute("select name, value from PYPROF_META where name like 'flight.verdict.%'"))
    return [facts[f"flight.verdict.{number}"] for number in range(len(facts))]


PLANTED = {
    "a slow call": ("torch.stack([torch.ones(200, 200)] * 400).sort()  # planted", 0, "A step was slow."),
    "a wait": ("time.sleep(0.4)  # planted", 0, "A step was slow."),
    "an exception": ("{}['key']  # planted", 1, "An exception at {line}: KeyError: 'key'"),
    "a signal": ("os.kill(os.getpid(), signal.SIGUSR1)  # planted", 0, "SIGUSR1 came at {line}."),
    "memory": ("torch.empty(10**15)  # planted", 1, "Out of memory at {line}: RuntimeError: "),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_verdict_names_the_line(name: str, forks: Forks, tmp_path: Path) -> None:
    statement, code, first = PLANTED[name]
    program = f"def planted():\n    {statement}\npyprof.flight(steps=20, most=1000)\ntrain(2000, planted, at=1500)\n"
    said = run(forks, tmp_path, program, code)
    # On a busy machine another step may be slow as well.
    file = next(path for path in tmp_path.glob("flight*.sqlite") if read(path)[1].startswith("Step 1500 "))
    sentences = read(file)
    place = f"net.py:{line(program, '# planted')}"
    assert sentences[0].replace(str(tmp_path / "net.py"), "net.py").startswith(first.format(line=place))
    assert any(place in sentence for sentence in sentences)
    assert all(f"{file.name}: {sentence}\n" in said for sentence in sentences)
    assert ("Traceback" in said) == bool(code)
    recorded = Recorded(file)
    steps = [number for (number,) in recorded.query("select number from PYPROF_STEP order by start")]
    assert steps == list(range(1501 - len(steps), 1501))
    assert len(steps) <= 21
    assert {op.name for op in recorded.ops} >= {"linear", "SGD.step"}


def test_a_slow_backward(forks: Forks, tmp_path: Path) -> None:
    program = """
def wait(gradient):
    if number == 30: time.sleep(0.4)
model.weight.register_hook(wait)
pyprof.flight(most=1000)
for number in range(40):
    loss = model(x).sum()
    loss.backward()  # planted
    optimizer.step()
"""
    run(forks, tmp_path, program)
    file = next(path for path in tmp_path.glob("*.sqlite") if read(path)[1].startswith("Step 30 "))
    assert read(file)[2].startswith(f"torch.autograd.backward at {tmp_path}/net.py:{line(program, '# planted')} took ")


def test_a_record_is_a_profile(forks: Forks, tmp_path: Path) -> None:
    run(forks, tmp_path, "record = pyprof.flight(slow=1e9)\ntrain(60, lambda: record.dump('Asked.'))\n")
    profile = pyprof.load(tmp_path / "flight.sqlite")
    assert profile.report("step_time")["step"].tolist() == list(range(20, 40))
    linear = profile.kernels[profile.kernels["op"] == "linear"]
    assert len(linear) == 21  # with that of the step in which the record was written
    assert set(linear["flops"]) == {2 * 4 * 8 * 8}  # 4 rows times 8x8; the bias is not counted
    backward = profile.kernels[profile.kernels["phase"] == "backward"]
    assert set(backward["op"]) == {"backward"}
    assert backward["flops"].isna().all()  # of operators that were not recorded
    assert set(profile.kernels["phase"]) == {"forward", "backward", "optimizer"}
    sentences = read(tmp_path / "flight.sqlite")
    assert sentences[0] == "Asked."
    assert list(figures(profile.source()).verdict) == sentences


def test_a_step_that_does_not_end(forks: Forks, tmp_path: Path) -> None:
    program = """
def planted():
    while not os.path.exists("flight.sqlite"):
        time.sleep(0.01)  # planted
pyprof.flight(stall=0.3, slow=1e9)
train(60, planted)
"""
    run(forks, tmp_path, program)
    sentences = read(tmp_path / "flight.sqlite")
    assert sentences[0].startswith("A step has not ended after ")
    assert sentences[1].startswith("Step 40 has run for ")
    assert f"net.py:{line(program, '# planted')} (in planted)" in sentences[-1]


def test_a_signal_to_a_step_that_does_not_end(forks: Forks, tmp_path: Path) -> None:
    program = """
def planted():
    os.kill(os.getpid(), signal.SIGUSR1)
    while not os.path.exists("flight.sqlite"):
        time.sleep(0.01)
pyprof.flight(slow=1e9)
train(60, planted)
"""
    run(forks, tmp_path, program)
    assert read(tmp_path / "flight.sqlite")[0].startswith("SIGUSR1 came at ")


def test_what_is_kept_has_a_bound(forks: Forks, tmp_path: Path) -> None:
    program = """
from pyprof.capture import flight
from pyprof.capture.instrument.recorder import recorder
flight._CALLS, flight._DESCRIPTIONS = 300, 50
record = pyprof.flight(steps=10, slow=1e9)
longest = 0
for n in range(2000):
    torch.add(x, 1)
    longest = max(longest, *(len(state.calls) // 6 for state in recorder.threads))
assert longest <= 301, longest
train(400)
assert max(len(state.calls) // 6 for state in recorder.threads) < 11 * 8
for size in range(1, 300):
    torch.ones(size)
    train(1)
    assert len(recorder.keys) < 70, len(recorder.keys)
record.stop()
assert not any(state.calls for state in recorder.threads)
"""
    run(forks, tmp_path, program)
    assert not list(tmp_path.glob("*.sqlite"))


def test_windows_go_before(forks: Forks, tmp_path: Path) -> None:
    """The flight record gives way to a window, and begins anew after it."""
    program = """
record = pyprof.flight(output="flight.sqlite", slow=1e9)
train(30)
with pyprof.profile("net.sqlite"):
    train(3)
train(10)
assert record.dump("asked") == "flight.sqlite"
train(8)
assert record.dump() == "flight.1.sqlite"
with pyprof.profile("later.sqlite"):
    train(1)
pyprof.shutdown()
assert record.dump() is None
"""
    run(forks, tmp_path, program)
    assert Recorded(tmp_path / "net.sqlite").query("select count(*) from PYPROF_OP") > [(50,)]
    assert Recorded(tmp_path / "later.sqlite").ops
    numbers = [
        [number for (number,) in Recorded(tmp_path / name).query("select number from PYPROF_STEP order by start")]
        for name in ("flight.sqlite", "flight.1.sqlite")
    ]
    assert numbers == [list(range(30, 40)), list(range(40, 48))]


def test_ranges_that_init_asked_for_go_on(forks: Forks, tmp_path: Path) -> None:
    program = """
from pyprof.capture.instrument.recorder import recorder
pyprof.init(nvtx="registered")
assert recorder.ranges is not None
with pyprof.flight(slow=1e9) as record:
    train(10)
    assert recorder.ranges is not None
    assert record.dump() == "flight.sqlite"
train(1)
assert recorder.ranges is not None
"""
    run(forks, tmp_path, program)
    assert Recorded(tmp_path / "flight.sqlite").query("select count(*) from PYPROF_STEP") == [(10,)]


def test_nothing_stays_behind(forks: Forks, tmp_path: Path) -> None:
    program = """
import gc, sys
def state():
    return (sys.excepthook, threading.excepthook, signal.getsignal(signal.SIGUSR1), list(gc.callbacks),
            torch.nn.Module.__call__, torch.add, threading.active_count())
before = state()
with pyprof.flight(slow=1e9) as record:
    assert all(a is not b for a, b in zip(before[:3], state()))
    train(10)
pyprof.shutdown()
while threading.active_count() > before[-1]: time.sleep(0.01)
assert state() == before
"""
    assert not run(forks, tmp_path, program)


def test_threads_train_beside(forks: Forks, tmp_path: Path) -> None:
    """Calls of all threads are kept as long as the steps of the first."""
    program = """
from pyprof.capture import flight
flight._CALLS = 2000
def other():
    model = torch.nn.Linear(8, 8)
    for _ in range(500): model(x).sum().backward()
record = pyprof.flight(slow=1e9)
threads = [threading.Thread(target=other) for _ in range(3)]
for thread in threads: thread.start()
train(300)
for thread in threads: thread.join()
train(20)
record.dump()
"""
    assert "pyprof:" not in run(forks, tmp_path, program)
    numbers = Recorded(tmp_path / "flight.sqlite").query("select number from PYPROF_STEP order by start")
    assert [number for (number,) in numbers] == list(range(300, 320))


def test_exceptions_of_a_thread_and_of_a_with(forks: Forks, tmp_path: Path) -> None:
    program = """
try:
    with pyprof.flight(output="with.sqlite", slow=1e9):
        train(10, lambda: 1 / 0, at=9)
except ZeroDivisionError:
    pass
with pyprof.flight(output="thread.sqlite", slow=1e9):
    thread = threading.Thread(target=train, args=(10, lambda: 1 / 0, 9))
    thread.start()
    thread.join()
"""
    run(forks, tmp_path, program)
    for name in ("with", "thread"):
        assert "ZeroDivisionError: division by zero" in read(tmp_path / f"{name}.sqlite")[0]


def test_a_forked_child_writes_none(forks: Forks, tmp_path: Path) -> None:
    program = """
pyprof.flight(slow=1e9)
train(10)
child = os.fork()
if not child:
    train(10)
    train(10, lambda: 1 / 0, at=5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
assert not os.path.exists("flight.sqlite")
train(10)
"""
    assert run(forks, tmp_path, program).count("ZeroDivisionError: division by zero") == 1


def test_a_file_that_cannot_be_written(forks: Forks, tmp_path: Path) -> None:
    program = """
record = pyprof.flight(output="folder/flight.sqlite", slow=1e9)
os.rmdir("folder")
train(10, record.dump, 9)
train(10)
assert record.dump() is None
assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
"""
    (tmp_path / "folder").mkdir()
    said = run(forks, tmp_path, program)
    assert said.startswith("pyprof: folder/flight.sqlite: the recording could not be written")
    assert said.count("\n") == said.count("pyprof: folder/flight.sqlite")


def test_a_handler_of_the_program_stays(forks: Forks, tmp_path: Path) -> None:
    program = """
def mine(*_): print("mine")
signal.signal(signal.SIGUSR1, mine)
pyprof.flight(slow=1e9)
train(10, lambda: os.kill(os.getpid(), signal.SIGUSR1), 5)
"""
    assert "SIGUSR1 has a handler of the program's own" in run(forks, tmp_path, program)
    assert not list(tmp_path.glob("*.sqlite"))


WRONG = {
    "steps": ({"steps": 2}, "steps=2"),
    "no number of steps": ({"steps": "a"}, "steps='a'"),
    "slow": ({"slow": 1.0}, "a factor above 1"),
    "not a number": ({"slow": float("nan")}, "a factor above 1"),
    "stall": ({"stall": 0}, "above 0"),
    "signal": ({"on_signal": "SIGNAL"}, "not a signal of this system"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    arguments, message = WRONG[name]
    with pytest.raises(PyProfError, match=message):
        pyprof.flight(**arguments)  # type: ignore[arg-type]


MS = 1_000_000
LINE, OTHER = "/home/user/train.py:7", "/home/user/train.py:9"


def call(start: int, ms: int, op: str, place: str = LINE, shape: tuple[int, ...] = (2, 3)) -> CallRow:
    text = encode(Call("torch", op, (Arg("", Tensor(shape, "float32")), Arg("", 1))), trace=(place,))
    return CallRow(start, start + ms * MS, 1, text)


def evidence(last: Sequence[CallRow], ms: int, computed: int | None = None, garbage: int = 0) -> Evidence:
    """Six steps of 10 ms of which `add` takes 4, and a last one that begins at 100 ms."""
    steps = [StepRow(n, n * 10 * MS, (n + 1) * 10 * MS, 1) for n in range(6)]
    calls = [call(n * 10 * MS + 1, 4, "add") for n in range(6)]
    extras = [Extra(0, 10 * MS)] * 6
    step = StepRow(6, 100 * MS, (100 + ms) * MS, 1)
    return Evidence([*steps, step], [*calls, *last], [*extras, Extra(garbage * MS, computed)], {}, False)


AT = 100 * MS
VERDICTS = {
    "a slower call": (
        evidence([call(AT, 84, "add")], 90),
        [f"torch.add at {LINE} took 84.0 ms, 4.00 ms in the others."],
    ),
    "another shape": (
        evidence([call(AT, 84, "add", shape=(9, 9))], 90),
        [f"torch.add at {LINE} took 84.0 ms, 4.00 ms in the others; only this step calls it with (9x9, 1)."],
    ),
    "a new call": (
        evidence([call(AT, 4, "add"), call(AT + 5 * MS, 30, "mm", OTHER)], 40),
        [f"torch.mm at {OTHER} took 30.0 ms; no other step calls it there."],
    ),
    "a short new call": (
        evidence([call(AT, 4, "add"), call(AT + 5 * MS, 1, "mm", OTHER)], 11),
        [f"Only this step calls torch.mm at {OTHER}."],
    ),
    "outside": (
        evidence([call(AT, 4, "add")], 104, computed=10 * MS),
        ["100 ms passed outside of torch's functions, 6.00 ms in the others.",
         "Its thread computed for 10.0 ms of that: it waited for the rest."],
    ),
    "garbage": (
        evidence([call(AT, 94, "add")], 100, computed=100 * MS, garbage=90),
        [f"torch.add at {LINE} took 94.0 ms, 4.00 ms in the others.",
         "90.0 ms went into Python's garbage collection, 0 ns in the others."],
    ),
    "like the others": (evidence([call(AT, 4, "add")], 10), []),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_what_the_step_did(name: str) -> None:
    given, expected = VERDICTS[name]
    reason, length, *rest = verdict("Why.", given)
    took = given.steps[-1].end - given.steps[-1].start
    assert reason == "Why."
    assert length == f"Step 6 took {duration(took)}; the median of the 6 before is 10.0 ms."
    assert rest == expected


def test_too_little_to_compare() -> None:
    few = evidence([], 10)
    few = few._replace(steps=few.steps[-3:], extras=few.extras[-3:])
    assert verdict("Why.", few) == ["Why.", "Step 6 took 10.0 ms. Too few steps went before to compare it."]
    assert verdict("Why.", Evidence([], [], [], {}, True)) == ["Why.", "No step had ended."]


def test_a_long_message_is_cut() -> None:
    text = failure(ValueError("one\ntwo " + "x" * 1000))
    assert text.startswith("An exception: ValueError: one two xxx")
    assert text.endswith("...")
    assert len(text) < 240


@pytest.mark.long
def test_a_record_that_is_being_opened_has_no_step_yet(forks: Forks, tmp_path: Path) -> None:
    """The thread that watches once took its first step for one that had run since 1970."""
    said = run(
        forks,
        tmp_path,
        """
from pyprof.capture import flight, session
opened = session.Session.open
def slowly(self):
    time.sleep(3 * flight._LOOK[1])
    opened(self)
session.Session.open = slowly
pyprof.flight(steps=20, slow=1e9)
train(3)
pyprof.start()  # the record gives way, and begins anew at the end
pyprof.stop()
train(3)
""",
    )
    assert "has not ended" not in said
    assert not [*tmp_path.glob("flight*.sqlite")]

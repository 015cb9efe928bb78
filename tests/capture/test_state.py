# SPDX-License-Identifier: Apache-2.0
"""State of capture: every object that changes is owned (`capture/core/state.py`), and none outlives its event.

An object that lives as long as the process stands in PROCESS, with the reason; that list should only become shorter.
"""

from __future__ import annotations

import ast
import dataclasses
import gc
import importlib
import os
import pickle
import signal
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import pytest
import torch

import pyprof
from pyprof.capture import controller, hooks
from pyprof.capture.core import state
from pyprof.capture.core.state import Slot
from pyprof.capture.instrument import user_ranges
from pyprof.capture.instrument.attribute_registry import Registry
from pyprof.capture.instrument.recorder import Recorder, local, recorder
from pyprof.capture.instrument.stacks import Stacks
from tests.forks import ROOT

PROCESS = {
    "autostart._waiting": "recording asked for by the environment, until torch is imported",
    "autostart._finder": "sees that import, in every process of an enabled Python",
    "core.state._owned": "the register itself",
    "core.torch_internals.names": "names of torch, looked up at import",
    "core.torch_internals._missing": "of those, what this torch lacks",
    "core.torch_internals._reported": "each is reported once",
    "process.faults._reported": "each internal error is reported once",
    "process.main_thread._waiting": "Python will call it, whatever happens until then",
    "process.terminate._masks": "from just before a fork to just after it",
    "collectors.cupti.pool.pool": "buffers that CUPTI may still write to",
    "collectors.kineto._arity": "a fact about an operator of torch",
    "collectors.cupti.records.dtype": "a fact about a version of CUPTI",
    "collectors.unfinished.unfinished": "functions that torch still has open: it would crash",
    "environment.facts._cpu_name": "a fact about the machine",
    "environment.processor._described": "a fact about the machine",
    "instrument.arguments._real_tensor": "a fact about a class",
    "instrument.cuda_graphs.captures": "captures of the program, which go on",
    "instrument.dynamo._done": "modules whose code torch.compile leaves alone, for good",
    "instrument.loader_workers._starting": "the loader that a thread constructs",
    "instrument.recorder.local": "open ranges and running modules of each thread, which go on",
    "instrument.stacks.ENDS": "code of PyProf",
    "instrument.wrappers._hidden": "code of PyProf, by id",
    "observer._patches": "wrappers, made once",
    "session._patches": "wrappers, made once",
    "session._emitting_patches": "wrappers, made once",
}
GLOBALS = {("instrument.modules", "_original"): "read at every call of a module"}
# Of the owned objects: what the process has done, and numbers of wrappers, which are made once.
STAYS = {
    controller.Control: {"written", "ranks_wrote", "failed", "recorded", "pid", "at_exit"},
    Recorder: {"functions", "_numbers", "threads"},
}

CONTAINERS = (
    dict, list, set, deque, bytearray, array, WeakKeyDictionary, WeakSet, WeakValueDictionary, threading.local,
    type(threading.Lock()), type(threading.RLock()), threading.Event,
)  # fmt: skip
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "update", "__setitem__",
}  # fmt: skip
CACHES = {"cache", "lru_cache"}
FOLDER = ROOT / "pyprof" / "capture"
SOURCES = {".".join(path.relative_to(FOLDER).with_suffix("").parts): path.read_text() for path in FOLDER.rglob("*.py")}


def last_name(node: ast.AST) -> str:
    """Return `c` of `a.b.c`, of `c` and of `c[0]`."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return getattr(node, "attr", getattr(node, "id", ""))


def changed(tree: ast.AST) -> Iterator[str]:
    """Yield the last names of objects that code changes in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            yield last_name(node.func.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield last_name(node)
        elif isinstance(node, ast.AugAssign):
            yield last_name(node.target)


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that are assigned at the level of some statements, and functions with a cache."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [getattr(each, "func", each) for each in statement.decorator_list]
            if CACHES & set(map(last_name, decorators)):
                yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def is_mutable(value: Any) -> bool:
    """Return whether an object has state: a container, a cached function, an object of a class of PyProf's."""
    kind = type(value)
    if isinstance(value, CONTAINERS) or hasattr(value, "cache_clear"):
        return True
    parameters = getattr(kind, "__dataclass_params__", None)
    return (
        kind.__module__.startswith("pyprof.")
        and not isinstance(value, (type, tuple, Enum))
        and not (parameters is not None and parameters.frozen)
    )


def without_owner(name: str, source: str, module: ModuleType, changes: set[str]) -> Iterator[str]:
    """Yield the objects of a module, and of its classes, that change and have no owner."""
    tree = ast.parse(source)
    spaces = [("", vars(module), tree.body)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            kind = vars(module)[node.name]
            spaces.append((f"{node.name}.", vars(kind), node.body))
    owned = set(map(id, state.items()))
    for prefix, names, body in spaces:
        for each in set(bound(body)) - {"__slots__", "_fields_", "__all__"}:
            value = names.get(each)
            table = isinstance(value, (dict, list, set)) and each not in changes
            if is_mutable(value) and not table and id(value) not in owned:
                yield f"{name}.{prefix}{each}"


def found_globals(name: str, source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Global):
            yield from ((name, each) for each in node.names)


def test_every_object_that_changes_has_an_owner() -> None:
    changes = {each for source in SOURCES.values() for each in changed(ast.parse(source))}
    lacking = set()
    for name, source in SOURCES.items():
        module = importlib.import_module(f"pyprof.capture.{name}".removesuffix(".__init__"))
        lacking |= set(without_owner(name, source, module, changes))
    assert lacking == PROCESS.keys(), "declare it with `owned`, of pyprof/capture/core/state.py"


def test_no_function_rebinds_a_name_of_its_module() -> None:
    seen = {each for name, source in SOURCES.items() for each in found_globals(name, source)}
    assert seen == GLOBALS.keys(), "use a Slot, of pyprof/capture/core/state.py"


@pytest.mark.parametrize(
    "source",
    [
        "seen = {}\ndef note(key): seen[key] = 1",
        "seen: list[int] = []\ndef note(key): seen.append(key)",
        "SEEN = set()\ndef note(key): SEEN.add(key)",
        "if True:\n    first, seen = 1, []\ndef note(key):\n    global seen\n    seen += [key]",
        "from collections import deque\nseen = deque()",
        "import weakref\nseen = weakref.WeakKeyDictionary()",
        "import threading\nseen = threading.local()",
        "import threading\nlock = threading.Lock()",
        "class Box:\n    value = 0\nbox = Box()",
        "class Box:\n    values = []\n    def note(self): self.values.append(1)",
        "from functools import cache\n@cache\ndef read(): return 1",
        "from pyprof.capture.core.state import Slot\nslot = Slot(None)",
    ],
)
def test_an_object_without_an_owner_is_seen(source: str) -> None:
    module = ModuleType("pyprof.capture.example")
    exec(source, vars(module))
    assert list(without_owner("example", source, module, set(changed(ast.parse(source)))))


@pytest.mark.parametrize(
    "source",
    [
        "TABLE = {'conv': 1}\ndef read(key): return TABLE[key]",
        "from typing import NamedTuple\nclass Row(NamedTuple):\n    value: int\nrow = Row(1)",
        "from pyprof.capture.core.state import Until, owned\nseen = owned({}, Until.WRITTEN)\nseen[1] = 2",
        "def read():\n    seen = {}\n    seen[1] = 2",
    ],
)
def test_what_does_not_change_or_is_owned_needs_nothing(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_owned", list(state._owned))
    module = ModuleType("pyprof.capture.example")
    exec(source, vars(module))
    assert not list(without_owner("example", source, module, set(changed(ast.parse(source)))))


# After each event the owned objects are as they were.


def content(value: Any, inside: bool = False) -> Any:
    """Return what an object holds, for comparison. Objects `inside` of it count by their class."""
    if isinstance(value, (dict, list, set, tuple)):
        return [content(each, True) for each in (value.items() if isinstance(value, dict) else value)]
    kind = type(value)
    if kind is Stacks or (kind.__module__.startswith("pyprof.") and not inside):
        names = [*getattr(value, "__dict__", ()), *getattr(kind, "__slots__", ())]
        stays = STAYS.get(kind, set()) | {"lock"}
        return {name: content(getattr(value, name), True) for name in names if name not in stays}
    return value if isinstance(value, (bool, int, str)) else kind.__name__


def contents() -> list[tuple[str, Any]]:
    here = local.state
    thread = here.busy, here.context, here.layer, here.calls, here.modules, here.ranges, here.open
    return [("thread", str(thread)), *((type(item).__name__, content(item)) for item in state.items())]


def train(steps: int = 2) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        with pyprof.annotate("layer:model"):
            loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        pyprof.step()


class Fails(torch.nn.Module):
    """A model whose forward does something, and raises."""

    def __init__(self, action: Callable[[], object]):
        super().__init__()
        self.action = action

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.action()
        raise KeyError("of the program")


def init() -> None:
    pyprof.init(memory=True)
    train()


def recording() -> None:
    pyprof.start("net.sqlite")
    train()
    pyprof.stop()


def window_left_open() -> None:
    pyprof.start("net.sqlite")
    train()
    torch.add(torch.ones(2), 1)


def whole_run() -> None:
    pyprof.init("net.sqlite")
    train()


def nvtx() -> None:
    pyprof.init(nvtx="registered")
    train()


def wrapped() -> None:
    pyprof.wrap(torch.nn.init, "ones_")
    recording()


def flight() -> None:
    pyprof.flight(output="flight.sqlite")
    train(8)


def scheduled() -> None:
    window = pyprof.profile("net.sqlite", wait=1, active=2)
    window.__enter__()  # and is never left
    train(2)


def exception() -> None:
    with pytest.raises(KeyError), pyprof.profile("net.sqlite"):
        Fails(train)(torch.ones(1))


def stopped_inside_a_module() -> None:
    pyprof.start("net.sqlite")
    with pytest.raises(KeyError):
        Fails(pyprof.stop)(torch.ones(1))


def nested_estimate() -> None:
    pyprof.init(nvtx="registered")
    model = torch.nn.Linear(2, 2)
    pyprof.estimate(lambda: pyprof.estimate(model, torch.ones(1, 2)))


def estimate_that_raises() -> None:
    with pytest.raises(KeyError):
        pyprof.estimate(Fails(train), torch.ones(1))


def open_range() -> None:
    pyprof.init()
    user_ranges.begin("a handle", "never ended")


def profiler_of_the_program() -> None:
    pyprof.init()
    hooks._user_profiler.value = True  # and ends after shutdown


PROGRAMS = [
    init, recording, window_left_open, whole_run, nvtx, wrapped, flight, scheduled, exception, stopped_inside_a_module,
    nested_estimate, estimate_that_raises, open_range, profiler_of_the_program,
]  # fmt: skip


@pytest.fixture
def _before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    init()
    pyprof.shutdown()  # the modules are imported


@pytest.mark.usefixtures("_before")
@pytest.mark.parametrize("program", PROGRAMS)
def test_shutdown_leaves_the_state_before_init(program: Callable[[], object]) -> None:
    before = contents()
    program()
    assert contents() != before or program is estimate_that_raises
    pyprof.shutdown()
    assert contents() == before


@pytest.mark.usefixtures("_before")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_forked_child_has_none_of_its_parents_state(program: Callable[[], object]) -> None:
    """What `init` has set stays, as its hooks do, until shutdown."""
    before = contents()
    program()
    child, _, after = forked(lambda: (contents(), pyprof.shutdown(), contents()))
    pyprof.shutdown()
    assert after == before
    assert child[0] == before[0]  # the thread
    until = {id(item): event for event, item, _ in state._owned}
    for item, first, here in zip(state.items(), before[1:], child[1:]):
        if item is controller.control:
            windows = {field.name for field in dataclasses.fields(controller.Windows)}
            first, here = ({name: one[1][name] for name in windows} for one in (first, here))
        if item is controller.control or until[id(item)] < state.Until.SHUTDOWN:
            assert here == first


def forked(body: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(60)  # it may wait for a lock that nobody releases
        try:
            os.write(writer, pickle.dumps(body()))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(data)


@pytest.mark.usefixtures("_before")
def test_records_are_freed_when_their_file_is_written() -> None:
    pyprof.start("net.sqlite", memory=True)
    session = controller.control.session
    assert session is not None
    train()
    records = [weakref.ref(session.data), weakref.ref(session.data.operators)]
    pyprof.stop()
    gc.collect()
    assert [record() for record in records] == [None, None]


@pytest.mark.usefixtures("_before")
def test_an_estimate_goes_on_in_a_forked_child() -> None:
    def work() -> None:
        torch.mm(torch.ones(2, 3), torch.ones(3, 2))
        assert forked(lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 2)).shape) == (2, 2)
        torch.mm(torch.ones(2, 3), torch.ones(3, 2))

    assert len(pyprof.estimate(work)) == 6


@pytest.mark.usefixtures("_before")
def test_a_child_can_record_what_another_thread_was_noting_at_the_fork() -> None:
    holds, forked_now = threading.Event(), threading.Event()

    def note() -> None:
        with recorder.stacks.lock:
            holds.set()
            forked_now.wait()

    thread = threading.Thread(target=note)
    thread.start()
    holds.wait()
    try:
        pyprof.init()
        assert forked(lambda: recorder.function("test", "of a child")) >= 0
    finally:
        forked_now.set()
        thread.join()


def test_an_error_of_one_reset_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_owned", [])
    slots = [state.owned(Slot(0), state.Until.WRITTEN) for _ in range(2)]
    state.owned(Registry(), state.Until.WRITTEN, lambda _: 1 / 0)
    for slot in slots:
        slot.value = 1
    state.end(state.Until.FORKED, controller.guarded)
    assert [slot.value for slot in slots] == [0, 0]


def test_a_later_event_does_not_come_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_owned", [])
    slots = [state.owned(Slot(0), until) for until in state.Until]
    for slot in slots:
        slot.value = 1
    state.end(state.Until.FORKED, controller.guarded)
    assert [slot.value for slot in slots] == [0, 0, 1]

# SPDX-License-Identifier: Apache-2.0
"""One warm process that forks a child for every file: `python -m tests.fuzz.server FOLDER`, an order per line of stdin.

The child changes a seed, runs commands with it and says of each what came of it, also of what it opened for writing,
removed or started outside the folder of the output. It has 20 s of the processor per command, 60 s in all, and 6 GB.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

PROCESSOR, WALL, MEMORY, FILE = 20, 60, 6 << 30, 1 << 28
CHEAP = 6  # times as often are the commands that take a tenth of the time


def main(folder: Path) -> None:
    """Serve orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    (folder / "seeds").mkdir()
    _fresh(folder / "run")
    os.environ |= {
        "TMPDIR": str(folder / "run" / "tmp"), "XDG_CACHE_HOME": str(folder / "run" / "cache"),
        "HOME": str(folder / "run" / "home"), "COLUMNS": "120",
    }  # fmt: skip
    seeds = _seeds(folder / "seeds")
    _warm(folder, seeds)
    gc.collect()
    gc.freeze()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        _fresh(folder / "run")
        child = os.fork()
        if not child:
            answers.close()
            _child(folder / "run", seeds[order["format"]], order)
        print(json.dumps(_ended(child, folder / "run")), file=answers, flush=True)


def _fresh(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    for name in ("in", "out", "tmp", "cache", "home"):
        (run / name).mkdir(parents=True)


def _seeds(folder: Path) -> dict[str, list[Path]]:
    from tests.fuzz.seeds import SEEDS

    out: dict[str, list[Path]] = {}
    for format_, (name, writers) in SEEDS.items():
        for number, write in enumerate(writers):
            path = folder / format_ / str(number) / name
            path.parent.mkdir(parents=True)
            write(path)
            out.setdefault(format_, []).append(path)
    return out


def _warm(folder: Path, seeds: dict[str, list[Path]]) -> None:
    """Import whatever the commands import."""
    from tests.fuzz import commands, mutations  # noqa: F401

    saved = os.dup(1), os.dup(2), sys.stdout, sys.stderr
    for name in commands.COMMANDS:
        _fresh(folder / "run")
        os.chdir(folder / "run" / "out")
        seed = seeds["capture"][0]
        _redirected(folder / "run" / "warm")
        assert commands.run(commands.words(name, seed, seed, random.Random(1))) == 0, name
    sys.stdout, sys.stderr = saved[2:]
    os.dup2(saved[0], 1)
    os.dup2(saved[1], 2)


def _redirected(base: Path) -> None:
    """stdout and stderr of a command go to files."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{base}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until the next command
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _ended(child: int, run: Path) -> dict[str, Any]:
    """What came of a child: its results, and how it ended."""
    watched = os.pidfd_open(child)
    ready = select.poll()
    ready.register(watched, select.POLLIN)
    in_time = bool(ready.poll(WALL * 1000))
    if not in_time:
        os.kill(child, signal.SIGKILL)
    os.close(watched)
    _, status, used = os.wait4(child, 0)
    try:
        results = [json.loads(line) for line in (run / "results").read_text().splitlines()]
    except FileNotFoundError:
        results = []
    return {
        "ended": "in time" if in_time else "hang", "status": os.waitstatus_to_exitcode(status),
        "seconds": used.ru_utime + used.ru_stime, "results": results,
    }  # fmt: skip


# --- in the child


def _child(run: Path, seeds: list[Path], order: dict[str, Any]) -> None:
    """Never returns."""
    try:
        _limit()
        with open(run / "results", "w", buffering=1) as results:
            for result in _work(run, seeds, order):
                results.write(json.dumps(result) + "\n")
        os._exit(0)
    except BaseException:
        import traceback

        with open(run / "results", "a") as results:
            results.write(json.dumps({"broken": traceback.format_exc()}) + "\n")
        os._exit(99)


def _limit() -> None:
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _work(run: Path, seeds: list[Path], order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from tests.fuzz import commands
    from tests.fuzz.mutations import changes

    dice = random.Random(f"{order['format']} {order['seed']}")
    seed = dice.choice(seeds)
    change, neutral = changes(order["format"], dice)
    file = run / "in" / seed.name
    shutil.copyfile(seed, file)
    yield {"change": change.__name__, "seed": f"{seed.parent.name}/{seed.name}"}
    change(file, dice)
    if order.get("keep"):
        shutil.copyfile(file, order["keep"])
    names = order["commands"]
    if isinstance(names, int):
        weights = [CHEAP if name in commands.CHEAP else 1 for name in commands.COMMANDS]
        names = dice.choices(commands.COMMANDS, weights, k=names)
    watch = _Watch(run)
    os.chdir(run / "out")
    warnings.simplefilter("always")
    before = _content(run / "in")
    for name in names:
        # Of its own dice: the same words whichever commands were run before.
        options = f"{order['format']} {order['seed']} {name}"
        found = _one(run, commands.words(name, file, seed, random.Random(options)), seed, watch)
        if neutral:
            truth = _one(run, commands.words(name, seed, seed, random.Random(options)), seed, watch)
            # A copy of a database has what was added; numbers of texts in a database are in the order of rows.
            numbered = order["format"] == "database" or change.__name__ == "_row_order"
            if not (numbered and name in ("save", "export", "view")):
                # Where a sentence breaks is a matter of how long the name of the file is.
                found["differs"] = _difference(*(" ".join(one["said"].split()) for one in (truth, found)))
        del found["said"]
        after = _content(run / "in")
        found["changed"] = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        yield {"command": name, **found}


def _one(run: Path, arguments: list[str], seed: Path, watch: _Watch) -> dict[str, Any]:
    from tests.fuzz import commands

    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = used.ru_utime + used.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + PROCESSOR, resource.RLIM_INFINITY))
    _redirected(run / "said")
    watch.seen = []
    try:
        code: Any = commands.run(arguments)
        sys.stdout.flush()
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    watch.seen, seen = None, watch.seen
    sys.stderr.flush()
    output, error = (
        (run / f"said.{name}").read_bytes().decode(errors="backslashreplace") for name in ("stdout", "stderr")
    )
    made = commands.made(run / "out" / "out")
    said = f"{output}\n{error}\n{made}"
    left = [name for folder in ("tmp", "out") for name in os.listdir(run / folder) if name != "out"]
    out = {
        "words": arguments, "code": code, "stdout": len(output), "stderr": error[-20_000:], "outside": seen,
        "left": left, "damaged": made == commands.DAMAGED,
        "said": said.replace(arguments[-1], "FILE").replace(str(seed), "FILE"),
    }  # fmt: skip
    for folder in ("out", "tmp", "cache"):
        shutil.rmtree(run / folder)
        (run / folder).mkdir()
    os.chdir(run / "out")
    now = resource.getrusage(resource.RUSAGE_SELF)
    return out | {"seconds": now.ru_utime + now.ru_stime - spent}


def _difference(one: str, other: str) -> str:
    """Where two texts differ, with what is around; empty if they are equal."""
    at = next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
    return "" if one == other else f"{one[max(0, at - 100) : at + 100]!r} became {other[max(0, at - 100) : at + 100]!r}"


def _content(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


class _Watch:
    """Whatever is opened for writing, removed, renamed or started, except below the folders of the output."""

    _PATHS: ClassVar = {
        "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.mkdir": (0,), "os.link": (0, 1),
        "os.symlink": (0, 1), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,),
    }  # fmt: skip
    _NEVER = (
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "socket.connect",
        "socket.bind",
    )
    _WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

    def __init__(self, run: Path):
        self._allowed = tuple(f"{run / name}" for name in ("out", "tmp", "cache", "said", "results"))
        self.seen: list[str] | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.seen is None:
            return
        if event in self._NEVER:
            self.seen.append(f"{event} {arguments!r}"[:300])
        elif event == "open":
            if isinstance(arguments[0], (str, bytes)) and arguments[2] & self._WRITING:
                self._check(event, arguments[0])
        elif event in self._PATHS:
            for at in self._PATHS[event]:
                self._check(event, arguments[at])

    def _check(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        name = os.path.abspath(os.fsdecode(path))  # relative ones are in the folder of the output
        if not name.startswith((*self._allowed, "/dev/null", "/proc/self/fd/")) and self.seen is not None:
            self.seen.append(f"{event} {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

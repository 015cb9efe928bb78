# SPDX-License-Identifier: Apache-2.0
"""How a command ends: with an exit code and, if something went wrong, one sentence on stderr."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyprof.errors import PyProfError
from pyprof.scratch import removed_by_signals
from pyprof.screen import visible

INTERRUPTED = 130
_MEMORY = (
    "the memory of this machine is not enough. Record fewer steps, or read the recording on a larger machine."
)


def say(prog: str, sentence: str) -> None:
    """Print a sentence on stderr. What it quotes, of a recording for instance, does nothing but appear."""
    print(visible(f"{prog}: {sentence}"), file=sys.stderr, flush=True)


def ended(
    prog: str, work: Callable[[], int | None], interrupted: str = "interrupted, nothing was written."
) -> int:
    """Do the work of a command that was typed as `prog`; returns its exit code. No exception leaves."""
    try:
        code = work() or 0
        sys.stdout.flush()
        return code
    except PyProfError as error:
        say(prog, str(error))
        return error.exit_code
    except BrokenPipeError:  # who read stdout has seen enough
        _leave_stdout()
        return 0
    except KeyboardInterrupt:
        say(prog, interrupted)
        return INTERRUPTED
    except MemoryError:
        say(prog, _MEMORY)
        return 1
    except OSError as error:
        if error.filename is None:
            _leave_stdout()
        what = "stdout" if error.filename is None else os.fsdecode(error.filename)
        say(prog, f"{what}: {error.strerror or error}.")
        return 1


def imported(prog: str, module: str, function: str = "main", *arguments: Any) -> int:
    """Import a command and run it: an interrupt meanwhile is no traceback. Without arguments it gets those of the
    process and its name."""

    def work() -> int:
        importlib.import_module("pyprof.needed")
        found: Callable[..., int] = getattr(importlib.import_module(module), function)
        return found(*(arguments or (None, prog)))

    with removed_by_signals():
        return ended(prog, work)


def _leave_stdout() -> None:
    """What is still buffered goes nowhere; else Python would try again at its end, and complain."""
    with suppress(OSError, ValueError, AttributeError):  # of a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

# SPDX-License-Identifier: Apache-2.0
"""The frame that every command runs in: exit codes, and one sentence on stderr where something went wrong.

0: done. 1: an input or the machine is at fault. 2: the command line is. 130: interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from pyprof.errors import PyProfError
from pyprof.terminal import visible

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
    """Do the work of a command that was typed as `prog` and return its exit code. No exception leaves but SystemExit,
    which argparse raises."""
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
    except ImportError as error:
        # pyarrow from 26 on needs numpy 2 but does not declare it, so that pip installs it beside numpy 1.26.
        if "numpy" not in str(error).lower():
            raise
        say(
            prog,
            f"{error}. Install a newer numpy (pip install 'numpy>=2') or an older pyarrow ('pyarrow<26').",
        )
        return 1
    except OSError as error:
        if error.filename is None:
            _leave_stdout()
        what = "stdout" if error.filename is None else os.fsdecode(error.filename)
        say(prog, f"{what}: {error.strerror or error}.")
        return 1


def _leave_stdout() -> None:
    """Drop what is still buffered; else Python would try again at its end, and complain."""
    with suppress(OSError, ValueError, AttributeError):  # of a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

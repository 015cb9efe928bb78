# SPDX-License-Identifier: Apache-2.0
"""Common frame of all commands: exit codes, and one sentence on stderr on failure.

0: success. 1: an error of an input or the machine. 2: an error of the command line. 3: a regression, of
`pyprof diff --fail-on`. 130: interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from pyprof.core.errors import PyProfError
from pyprof.core.terminal import visible

INTERRUPTED = 130
_MEMORY = "out of memory. Record fewer steps, or read the recording on a machine with more memory."
_THREADS = "no thread can be started: memory is short, or a limit is reached (ulimit -v, ulimit -u)."


def say(prog: str, sentence: str) -> None:
    """Print a sentence on stderr, with control characters escaped."""
    print(visible(f"{prog}: {sentence}"), file=sys.stderr, flush=True)


def run_command(
    prog: str, work: Callable[[], int | None], interrupted: str = "interrupted, nothing was written."
) -> int:
    """Do the work of a command that was typed as `prog` and return its exit code. No exception propagates except
    SystemExit, which argparse raises."""
    try:
        code = work() or 0
        sys.stdout.flush()
        return code
    except PyProfError as error:
        say(prog, str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader of stdout has closed it
        _leave_stdout()
        return 0
    except KeyboardInterrupt:
        say(prog, interrupted)
        return INTERRUPTED
    except MemoryError:
        say(prog, _MEMORY)
        return 1
    except ImportError as error:
        sentence = _MEMORY if "failed to map segment" in str(error) else numpy_conflict(error)
        if not sentence:
            raise
        say(prog, sentence)
        return 1
    except RuntimeError as error:
        if "can't start new thread" not in str(error):  # Python's words
            raise
        say(prog, _THREADS)
        return 1
    except OSError as error:
        if error.filename is None:
            _leave_stdout()
        name = "stdout" if error.filename is None else os.fsdecode(error.filename)
        say(prog, f"{name}: {error.strerror or error}.")
        return 1


def numpy_conflict(error: ImportError) -> str:
    """Return what to install if an import has failed because of numpy's version, else "". pyarrow from 26 on needs
    numpy 2 but does not declare it, so that pip installs it beside numpy 1.26."""
    if "numpy" not in str(error).lower():
        return ""
    return f"{error}. Install a newer numpy (pip install 'numpy>=2') or an older pyarrow ('pyarrow<26')."


def _leave_stdout() -> None:
    """Drop buffered output; else Python would retry at exit, and print an error."""
    with suppress(OSError, ValueError, AttributeError):  # stdout may not be a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

# SPDX-License-Identifier: Apache-2.0
"""The steps of `dlprof`: read the options, check the outputs, run the application, aggregate, report.

The exit code is the application's; the command itself returns 2 for its options and 1 for other errors.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from pyprof import __version__
from pyprof.core.errors import PyProfError, UsageError
from pyprof.core.frame import run_command, say
from pyprof.core.stages import DIAGNOSTIC, NORMAL, Stages
from pyprof.dlprof import application, child, options
from pyprof.dlprof.options import Settings
from pyprof.dlprof.outputs import OF_NSYS, Outputs, outputs


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    return run_command("dlprof", lambda: _dlprof(words), "interrupted; files that were not finished are not there.")


def _dlprof(words: Sequence[str]) -> int:
    with child.signals_wait() as mask:  # before anything (numpy, rich) starts a thread
        settings = options.read(words)
        if settings.help or settings.version:
            print(f"dlprof of PyProf {__version__}" if settings.version else options.help_text().rstrip())
            return 0
        stages = Stages(settings.level)
        where = _check(settings, stages)
        code = _run(settings, where, stages, mask) if where.recording is not None else 0
    return _results(settings, where, stages, code)


def _check(settings: Settings, stages: Stages) -> Outputs:
    """Check everything that can be wrong before the application runs. Raises UsageError."""
    if "graphdef" in settings.explicit:
        stages.note("--graphdef is for TensorFlow 1 and is ignored.")
    if settings.nsys_database:
        if settings.application:
            stages.note(f"--nsys_database is set, so {shlex.join(settings.application)} is not run.")
    elif not settings.application:
        raise UsageError(f"no application and no --nsys_database; expected: {options.USAGE.splitlines()[0]}")
    else:
        named = application.split(settings.application)
        app = application.check(named)
        if app != named:
            stages.note(f"{named.interpreter} has no pyprof, {app.interpreter} runs the program.")
            settings.application = tuple(app.words)
        if settings.nsys_opts:
            application.nsys_options(settings.nsys_opts)
    return outputs(settings)


def _run(settings: Settings, where: Outputs, stages: Stages, mask: set[signal.Signals]) -> int:
    """Run the application and return its exit code."""
    assert where.recording is not None
    base = where.recording.removesuffix(".sqlite")
    for old in (where.recording, *(base + ending for ending in OF_NSYS)):
        if os.path.lexists(old):  # must not be taken for that of an application that leaves none
            os.unlink(old)
    words = _words(settings, application.split(settings.application), where.recording, stages)
    return child.run(words, mask)


def _results(settings: Settings, where: Outputs, stages: Stages, code: int) -> int:
    """Aggregate and report. The exit code of an application that failed is kept in any case."""
    from pyprof.dlprof import results

    try:
        path = settings.nsys_database
        if where.recording is not None:
            path = _recorded(where.recording, stages)
        results.write(settings, where, path, stages)
        return code
    except PyProfError as error:
        if where.is_new_folder:
            with suppress(OSError):  # a folder for nothing; with a recording in it it stays
                os.rmdir(where.folder)
        say("dlprof", str(error))
        return code or error.exit_code


# --- the application


def _words(settings: Settings, app: application.Application, recording: str, stages: Stages) -> list[str]:
    """Return the command line that records."""
    nsys: list[str] = []
    extra: list[str] = []
    if settings.nsys_opts:
        nsys_options = application.nsys_options(settings.nsys_opts)
        if shutil.which("nsys"):
            nsys = _nsys(settings, nsys_options, recording)
        else:
            extra = _ours(nsys_options)
            stages.note("--nsys_opts: nsys is not installed, PyProf records" + _with_options(extra) + ".")
    if not nsys:
        # Names are whole: the application may run elsewhere.
        extra += ["-o", os.path.abspath(recording)]
        for name, value in (("--delay", settings.delay), ("--duration", settings.duration)):
            extra += [name, f"{value:g}"] if value else []
    words = nsys + app.recorded(extra)
    stages.say(DIAGNOSTIC, f"PyProf {__version__}, Python {sys.version.split()[0]}")
    stages.say(DIAGNOSTIC, f"command: {shlex.join(words)}")
    stages.say(NORMAL, f"running {shlex.join(settings.application)}")
    return words


def _nsys(settings: Settings, nsys_options: list[str], recording: str) -> list[str]:
    base = os.path.abspath(recording).removesuffix(".sqlite")
    words = ["nsys", "profile", *nsys_options, "-o", base, "-f", "true"]
    for name, value in (("-y", settings.delay), ("-d", settings.duration)):
        words += [name, f"{value:g}"] if value else []
    return words


def _ours(nsys_options: list[str]) -> list[str]:
    """Return PyProf's options for those nsys options that record more than the default."""
    out = ["--io"] if "osrt" in application.value_of(nsys_options, "t", "trace").split(",") else []
    return out + (["--sample=cpu"] if application.value_of(nsys_options, "s", "sample") == "cpu" else [])


def _with_options(extra: list[str]) -> str:
    return f" with {' '.join(extra)}" if extra else ""


def _recorded(recording: str, stages: Stages) -> str:
    """Return the recorded file; a report of nsys is exported first. Raises PyProfError if there is none."""
    base = recording.removesuffix(".sqlite")
    if os.path.exists(recording):
        return recording
    for report in (base + ending for ending in OF_NSYS):
        if os.path.exists(report):
            _export(report, recording, stages)
            return recording
    ranks = _ranks(base)
    if ranks:
        raise PyProfError(
            f"the application recorded one file for each of {len(ranks)} ranks; aggregate one of them: "
            f"dlprof --nsys_database={ranks[0]}"
        )
    raise PyProfError("the application left no recording, so there is nothing to aggregate.")


def _ranks(base: str) -> list[str]:
    return sorted(glob.glob(f"{glob.escape(base)}.rank*.sqlite"))


def _export(report: str, recording: str, stages: Stages) -> None:
    words = ["nsys", "export", "--type=sqlite", "--force-overwrite=true", f"--output={recording}", report]
    with stages.stage(f"exporting {report}"):
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode or not os.path.exists(recording):
        last = (done.stderr or done.stdout).strip().splitlines()
        raise PyProfError(f"{report}: nsys could not export it ({last[-1] if last else 'no message'}).")


if __name__ == "__main__":
    sys.exit(main())

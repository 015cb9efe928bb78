# SPDX-License-Identifier: Apache-2.0
"""Results that `dlprof` writes from a recording: database, report files, dump, event files, feedback."""

from __future__ import annotations

import os
from contextlib import ExitStack

from pyprof.core.model import Trace
from pyprof.core.stages import DETAILED, MINIMAL, NORMAL, Stages
from pyprof.dlprof import events, feedback, model_data, modes
from pyprof.dlprof.options import Settings
from pyprof.dlprof.outputs import Outputs, profile_names
from pyprof.facts.steps.source import Source
from pyprof.profiles import Profile, Selection
from pyprof.render import writers
from pyprof.rules.evaluation import evaluate
from pyprof.store import reads


def write(settings: Settings, where: Outputs, path: str, stages: Stages) -> None:
    """Write all requested results. Raises PyProfError; each file is written atomically."""
    selection = Selection(settings.iter_start, settings.iter_stop, settings.key_node or None)
    domains = [modes.of_domain(name) for name in settings.domains]
    is_simple = settings.mode == "simple"

    def changed(trace: Trace) -> Trace:
        for change in domains:  # fails before anything is written if one does not exist
            change(trace)
        return modes.simple(trace) if is_simple else trace

    with stages.stage(f"aggregating {path}"):
        profile = Profile.open(path, progress=stages.progress, change=changed if domains or is_simple else None)
        profile.save(where.database, selection)
    with ExitStack() as closed:
        profile = Profile.open(where.database)
        closed.callback(profile.database.close)
        profile.select(selection)
        source = profile.source()
        _say_what(source, stages)
        stages.say(MINIMAL, f"wrote {where.database}")
        if not domains:
            _reports(settings, where, source, settings.profile_name, stages)
        for change, name in zip(domains, profile_names(settings)):
            part = Profile.open(path, change=change)
            part.select(selection)
            with part.database.translate_errors():
                _reports(settings, where, part.source(), name, stages)
        _write_data_files(where, source, stages)
        if settings.level >= MINIMAL:
            with stages.stage("evaluating expert rules"):
                outcomes = evaluate(source)
            print(feedback.text(outcomes, source.window.wall, settings.level >= DETAILED), flush=True)


def _say_what(source: Source, stages: Stages) -> None:
    aggregation, store = source.aggregation, source.store
    stages.say(NORMAL, f"iterations {aggregation.first} to {aggregation.last} ({aggregation.note})")
    if stages.level >= DETAILED:
        for table in ("event", "op", "api", "operator"):
            stages.say(DETAILED, f"{reads.row_count(store, table)} rows of {table}")
    for reason, count in reads.lost(store).items():
        stages.say(DETAILED, f"left out: {count} {reason}")


def _reports(settings: Settings, where: Outputs, source: Source, name: str, stages: Stages) -> None:
    for report in where.reports:
        with stages.stage(f"writing report {report.name}", DETAILED):
            paths = writers.write(report, source, where.folder, name, settings.formats, settings.csv_style)
        stages.say(MINIMAL, f"wrote {', '.join(map(os.path.normpath, paths))}")


def _write_data_files(where: Outputs, source: Source, stages: Stages) -> None:
    """Write the dump of the model data, and event files."""
    if where.model_data is not None:
        with stages.stage(f"writing {where.model_data}", DETAILED):
            label = f"writing {where.model_data}"
            model_data.save(source, where.model_data, lambda share: stages.progress(label, share))
        stages.say(MINIMAL, f"wrote {where.model_data}")
    if where.events is None:
        return
    if not events.available():
        stages.note(events.MISSING)
        return
    with stages.stage("writing event files", DETAILED):
        name = events.write(source, where.events)
    stages.say(MINIMAL, f"wrote {name}")

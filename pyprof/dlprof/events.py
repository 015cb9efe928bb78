# SPDX-License-Identifier: Apache-2.0
"""Event files for TensorBoard: metrics and iterations as scalars, reports as tables of its Text tab.

They are written with TensorBoard's own writer, without TensorFlow. The report of iterations, one row per launch, is
left out; longer tables are cut after their first rows.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyprof import metrics
from pyprof.core.errors import WHERE, PyProfError, install
from pyprof.core.registry import load_folder
from pyprof.facts.steps import dataframes
from pyprof.facts.steps.source import Source
from pyprof.render import writers
from pyprof.reports import REPORTS, Report

_ROWS = 100
_LEFT_OUT = ("iteration",)
MISSING = (
    f"no event files for TensorBoard, which is not installed: {install('tensorboard')} {WHERE}, "
    "or --suppress_tb_files=true."
)


def available() -> bool:
    """Return whether TensorBoard can be imported."""
    import importlib.util

    return importlib.util.find_spec("tensorboard") is not None


def write(source: Source, folder: str) -> str:
    """Write an event file into a folder, created if missing, and return its name. Raises PyProfError."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    now = time.time()
    name = os.path.join(folder, f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}")
    scratch = os.path.join(folder, f".pyprof-{os.getpid()}.events")  # no name that TensorBoard would read
    try:
        os.makedirs(folder, exist_ok=True)
        with open(scratch, "wb") as file:
            records = RecordWriter(file)
            records.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
            for step, value in _values(source):
                event = Event(wall_time=now, step=step, summary=Summary(value=[value]))
                records.write(event.SerializeToString())
            records.flush()
        while os.path.exists(name):  # os.rename would replace a file of the same second
            name += "_"
        os.rename(scratch, name)
    except OSError as error:
        raise PyProfError(f"{folder}: event files cannot be written ({error.strerror}).") from error
    finally:
        if os.path.exists(scratch):
            os.unlink(scratch)
    return name


def _values(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield the step and the value of every scalar and table."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    for metric in metrics.METRICS.values():
        value = metric.function(source.window)
        if value is not None:
            tag = f"summary/{metric.name}"
            yield (
                0,
                Summary.Value(tag=tag, simple_value=value, metadata=_metadata("scalars", metric.heading, metric.text)),
            )
    steps = dataframes.steps(source.store, source.aggregation)
    workers = steps["worker"].nunique()
    for row in steps[steps["aggregated"]].to_dict("records"):
        prefix = f"iteration/{row['worker']}/" if workers > 1 else "iteration/"
        for name in ("duration_ns", *(f"{part}_ns" for part in metrics.PARTS)):
            yield (
                int(row["step"]),
                Summary.Value(tag=prefix + name, simple_value=row[name], metadata=_metadata("scalars")),
            )
    for report in _reports():
        yield 0, _text_summary(f"reports/{report.name}", report.title, markdown(report, source))


def _reports() -> Iterable[Report]:
    load_folder("pyprof.reports", "pyprof.reports")
    return [report for name, report in REPORTS.items() if name not in _LEFT_OUT]


def _metadata(plugin: str, heading: str = "", text: str = "") -> Any:
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

    data = SummaryMetadata.PluginData(plugin_name=plugin)
    return SummaryMetadata(plugin_data=data, display_name=heading, summary_description=text)


def _text_summary(tag: str, heading: str, table: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[table.encode()], tensor_shape=shape)
    return Summary.Value(tag=tag, tensor=tensor, metadata=_metadata("text", heading))


def markdown(report: Report, source: Source) -> str:
    """Return the first rows of a report as a table."""
    stream = io.BytesIO()
    writers.render(report, source, "md", stream)
    lines = stream.getvalue().decode().splitlines()
    hidden = len(lines) - 2 - _ROWS  # two lines of headings
    if hidden > 0:
        lines = [*lines[: 2 + _ROWS], "", f"{_ROWS} of {_ROWS + hidden} rows."]
    return "\n".join(lines)

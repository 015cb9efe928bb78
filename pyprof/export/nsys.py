# SPDX-License-Identifier: Apache-2.0
"""SQLite with the tables of a Nsight Systems export (schema 3.16), for tools that read those.

Not exported, because the format has no place for them: operators of the profile, costs, and context and grid of
events without these. RecordFunction events become ranges in emit_nvtx's spelling, `aten::mm, seq = 7`; steps that
the program marked become ranges ProfilerStep#N. Calls get new numbers as correlation ids. globalTid has 24 bits for
a thread: a larger tid is truncated, and replaced if two would be equal. Workers with equal pids are put on separate
machines; of devices with equal numbers the first worker's is described.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pyprof
from pyprof.errors import UsageError
from pyprof.export import Window, exporter
from pyprof.model import KERNEL, MARK, START_END
from pyprof.parse.formats.nsys import COPY_KINDS, GRAPH_NAME
from pyprof.parse.merge import unix_start
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.ids import NUMBER_MASK, first_id
from pyprof.store.kinds import IS_COPY, IS_GRAPH, IS_MARK, IS_NO_FUNCTION, IS_OPERATOR_EVENT, IS_SET

_TID, _PID = 24, 24  # bits
_NUMBER = NUMBER_MASK  # bits of an id that number the rows of a worker
_PUSH_POP, _START_END, _MARK = 59, 60, 34
_TABLES = """
create table META_DATA_EXPORT (name text, value text);
create table StringIds (id integer primary key, value text);
create table PROCESSES (globalPid integer, pid integer, name text);
create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer, utcTime text, localTime text);
create table TARGET_INFO_GPU (
    vmId integer, id integer, name text, smCount integer, totalMemory integer, computeMajor integer,
    computeMinor integer, clockRate integer, memoryBandwidth integer, cuDevice integer);
create table NVTX_EVENTS (
    start integer, end integer, eventType integer, rangeId integer, category integer, color integer, text text,
    globalTid integer, endGlobalTid integer, textId integer, domainId integer);
create table CUPTI_ACTIVITY_KIND_RUNTIME (
    start integer, end integer, eventClass integer, globalTid integer, correlationId integer, nameId integer,
    returnValue integer, callchainId integer);
create table CUPTI_ACTIVITY_KIND_KERNEL (
    start integer, end integer, deviceId integer, contextId integer, greenContextId integer, streamId integer,
    correlationId integer, globalPid integer, demangledName integer, shortName integer, mangledName integer,
    registersPerThread integer, gridX integer, gridY integer, gridZ integer, blockX integer, blockY integer,
    blockZ integer, staticSharedMemory integer, dynamicSharedMemory integer, graphNodeId integer);
create table CUPTI_ACTIVITY_KIND_MEMCPY (
    start integer, end integer, deviceId integer, contextId integer, streamId integer, correlationId integer,
    globalPid integer, bytes integer, copyKind integer, srcKind integer, dstKind integer, graphNodeId integer);
create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE (
    start integer, end integer, deviceId integer, contextId integer, streamId integer, correlationId integer,
    globalPid integer, graphId integer, graphExecId integer, originalGraphId integer);
create table CUPTI_ACTIVITY_KIND_MEMSET (
    start integer, end integer, deviceId integer, contextId integer, streamId integer, correlationId integer,
    globalPid integer, value integer, bytes integer, graphNodeId integer, memKind integer);
-- Of the profile: the globalPid of each worker and the offset of its call numbers, the globalTid of each thread, the
-- copyKind of each name.
create temp table of_worker (worker integer primary key, pid integer, first integer);
create temp table of_thread (thread integer primary key, tid integer);
create temp table of_copy (name integer primary key, kind integer);
"""
# Ids of texts: of the profile's strings, of full and of short names of kernels.
_STRINGS = """
insert into StringIds select id * 3, text from profile.string;
insert into StringIds select id * 3 + 1, name from profile.kernel_name;
insert into StringIds select id * 3 + 2, short_name from profile.kernel_name;
"""
_RANGE_TEXT = f"""
    case when seq is not null then string.text || ', seq = ' || seq
         when {IS_OPERATOR_EVENT} or (string.text like '%::%' and string.text not like '{{%')
         then string.text || ', op_id = 0' end"""


@exporter("nsys")
def nsys(store: Store, window: Window, path: str, compress: bool) -> None:
    """Write Nsight Systems' SQLite; never compressed, because SQLite could not read it."""
    if compress:
        raise UsageError(
            "--format=nsys writes SQLite, which no tool reads compressed; give a name without .gz."
        )
    if not reads.has_gpu(store):
        raise UsageError(
            f"{store.label} has no GPU kernels, so it cannot be exported in Nsight's format; use --format=chrome."
        )
    with closing(sqlite3.connect(path, isolation_level=None, uri=True)) as target:
        target.executescript("pragma journal_mode = off; pragma synchronous = off;")
        target.execute("attach ? as profile", (store.uri,))
        target.executescript(_TABLES)
        target.execute("begin")
        _fill_small_tables(store, target)
        for query in _queries(window):
            target.execute(query)
        target.execute("commit")


def _fill_small_tables(store: Store, target: sqlite3.Connection) -> None:
    """Write facts, processes, threads and devices."""
    facts = {
        "EXPORT_PRODUCT_NAME": "PyProf", "EXPORT_PRODUCT_VERSION": pyprof.__version__,
        "EXPORT_SCHEMA_VERSION": "3.16.1",
    }  # fmt: skip
    target.executemany("insert into META_DATA_EXPORT values (?, ?)", facts.items())
    begin = unix_start(int(store.meta.get("t0", 0)), store.meta)
    if begin is not None:
        target.execute("insert into TARGET_INFO_SESSION_START_TIME values (?, null, null)", (begin,))
    processes: dict[int, int] = {}
    pids: set[int] = set()
    first = 1
    for worker, pid, name in store.rows("select id, pid, process from worker order by id"):
        if pid is not None:
            number = pid & ((1 << _PID) - 1)
            machine = 0 if number not in pids else worker + 1
            pids.add(number)
            processes[worker] = (machine << _PID | number) << _TID
            target.execute("insert into PROCESSES values (?, ?, ?)", (processes[worker], number, name))
        target.execute("insert into of_worker values (?, ?, ?)", (worker, processes.get(worker), first))
        bounds = first_id(worker), first_id(worker + 1)
        last = store.rows("select max(id) from api where id >= ? and id < ?", bounds)[0][0]
        first += 0 if last is None else (last & _NUMBER) + 1
    target.executemany("insert into of_thread values (?, ?)", _threads(store, processes).items())
    target.executemany("insert into of_copy values (?, ?)", _copies(store))
    target.execute(
        """insert into TARGET_INFO_GPU
           select 0, number, name, sm_count, memory_bytes,
                  cast(substr(capability, 1, instr(capability, '.') - 1) as integer),
                  cast(substr(capability, instr(capability, '.') + 1) as integer), clock_hz,
                  bandwidth_bytes_per_s, number
           from (select *, case when compute_capability glob '[0-9]*.[0-9]*' then compute_capability end as capability
                 from profile.device) where name is not null group by number"""
    )


def _threads(store: Store, processes: dict[int, int]) -> dict[int, int]:
    """Return the globalTid of each thread; threads of an unknown process belong to process 0."""
    out: dict[int, int] = {}
    used: set[int] = set()
    for thread, worker, tid in store.rows("select id, worker, tid from thread order by id"):
        process = processes.get(worker, 0)
        key = process | (tid & ((1 << _TID) - 1))
        while key in used:
            key = process | ((key + 1) & ((1 << _TID) - 1))
        used.add(key)
        out[thread] = key
    return out


def _copies(store: Store) -> list[tuple[int, int | None]]:
    """Return the copyKind of each name: `memcpy HtoD`, in torch.profiler `Memcpy HtoD (Pageable -> Device)`."""
    numbers = {label: number for number, label in COPY_KINDS.items()}
    names = store.rows("select id, name from kernel_name where name like 'memcpy %'")
    return [(number, numbers.get(name.split()[1])) for number, name in names if len(name.split()) > 1]


def _queries(window: Window) -> list[str]:
    """Return the queries that fill the large tables, in the order of the profile's ids."""
    common = f"""event.start_ns, event.start_ns + event.duration_ns, event.device, null, {{more}}event.stream,
                (event.api & {_NUMBER}) + of_worker.first, of_worker.pid"""
    source = """from profile.event join of_worker on of_worker.worker = event.id >> 40"""
    within = window.sql("event.start_ns", "event.duration_ns")
    return [
        *(query for query in _STRINGS.strip().split("\n")),
        f"""insert into NVTX_EVENTS
            select start_ns, case when {IS_MARK} then null else start_ns + duration_ns end,
                   case kind when {START_END} then {_START_END} when {MARK} then {_MARK} else {_PUSH_POP} end,
                   null, null, null, {_RANGE_TEXT}, of_thread.tid, null, range.text * 3, 0
            from profile.range join profile.string on string.id = range.text
            join of_thread on of_thread.thread = range.thread
            where {IS_NO_FUNCTION} and {window.sql("range.start_ns", "range.duration_ns")} order by range.id""",
        f"""insert into NVTX_EVENTS
            select start_ns, end_ns, {_START_END}, null, null, null, 'ProfilerStep#' || number,
                   (select min(of_thread.tid) from of_thread join profile.thread on thread.id = of_thread.thread
                    where thread.worker = step.worker), null, null, 0
            from profile.step where {window.sql("start_ns", "(end_ns - start_ns)")} order by worker, start_ns""",
        f"""insert into CUPTI_ACTIVITY_KIND_RUNTIME
            select start_ns, start_ns + duration_ns, 0, of_thread.tid, (api.id & {_NUMBER}) + of_worker.first,
                   name * 3, 0, null
            from profile.api join of_thread on of_thread.thread = api.thread
            join of_worker on of_worker.worker = api.id >> 40
            where {window.sql("api.start_ns", "api.duration_ns")} order by api.id""",
        f"""insert into CUPTI_ACTIVITY_KIND_KERNEL
            select {common.format(more="null, ")}, event.name * 3 + 1, event.name * 3 + 2, null, registers, grid_x,
                   grid_y, grid_z, block_x, block_y, block_z, shared_memory_bytes, shared_memory_bytes * 0, event.graph
            {source} left join profile.geometry on geometry.id = event.geometry
            where event.kind = {KERNEL} and {within} order by event.id""",
        f"""insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE
            select {common.format(more="")}, cast(substr(kernel_name.name, {len(GRAPH_NAME) + 1}) as integer), null,
                   null
            {source} join profile.kernel_name on kernel_name.id = event.name
            where event.{IS_GRAPH} and {within} order by event.id""",
        f"""insert into CUPTI_ACTIVITY_KIND_MEMCPY
            select {common.format(more="")}, event.copied_bytes, of_copy.kind, event.copy_from, event.copy_to,
                   event.graph {source} left join of_copy on of_copy.name = event.name
            where event.{IS_COPY} and {within} order by event.id""",
        f"""insert into CUPTI_ACTIVITY_KIND_MEMSET
            select {common.format(more="")}, null, event.copied_bytes, event.graph, null
            {source} where event.{IS_SET} and {within} order by event.id""",
    ]

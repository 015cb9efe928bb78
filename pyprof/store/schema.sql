-- The profile database. Columns of times, lengths and sizes have their units in their names: _ns of times, from the first
-- event of the recording (meta t0 on its own clock), and of lengths. FLOPs are counts. NULL is unknown. Flags are 0 or 1.
-- Ids of events, ops, API calls and ranges are worker << 40 | number, so those of one worker are one range of ids.

-- Facts about the file and the run. schema_major, schema_minor, writer_version; the recording's own facts.
create table meta (name text primary key, value text) without rowid;
-- What the recording or its reading left out, by reason.
create table lost (reason text primary key, count integer) without rowid;

-- A process with operators or GPU events. label: how its file calls it; span: its recordings of one run, from 1. start_ns
-- and end_ns: first and last event.
create table worker (
    id integer primary key, name text, pid integer, rank integer, host text, process text, label text, span integer,
    start_ns integer, end_ns integer);
create table thread (id integer primary key, worker integer, tid integer, name text);
-- A device as the recording describes it. events: how many ran on it; 0 for one that was only visible.
create table device (
    worker integer, number integer, name text, compute_capability text, sm_count integer, memory_bytes integer,
    clock_hz integer, bandwidth_bytes_per_s integer, events integer, primary key (worker, number)) without rowid;
-- Call stacks, outermost first, one file:line a line.
create table stack (id integer primary key, frames text);
-- Texts of source files that stacks name, as far as the recording has them.
create table source (id integer primary key, file text, text text);
-- Texts of ranges and names of API calls.
create table string (id integer primary key, text text);

-- What the program executes: one row per place in the model, arguments, and direction. name: path in the tree, the
-- operator last. unassociated: 1: API calls and GPU events outside every operator, which are no part of the tree; 2:
-- the same inside a range of the user's, which is their path.
create table operator (
    id integer primary key, op_id text, name text, type text, mod text, direction integer, phase integer, module text,
    stack integer, params text, dtype text, shapes text, eligible integer, dtype_ok integer, unassociated integer);
-- One execution of an operator. cpu_ns: time in its ranges less that of executions inside it, NULL for one that a graph's
-- replay gives back, whose start is that of the launch; api_ns: union of its API calls; gpu_ns: union of its GPU
-- events, per device, added up; idle_ns: from its first to its last GPU event less gpu_ns; kernel_ns and tc_ns: sums of
-- its kernels and of those that used tensor cores. Without a GPU its operator events stand for GPU events.
create table op (
    id integer primary key, thread integer, operator integer, start_ns integer, end_ns integer, cpu_ns integer,
    api_ns integer, gpu_ns integer, idle_ns integer, kernel_ns integer, tc_ns integer, kernels integer,
    tc_kernels integer, seq integer, forward integer);
-- API calls, by start.
create table api (
    id integer primary key, thread integer, name integer, kind integer, start_ns integer, duration_ns integer,
    op integer);

-- tc: 1 uses tensor cores, 0 does not, NULL unknown. kind as in docs/roofline.md.
create table kernel_name (id integer primary key, name text, short_name text, kind text, tc integer);
-- occupancy: percent, as the recording estimates it.
create table geometry (
    id integer primary key, grid_x integer, grid_y integer, grid_z integer, block_x integer, block_y integer,
    block_z integer, registers integer, shared_memory_bytes integer, occupancy integer);
-- What limits events, as columns bound and tcwhy of docs/columns.md say; NULL is unknown. 0: both are.
create table verdict (id integer primary key, bound text, tensor_cores text);
-- Where kernels come from, finer than the operator: what each is that an operator launches.
create table site (
    id integer primary key, mod text, op text, module text, stack integer, direction integer, phase integer);
-- GPU events, by launch (without one: after the event before it on its stream, or before all). kind: 0 kernel, 1 copy,
-- 2 set, 3 operator event on the CPU, 4 a replay of a CUDA graph that was recorded as a whole.
-- duration_ns: time on the device; of an operator event its own time, and total_ns with what runs inside. tc: 1 used
-- tensor cores, 0 could have but did not, 2 does not apply. flops and bytes as docs/columns.md has them; basis as
-- docs/costs.md. dense_flops: FLOPs that the model needs. roofline_ns: the time that the device needs at least,
-- docs/roofline.md; hardware_ps, model_ps: the time that it needs at its peak for flops, for dense_flops. hardware_ps is
-- NULL for convolutions by Winograd and FFT, whose flops are those of the definition. verdict: what limits it.
create table event (
    id integer primary key, kind integer, device integer, stream integer, name integer, operator integer, op integer,
    site integer, api integer, start_ns integer, duration_ns integer, total_ns integer, geometry integer, tc integer,
    flops integer, dense_flops integer, bytes integer, basis integer, roofline_ns integer, hardware_ps integer,
    model_ps integer, verdict integer, copied_bytes integer, copy_from integer, copy_to integer, graph integer);
-- NVTX ranges (kind 0 push/pop, 1 start/end, 2 mark), RecordFunction events (3), Python functions (4), by start. text:
-- the name; args: of a RecordFunction event the text (core/marker.py) that has its arguments; stack: its call stack, where the
-- recording has one for each.
create table range (
    id integer primary key, thread integer, kind integer, start_ns integer, duration_ns integer, text integer,
    seq integer, args integer, stack integer);
-- Events of graph replays: the operator event (range) of the capture that each belongs to.
create table replayed (event integer primary key, range integer);
-- What allocators gave (bytes > 0) and took back (< 0), by time. device: NULL is the CPU. allocated_bytes,
-- reserved_bytes: after it.
create table memory (
    id integer primary key, thread integer, time_ns integer, device integer, address integer, bytes integer,
    allocated_bytes integer, reserved_bytes integer);
-- Collectives among the kernels, as far as the recording describes them. name: as in c10d (all_reduce).
-- sent_bytes, received_bytes: of this rank; size: ranks of the group; seq: the number that the group gives its collectives.
create table collective (
    event integer primary key, name text, sent_bytes integer, received_bytes integer, dtype text, process_group text,
    size integer, seq integer);
-- Calls into the operating system that read or write files, by start.
create table io (id integer primary key, thread integer, name integer, start_ns integer, duration_ns integer);
-- Waits of the training loop for its data loader, by start.
create table dataloader (id integer primary key, thread integer, start_ns integer, duration_ns integer);
-- Batches that workers of a data loader made, by start. loader: number of its facts, loader_workers.*; pid: of the
-- process that made it; number: in its epoch. That process had the indices at start_ns, the samples at collate_start_ns,
-- the batch at collate_end_ns, and had sent it at send_end_ns. cpu_ns: time of its thread from start to collate_end;
-- send_cpu_ns: of its thread that sends; slowest_ns: time of the sample that took longest, slowest_sample its index. The
-- loop waited for the batch from wait_start_ns to wait_end_ns.
create table loader_batch (
    id integer primary key, worker integer, loader integer, pid integer, number integer, samples integer,
    start_ns integer, collate_start_ns integer, collate_end_ns integer, send_end_ns integer, cpu_ns integer,
    send_cpu_ns integer, slowest_ns integer, slowest_sample integer, pin_start_ns integer, pin_end_ns integer,
    wait_start_ns integer, wait_end_ns integer);
-- Steps that the program marked.
create table step (
    worker integer, number integer, start_ns integer, end_ns integer, primary key (worker, number)) without rowid;
-- Time that is not the program's. waited: 1 while its recording was read; 0 when torch's profiler recorded no operators.
create table pause (worker integer, start_ns integer, end_ns integer, waited integer);

-- A way to cut the run into iterations. key: the operator whose ends are the boundaries.
create table iteration_set (id integer primary key, method text, key text, note text);
-- Iterations of a set, per worker: [start_ns, end_ns), which ends when what it launched has ended
-- (`facts/steps/device_bounds.py`), and [host_start_ns, host_end_ns) of the program, with the events and ops whose launch or
-- start is in it (first <= id < last). Without launches in the worker both are equal, and cut_off is NULL; else it is 1 if
-- the recording ends before the launched work. paused_ns: in [start_ns, end_ns), the program waited for its recording to be
-- read. The length of an iteration is end_ns - start_ns - paused_ns. steady: 1 if means are taken of it; why: else why
-- not, "warm-up", "incomplete", "paused", "long" or "uneven" (`facts/steps/steady_state.py`).
create table iteration (
    iteration_set integer, worker integer, number integer, start_ns integer, end_ns integer, host_start_ns integer,
    host_end_ns integer, first_event integer, last_event integer, first_op integer, last_op integer, partial integer,
    paused_ns integer, cut_off integer, steady integer, why text,
    primary key (iteration_set, worker, number)) without rowid;
-- Breakdown of each iteration: parts of a partition, which add up to its length without pauses.
create table iteration_part (
    iteration_set integer, worker integer, number integer, tc_ns integer, kernel_ns integer, memory_ns integer,
    dataloader_ns integer, io_ns integer, cpu_ns integer, other_ns integer,
    primary key (iteration_set, worker, number)) without rowid;
-- Each device in each iteration. kernels, kernel_ns, tc_ns, memory_ns: numbers and sums over the events launched in it.
-- The others are lengths within its bounds: late_ns of gaps before events that the CPU launched too late, unions busy_ns
-- of all events, kernel_busy_ns of kernels, communication_ns of kernels of collectives and of copies between devices,
-- exposed_communication_ns of these where no other kernel runs, exposed_memory_ns of other copies and sets where neither
-- a kernel nor communication does, waited_ns of calls in which the CPU waited while the device worked. Again sums over
-- the events launched in it: launched have a launch record; delay_ns: from the end of their launches to their starts;
-- queued_ns: from the starts of their launches to their ends; shaped_ns, occupied_of_ns: of kernels whose grid, whose
-- occupancy is known; filled_sm_ns: that time times the multiprocessors that get a block; occupied_bp_ns: that time times
-- the occupancy in basis points, 0.01 %.
create table iteration_device (
    iteration_set integer, worker integer, number integer, device integer, kernels integer, tc_kernels integer,
    kernel_ns integer, tc_ns integer, memory_ns integer, late_ns integer, busy_ns integer, kernel_busy_ns integer,
    communication_ns integer, exposed_communication_ns integer, exposed_memory_ns integer, launched integer,
    delay_ns integer, queued_ns integer, waited_ns integer, shaped_ns integer, filled_sm_ns integer,
    occupied_of_ns integer, occupied_bp_ns integer, primary key (iteration_set, worker, number, device)) without rowid;
-- What was aggregated: iterations first to last of a set, both included.
create table aggregation (
    id integer primary key, iteration_set integer, first integer, last integer, created text);

-- Statistics. calls are executions or events; a time and its _min_ns and _max_ns are those of all, of the shortest, the
-- longest. overhead_ns: cpu_ns less api_ns. timed: the calls whose cpu_ns is known, which cpu_ns and overhead_ns are sums
-- of.
create table op_stat (
    aggregation integer, worker integer, operator integer, calls integer, timed integer, kernels integer,
    tc_kernels integer, kernel_ns integer, tc_ns integer, cpu_ns integer, gpu_ns integer, overhead_ns integer,
    idle_ns integer, cpu_min_ns integer, gpu_min_ns integer, overhead_min_ns integer, idle_min_ns integer,
    cpu_max_ns integer, gpu_max_ns integer, overhead_max_ns integer, idle_max_ns integer,
    primary key (aggregation, worker, operator)) without rowid;
-- Kernels, copies and sets by operator and name. gpu_ns: time on the device; api_ns: time of their launches; flops,
-- dense_flops and bytes: sums of what is known, as roofline_ns and _ps; _unknown_ns the time of events that they leave out
-- (hardware_unknown_ns: hardware_ps does); launched: the events with a launch record, which api_ns is of. tc as in event,
-- 3 for unknown.
create table op_kernel_stat (
    aggregation integer, worker integer, operator integer, name integer, kind integer, tc integer, verdict integer,
    calls integer, gpu_ns integer, api_ns integer, launched integer, flops integer, dense_flops integer, bytes integer,
    flops_unknown_ns integer, bytes_unknown_ns integer, roofline_ns integer, roofline_unknown_ns integer,
    hardware_ps integer, hardware_unknown_ns integer, model_ps integer, gpu_min_ns integer, api_min_ns integer,
    gpu_max_ns integer, api_max_ns integer,
    primary key (aggregation, worker, operator, name, kind, tc, verdict)) without rowid;

-- The timeline (docs/timeline.md). Rows of the picture: sets of lanes with events. kind: range, function, overlap, module,
-- api, file, loader, stream, idle; outer_lanes: those at the top with one event each; levels: "level:shift ..." of its
-- tiles. A database that serves a report alone has none.
create table track (
    id integer primary key, worker integer, kind text, thread integer, device integer, stream integer, lanes integer,
    outer_lanes integer, events integer, start_ns integer, end_ns integer, levels text);
-- Their events in pieces of time, at several levels of detail; data: zstd frames of size_bytes once inflated.
create table tile (
    track integer, level integer, number integer, records integer, size_bytes integer, data blob,
    primary key (level, number, track));
-- Texts of records of the kinds module, loader and idle.
create table label (id integer primary key, text text);

-- Places of the host, of gaps of the devices. Their gaps are in `packed` alone (`facts/host/gaps.py`).
create table place (
    id integer primary key, call text, host text, "where" text, operator text, module text, line text, stack text,
    op_id text);

-- Arrivals of ranks at collectives, and what each did of its own before (`facts/ranks/rank_work.py`).
-- When the calls that launched the collectives began; without a launch record, when these started.
create table launch (event integer primary key, start_ns integer);
-- Moments of a device that other ranks may share: starts, ends and launches of collectives, starts of steps and of the
-- recording. Lengths are those since the moment before. computation_ns: of kernels other than communication. kernels_ns to
-- host_ns: partition of the time, with copies in kernels_ns. waits_ns to unwaited_host_ns: partition of the host's time.
create table moment (
    worker integer, device integer, time_ns integer, computation_ns integer, kernels_ns integer,
    communication_ns integer, dataloader_ns integer, launch_ns integer, host_ns integer, waits_ns integer,
    unwaited_dataloader_ns integer, unwaited_launch_ns integer, unwaited_host_ns integer,
    primary key (worker, device, time_ns)) without rowid;
-- Time in host_ns of each operator, between a moment and the next that is no launch.
create table moment_operator (
    worker integer, device integer, time_ns integer, operator integer, host_ns integer,
    primary key (worker, device, time_ns, operator)) without rowid;

-- Columns of event, api, op and range once more, for reading all rows (store/packed.py): pieces of consecutive rows, with
-- the ids of the first and the last; data: Parquet. Derived: a table without pieces is read from its rows.
create table packed (
    source text, first_id integer, last_id integer, rows integer, data blob, primary key (source, first_id));

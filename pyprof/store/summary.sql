-- Tables that the summary of a fleet has besides those of schema.sql. All but the first are of analysis/rank_work.py.

-- The name of each worker's database, in the folder of the summary.
create table recording (worker integer primary key, database text);
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

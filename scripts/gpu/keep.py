#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copy recordings of record.py, counters.py and own_buffers.py to tests/traces/gpu, without the paths of the machine.

python scripts/gpu/keep.py FOLDER PATH=REPLACEMENT...

FOLDER has record/ (files of PyProf, traces of torch), and where they were made ncu.csv with counters.sqlite, and raw/.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

TARGET = Path(__file__).resolve().parents[2] / "tests/traces/gpu"
# Of Nsight Compute: one column of the table -> the metrics whose sum it is.
COUNTERS = {
    "duration_ns": ("gpu__time_duration.sum",),
    "dram_bytes": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    "tensor_ops": tuple(
        f"sm__ops_path_tensor_src_{kind}.sum"
        for kind in ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp64", "fp8", "int8")
    ),
    "registers": ("launch__registers_per_thread",),
    "static_shared": ("launch__shared_mem_per_block_static",),
    "dynamic_shared": ("launch__shared_mem_per_block_dynamic",),
    "occupancy": ("sm__maximum_warps_per_active_cycle_pct",),
    "waves": ("launch__waves_per_multiprocessor",),
}


def write(name: str, data: bytes) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    print(name, len(data), (TARGET / f"{name}.gz").stat().st_size)


def database(path: Path, paths: dict[str, str]) -> bytes:
    """A file of PyProf with other paths."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copy(path, copy)
        with closing(sqlite3.connect(copy)) as connection:
            tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
            for table in tables:
                for _, column, kind, *_ in connection.execute(f'pragma table_info("{table}")').fetchall():
                    if kind.upper() not in ("TEXT", ""):
                        continue
                    for old, new in paths.items():
                        connection.execute(
                            f'update "{table}" set "{column}" = replace("{column}", ?, ?) where "{column}" like ?',
                            (old, new, f"%{old}%"),
                        )
            connection.commit()
            connection.execute("vacuum")
        return copy.read_bytes()


def counters(path: Path) -> str:
    """The metrics of each kernel that the tests need."""
    text = "".join(line for line in path.read_text().splitlines(True) if not line.startswith("=="))
    rows = list(csv.DictReader(io.StringIO(text)))[1:]  # the first has units
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["range", "kernel", *COUNTERS])
    for row in rows:
        pushed = next(value for key, value in row.items() if key and "Push/Pop" in key)
        values = [sum(float(row[metric].replace(",", "") or 0) for metric in metrics) for metrics in COUNTERS.values()]
        name = pushed[pushed.find("domain>:") + 8 :].split(":")[0]
        table.writerow([name, row["Kernel Name"], *(f"{value:g}" if value % 1 else int(value) for value in values)])
    return out.getvalue()


def main(folder: Path, paths: dict[str, str]) -> None:
    for path in sorted(folder.glob("record/*.sqlite")):
        write(path.name, database(path, paths))
    for path in sorted(folder.glob("record/*.json.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        for old, new in paths.items():
            text = text.replace(old, new).replace(json.dumps(old)[1:-1], new)
        write(path.name.removesuffix(".gz"), json.dumps(json.loads(text), separators=(",", ":")).encode())
    if (folder / "ncu.csv").exists():
        write("counters.csv", counters(folder / "ncu.csv").encode())
        write("counters.sqlite", database(folder / "counters.sqlite", paths))
    for path in sorted(folder.glob("raw/*")):
        write(f"cupti_{path.name}", path.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:]))

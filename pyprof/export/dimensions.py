# SPDX-License-Identifier: Apache-2.0
"""JSON of the dimensions that rows of a Chrome trace refer to, each spelled once. Lists are indexed by id from 0."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyprof.core.model import DIRECTIONS, PHASES
from pyprof.export.chrome_names import member
from pyprof.export.json_text import quoted
from pyprof.store.files import Store

CATEGORIES = (',"cat":"kernel"', ',"cat":"gpu_memcpy"', ',"cat":"gpu_memset"', "", ',"cat":"kernel"')
_VERSION = re.compile(r"_v[0-9]+$")  # cudaLaunchKernel_v7000


def devices(store: Store) -> list[dict[str, Any]]:
    """Return devices as torch.profiler describes them; with several workers, each names its worker."""
    rows = store.rows(
        """select d.number, d.name, d.memory_bytes, d.compute_capability, d.sm_count, w.name
           from device d join worker w on w.id = d.worker order by d.worker, d.number"""
    )
    several = len({row[5] for row in rows}) > 1
    out = []
    for number, name, memory, capability, units, worker in rows:
        major, _, minor = (capability or "").partition(".")
        facts = {
            "id": number, "name": name, "totalGlobalMem": memory,
            "computeMajor": int(major) if major.isdigit() else None,
            "computeMinor": int(minor) if minor.isdigit() else None,
            "numSms": units, "worker": worker if several else None,
        }  # fmt: skip
        out.append({key: value for key, value in facts.items() if value is not None})
    return out


def distributed(store: Store) -> dict[str, Any]:
    """Return the rank, and facts about its group, for a trace of one rank; nothing for several."""
    ranks = store.rows("select distinct rank from worker")
    if len(ranks) != 1 or ranks[0][0] is None:
        return {}
    facts: dict[str, Any] = {"rank": ranks[0][0]}
    meta = store.meta
    if "distributed.backend" in meta:
        facts["backend"] = meta["distributed.backend"]
    size = meta.get("distributed.world_size", "")
    return facts | ({"world_size": int(size)} if size.isdecimal() else {})


def operators(store: Store) -> list[str | None]:
    """Return a description of each operator, as members of an object."""
    texts = {}
    for number, identity, name, direction, phase, params, shapes in store.rows(
        "select id, op_id, name, direction, phase, params, shapes from operator"
    ):
        parts = (
            ("op", name), ("op id", identity), ("direction", DIRECTIONS[direction]), ("phase", PHASES[phase]),
            ("params", params), ("shapes", shapes),
        )  # fmt: skip
        texts[number] = "".join(member(key, value) for key, value in parts)
    return _list(texts)


def places(store: Store) -> list[str | None]:
    """Return each operator's place in the program, as members of an object."""
    rows = store.rows("select o.id, o.module, k.frames from operator o left join stack k on k.id = o.stack")
    return _list({n: member("op module", module) + member("op stack", frames) for n, module, frames in rows})


def sites(store: Store) -> list[str | None]:
    """Return each site's place in the program, as members of an object."""
    rows = store.rows("select s.id, s.module, k.frames from site s left join stack k on k.id = s.stack")
    return _list({number: member("module", module) + member("stack", frames) for number, module, frames in rows})


def kernels(store: Store) -> list[str | None]:
    """Return the member "name" for each name of a GPU event."""
    return _list({number: f'"name":{quoted(name)}' for number, name in store.rows("select id, name from kernel_name")})


def geometries(store: Store) -> list[str | None]:
    """Return members for each launch geometry, as in torch.profiler."""
    texts = {}
    for number, *grid, registers, shared, occupancy in store.rows(
        """select id, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory_bytes,
                  occupancy from geometry"""
    ):
        text = ""
        if None not in grid:
            text = f',"grid":{json.dumps(grid[:3])},"block":{json.dumps(grid[3:])}'
        parts = (
            ("registers per thread", registers),
            ("shared memory", shared),
            ("est. achieved occupancy %", occupancy),
        )
        texts[number] = text + "".join(f',"{key}":{value}' for key, value in parts if value is not None)
    return _list(texts)


def calls(strings: Mapping[int, str]) -> list[str | None]:
    """Return name, without the version suffix that CUPTI adds, and category for each name of an API call."""
    texts = {}
    for number, text in strings.items():
        driver = text.startswith("cu") and not text.startswith("cuda")
        name = quoted(_VERSION.sub("", text))
        texts[number] = f'"name":{name},"cat":"{"cuda_driver" if driver else "cuda_runtime"}"'
    return _list(texts)


def _list(texts: Mapping[int, str]) -> list[str | None]:
    return [texts.get(number) for number in range(max(texts, default=-1) + 1)]

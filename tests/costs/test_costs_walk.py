# SPDX-License-Identifier: Apache-2.0
"""Every name that torch has: each has a formula, moves nothing, or has a stated reason. `pytest -s` prints the sums.

Names: what users can override (torch, Tensor, functional, linalg, fft, special), the dispatcher's `aten::` schemas, and
collectives. A torch that brings a name of which none of the three is true fails here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from types import ModuleType

import pytest
import torch
import torch.distributed._functional_collectives  # registers operators of its own
from torch.overrides import get_overridable_functions, resolve_name

from pyprof.core.model import Call
from pyprof.costs.cost import VIEW, find, formulas, lookup
from pyprof.costs.reasons import REASONS, reason

pytestmark = pytest.mark.filterwarnings("ignore")
ROUTES = ("formula", "view", "reason", "nothing")


def overridable() -> Iterator[tuple[str, str]]:
    """(namespace, name); accessors of attributes are not calls."""
    for namespace, functions in get_overridable_functions().items():
        if not isinstance(namespace, (ModuleType, type)):
            continue  # properties of Tensor
        mod = "Tensor" if namespace is torch.Tensor else namespace.__name__
        for function in functions:
            name = getattr(function, "__name__", None) or (resolve_name(function) or "").rpartition(".")[2]
            if name and name not in ("__get__", "__set__", "__delete__"):
                yield mod, name


def dispatched(prefix: str) -> Iterator[tuple[str, str]]:
    names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith(prefix)}
    return ((prefix.rstrip(":"), name) for name in sorted(names))


def route(mod: str, name: str) -> str:
    """How a name gets its cost."""
    found = find(mod, name)
    if found is None:
        return "reason" if reason(name.rpartition("::")[2]) else "nothing"
    return "view" if found[0].function is formulas()["view"].function else "formula"


@pytest.mark.parametrize("what", ["overridable", "aten::"])
def test_no_name_is_left_over(what: str) -> None:
    names = sorted(set(overridable() if what == "overridable" else dispatched(what)))
    routes = {name: route(*name) for name in names}
    print(what, len(names), dict(Counter(routes.values())))
    assert [name for name, way in routes.items() if way == "nothing"] == []
    assert len(names) > 1000


def test_operators_of_collectives_have_a_cost() -> None:
    missing = {
        name
        for prefix in ("c10d::", "_c10d_functional::", "_c10d_functional_autograd::")
        for mod, name in dispatched(prefix)
        if find(mod, name) is None
    }
    assert missing <= {"_c10d_functional::batch_p2p_ops"}  # a list of sends and receives by text


@pytest.mark.parametrize("folder", ["linalg", "fft", "special"])
def test_a_function_is_its_own_operator_and_not_a_namesake(folder: str) -> None:
    """As a user writes it: torch.linalg.svd is aten::linalg_svd, whose defaults are not torch.svd's."""
    module = getattr(torch, folder)
    names = [name for name in dir(module) if name in getattr(module, "__all__", dir(module)) and name.islower()]
    functions = [name for name in names if callable(getattr(module, name)) and not name.startswith("_")]
    assert len(functions) > 10
    for name in functions:
        found = find(f"torch.{folder}", name)
        assert found is not None, name
        assert found == find("aten", f"aten::{folder}_{name}"), name


def test_a_name_without_formula_or_reason_is_found() -> None:
    assert route("torch", "brand_new_operator") == "nothing"
    assert route("aten", "aten::brand_new_operator") == "nothing"


def test_every_reason_is_about_a_name_that_has_no_formula() -> None:
    bare = {name.rpartition("::")[2] for _, name in (*overridable(), *dispatched("aten::"))}
    left = [name for name in bare if find("aten", f"aten::{name}") is None]
    assert [p for p, _ in REASONS if not any(fnmatchcase(name, p) for name in left)] == []


def test_what_has_no_formula_costs_an_unknown_amount_not_nothing() -> None:
    for name in ("_sparse_mm", "quantized_lstm", "multi_head_attention_forward"):
        assert lookup(Call("aten", f"aten::{name}")).flops is None
        assert lookup(Call("aten", f"aten::{name}")) != VIEW

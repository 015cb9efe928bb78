# SPDX-License-Identifier: Apache-2.0
"""One call, one cost: every formula is called as torch's schemas have it, by position and by keyword.

A recording knows an operator's arguments by position; an estimate, and a user, may name them. Arguments are generated
by type, for every overload of every operator that has a formula; tensors differ in dtype, so that one that is taken for
another shows in the bytes. `pytest -s` prints how many calls have a cost.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives  # registers operators of its own
import torch.nn.attention.varlen  # and this, too

from pyprof.core.model import Arg, Call, Other, Tensor, Value
from pyprof.costs.cost import UNKNOWN, _parameter, find, formulas, lookup

pytestmark = pytest.mark.filterwarnings("ignore")

# Where names cannot say what places say, or the other way round.
EXCEPTIONS = {
    # An event has no overload's name: what stands in a place differs between the overloads.
    "aten::*_window": "by position a dtype stands where another overload has a number",
    "aten::eye": "by position a dtype stands where another overload has the columns",
    "aten::logspace": "by position the base and the dtype",
    "aten::gradient": "by position dim stands where another overload has the spacing",
    "aten::histogram": "by position a weight may be the range or density",
    "aten::norm": "by position a dtype stands where another overload has dim",
    "aten::normal": "by position a generator stands where another overload has the dtype",
    "aten::rand*": "by position a generator stands where another overload has the dtype",
    "aten::addmm": "by position out_dtype stands where another overload has beta",
    "aten::baddbmm": "by position out_dtype stands where another overload has beta",
    "aten::_*flash_attention*": "the scales of the fp8 overload are left out here, or stand before a setting",
    "aten::stft": "by position center stands where another overload has normalized",
    "aten::tensordot": "torch.tensordot has one argument for both lists of dimensions",
    "aten::to": "by position a dtype stands where another overload has the device",
    "quantized::*": "by position the number may stand first",
    "mkldnn::*_pointwise*": "by position the second operand of the binary form stands before the weight",
    # Operators that nobody calls by name: decompositions, and kernels of a backward.
    "prims::*": "their names are those of other arguments elsewhere (dims, output_dtype, full_matrices)",
    "aten::conv_tbc_backward": "self is the gradient, input is the input",
    "aten::_cholesky_solve_helper": "A is the factor here",
    "aten::triangular_solve": "self is the right-hand side, A the matrix",
    "aten::linalg_ldl_solve": "shares the formula of lu_solve, which has two settings more",
    "aten::embedding_renorm*": "shares the formula of renorm, which has other arguments",
    "aten::normal_": "self is what is overwritten, elsewhere the means stand first",
    "aten::repeat_interleave": "one overload has no input",
    "aten::_no_grad_uniform_": "a and b are bounds here, tensors elsewhere",
    "aten::binomial": "count is a tensor here",
    "aten::_saturate_weight_to_fp16": "weight is what is rounded",
    "aten::dequantize": "the overload of scripted modules has a name of its own",
}  # fmt: skip
# Libraries that are not installed here, and functions that have no schema.
NO_SCHEMA = (
    "flash_attn::", "_C::", "_C_cache_ops::", "_moe_C::", "aiter::", "flashinfer::", "sgl_kernel::", "sglang::",
    "sglang_profiler::", "triton::", "triton_", "vllm::", "fbgemm::", "torchvision::", "quantized::",
)  # fmt: skip
SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((4, 4),), ((4,),), ((2, 4, 4),), ((2, 4, 8, 8), (4, 4, 3, 3), (4,)), ((2, 4, 8, 8),), ((4, 4), (4,)),
    ((2, 4, 8), (4, 4, 3), (4,)),
)  # fmt: skip
DTYPES = ("float32", "float64", "float16")


def generated(rng: random.Random, kind: str, shapes: tuple[tuple[int, ...], ...], place: int) -> Value:
    """An argument of a type of a schema."""
    if kind.startswith("Optional["):
        return None if rng.random() < 0.5 else generated(rng, kind[9:-1], shapes, place)
    if kind == "Tensor":
        return Tensor(shapes[min(place, len(shapes) - 1)], DTYPES[place % 3])
    if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
        return (Tensor(shapes[0], DTYPES[(place + 1) % 3]),) * 2
    choices: dict[str, list[Value]] = {
        "List[int]": [(1, 1), (2, 2), (0, 1), (4, 4), ()],
        "List[bool]": [(True, False, True)],
        "List[float]": [(1.0, 2.0)],
        "int": [0, 1, 2, 4],
        "bool": [False, True],
        "float": [0.0, 0.5, 1.0, 2.0],
        "number": [0, 1, 2.5],
        "Scalar": [0, 1, 2.5],
        "str": ["mean", "sum", "tanh", "none"],
    }
    return rng.choice(choices.get(kind, [None]))


def calls(schema: Any) -> Iterator[tuple[Call, Call, Call]]:
    """The same call by position, by keyword, and as Python's binding has it; without the places of results."""
    arguments = [a for a in schema.arguments if not (a.kwarg_only and a.alias_info and a.alias_info.is_write)]
    mod = schema.name.partition("::")[0]
    for trial in range(2 * len(SHAPES)):
        rng = random.Random(f"{schema.name}.{schema.overload_name}.{trial}")
        values: list[Value] = []
        for place, argument in enumerate(arguments):
            given = argument.default_value
            if argument.name.endswith("dtype"):
                value: Value = rng.choice([None, Other("dtype", "torch.float64"), Other("dtype", "torch.float16")])
            elif trial % 2 == 0 and argument.has_default_value() and rng.random() < 0.7:
                value = tuple(given) if isinstance(given, list) else given
            else:
                value = generated(rng, str(argument.type), SHAPES[trial % len(SHAPES)], place)
            values.append(value)
        pairs = list(zip(arguments, values))
        yield (
            Call(mod, schema.name, tuple(Arg("", v) for _, v in pairs)),
            Call(mod, schema.name, tuple(Arg(a.name, v) for a, v in pairs)),
            Call(mod, schema.name, tuple(Arg(a.name if a.kwarg_only else "", v) for a, v in pairs)),
        )


def schemas() -> list[Any]:
    found = [s for s in torch._C._jit_get_all_schemas() if find(s.name.partition("::")[0], s.name)]
    writes = [s for s in found if any(a.kwarg_only and a.alias_info and a.alias_info.is_write for a in s.arguments)]
    return [s for s in found if s not in writes]


def excepted(name: str) -> str | None:
    return next((pattern for pattern in EXCEPTIONS if fnmatchcase(name, pattern)), None)


def test_position_and_keyword_cost_the_same() -> None:
    known, different, needed = 0, {}, set()
    every = schemas()
    for schema in every:
        seen = False
        for place, keyword, mixed in calls(schema):
            costs = [lookup(call) for call in (place, keyword, mixed)]
            seen = seen or costs[0] != UNKNOWN
            if costs[0] == costs[1] == costs[2]:
                continue
            pattern = excepted(schema.name)
            if pattern is None:
                different[f"{schema.name}.{schema.overload_name}"] = place, costs
            else:
                needed.add(pattern)
        known += seen
    print(f"{len(every)} overloads, {known} with a cost")
    assert different == {}
    assert known > 1700
    assert set(EXCEPTIONS) - needed == set()


def test_what_a_formula_needs_is_a_name_of_its_schema() -> None:
    """A parameter without a default is reached by a name of some overload."""
    names: dict[str, set[str]] = {}
    for schema in schemas():
        names.setdefault(schema.name, set()).update(a.name for a in schema.arguments)
    missing = {}
    for name, given in names.items():
        found = find(name.partition("::")[0], name)
        assert found is not None
        parameters = inspect.signature(found[0].function).parameters.values()
        needed = {p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
        left = needed - {_parameter(found[0], one) for one in given}
        if left and excepted(name) is None:
            missing[name] = left, given
    assert missing == {}


def test_operators_without_a_schema_are_those_of_libraries_that_are_not_here() -> None:
    have = {schema.name for schema in torch._C._jit_get_all_schemas()}
    left = [name for name in formulas() if "::" in name and name.split(".")[0] not in have | {"aten"}]
    assert [name for name in left if not name.startswith(NO_SCHEMA)] == []


def named(op: str, *args: Value, mod: str = "torch", **keywords: Value) -> Call:
    return Call(mod, op, (*(Arg("", v) for v in args), *(Arg(name, v) for name, v in keywords.items())))


def test_settings_that_are_named_count() -> None:
    """SGD: scale and subtract 2, momentum 2, Nesterov 2, weight decay 2, for each of 10 parameters."""
    p = (Tensor((10,), "float32"),)
    settings: dict[str, Value] = {
        "weight_decay": 0.1, "momentum": 0.9, "lr": 0.01, "dampening": 0.0, "nesterov": True
    }  # fmt: skip
    assert lookup(named("_fused_sgd_", p, p, p, **settings)).flops == 80
    assert lookup(named("_fused_sgd_", p, grads=p, momentum_buffer_list=p, **settings)).flops == 80
    assert lookup(named("_fused_sgd_", p, p, momentum_buffer_list=(), **settings | {"weight_decay": 0.0})).flops == 20


def test_a_causal_backward_that_is_named_so_has_half_the_pairs() -> None:
    """Five products of 2·2·4 per pair, in 2·3 heads: 10 pairs of 4 queries and 4 keys, not 16."""
    t, rest = Tensor((2, 3, 4, 4), "float16"), (Tensor((2, 3, 4), "float32"),)
    call = named("aten::_scaled_dot_product_flash_attention_for_cpu_backward", t, t, t, t, t, *rest, mod="aten",
                 dropout_p=0.0, is_causal=True)  # fmt: skip
    assert lookup(call).flops == 5 * 2 * 6 * 10 * 4


def test_lengths_of_sequences_are_data_under_every_name() -> None:
    """16 sequences of 256 in 4096 rows: 16·256² pairs at most, which only the values of the offsets tell."""
    x, offsets = Tensor((4096, 8, 64), "float16"), Tensor((17,), "int32")
    for name, first, second in (
        ("torch_attn::_varlen_attn", "cu_seq_q", "cu_seq_k"),
        ("aten::_flash_attention_forward", "cum_seq_q", "cum_seq_k"),
        ("aten::_efficient_attention_forward", "cu_seqlens_q", "cu_seqlens_k"),
    ):
        call = named(name, mod=name[:4], query=x, key=x, value=x, **{first: offsets, second: offsets})
        assert lookup(call).flops is None
        assert lookup(call).bytes == 4 * 4096 * 8 * 64 * 2
    x = Tensor((2, 16, 8, 64), "float16")  # B, S, H, D: 2·8 heads of 16·16 pairs, 4·64 FLOPs each
    call = named("flash_attn::_flash_attn_forward", q=x, k=x, v=x, causal=False, mod="flash_attn")
    assert lookup(call).flops == 2 * 8 * 16 * 16 * 4 * 64


def test_a_window_counts_its_keys() -> None:
    """4 queries that see themselves and one key to the left: 1 + 2 + 2 + 2 pairs; 4·D FLOPs each."""
    x, offsets = Tensor((4, 1, 8), "float16"), Tensor((2,), "int32")
    call = named("torch_attn::_varlen_attn", x, x, x, offsets, offsets, 4, 4, False, None, (1, 0), mod="torch_attn")
    assert lookup(call).flops == 7 * 4 * 8
    assert lookup(call).flops_dense == 16 * 4 * 8

# SPDX-License-Identifier: Apache-2.0
"""FLOPs and bytes of a call: the registry of formulas, and the lookup that never fails.

Add an operator: one function in a file of `ops/`, decorated with the names it serves. Its parameters are torch's, so
recorded arguments bind by position or keyword; arguments that it does not name are ignored.

A name is what a user writes without dunder and in-place underscore (`add` serves `torch.add`, `x + y`, `x += y`,
`x.add_(y)` and `aten::add_.Tensor`). A spelling whose arguments have another order is registered with its namespace
(`aten::embedding`, `torch.embedding`) and takes precedence. A formula with a parameter `inplace` gets whether the
call works in place, one with `kernel_name` the full name of a kernel that Inductor announces.

>>> half = [Arg("", Tensor(shape, "float16")) for shape in ((2, 8), (5, 8))]
>>> lookup(Call("torch.nn.functional", "linear", tuple(half)))
Cost(flops=160, bytes=132)
>>> lookup(Call("mine", "warp", ())).basis
'unknown'
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from math import prod
from typing import Any, NamedTuple

from pyprof.core.marker import STOPPED
from pyprof.core.model import Arg, Call, Cost, Other, Tensor, Value
from pyprof.core.registry import Registry, load_folder
from pyprof.costs.complexes import is_complex, real_operations
from pyprof.costs.reasons import COSTLESS, reason_of, selects

_NAME_PARAMETERS = frozenset(["inplace", "kernel_name"])  # parameters that are filled from a call's name
_OUT = re.compile(r"out[0-9]*$")  # destinations of the dispatcher's forms, not operands
# Arguments that affect placement and layout, not work: no formula uses them.
_IGNORED = frozenset(
    [
        "device",
        "dtype",
        "layout",
        "pin_memory",
        "requires_grad",
        "generator",
        "memory_format",
        "non_blocking",
        "copy",
    ]
)
_NUMBERED = re.compile(r"(.+)_[0-9]+$")
_LOOP = re.compile(r"triton_(?:poi|red|per)_fused(?=_|$)")
LARGEST = 2**63 - 1  # of a count: columns are int64
_MAX_RANK = 1024  # of a plausible tensor; torch's own kernels stop at 64
UNKNOWN = Cost(None, None, basis="unknown")
VIEW = Cost(0, 0, basis="view")

# Operators of Python that have another name than the function they call.
DUNDERS = {
    "__matmul__": "matmul", "__rmatmul__": "matmul", "__imatmul__": "matmul",
    "__truediv__": "div", "__rtruediv__": "rdiv", "__itruediv__": "div", "__div__": "div", "__rdiv__": "rdiv",
    "__idiv__": "div", "__floordiv__": "floor_divide", "__rfloordiv__": "rfloor_divide",
    "__ifloordiv__": "floor_divide",
    "__mod__": "remainder", "__rmod__": "remainder", "__imod__": "remainder",
    "__radd__": "add", "__iadd__": "add", "__rsub__": "rsub", "__isub__": "sub", "__rmul__": "mul", "__imul__": "mul",
    "__rpow__": "rpow", "__ipow__": "pow", "__invert__": "bitwise_not",
    "__and__": "bitwise_and", "__iand__": "bitwise_and", "__rand__": "bitwise_and",
    "__or__": "bitwise_or", "__ior__": "bitwise_or", "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor", "__ixor__": "bitwise_xor", "__rxor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift", "__ilshift__": "bitwise_left_shift", "__rlshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__irshift__": "bitwise_right_shift", "__rrshift__": "bitwise_right_shift",
    "__getitem__": "getitem", "__setitem__": "setitem",
    # The host reads a value; these are not the casts of the same name.
    "__bool__": "item", "__int__": "item", "__float__": "item", "__complex__": "item", "__index__": "item",
    "__array__": "numpy",
    "__len__": "size", "__contains__": "eq", "__reversed__": "flip",
}  # fmt: skip
# Other names of an argument: the dispatcher's, and numpy's names that torch accepts. The first listed parameter that a
# formula has is used; a formula's own name takes precedence.
_FIRST = ("input", "A", "a", "B", "b", "tensor", "tensors", "saved", "grad_output", "qx", "mean", "count")
ALIASES: dict[str, tuple[str, ...]] = {
    "self": _FIRST, "x": ("input", "self"), "a": ("input",), "x1": ("input",), "l": ("input",), "dict": ("input",),
    "X": ("input",), "inp": ("input",), "qx": ("input", "qa"), "t": ("data",), "LD": ("LU",),
    "element": ("elements",), "pred": ("condition",),
    "tensor": ("input",), "input": ("tensor", "A", "self", "L", "qx"), "inputs": ("tensors", "input", "tensor"),
    "tensors": ("tensor", "input"), "grad": ("grad_output",), "grad_out": ("grad_output",),
    "grad_in": ("grad_output",), "output": ("saved",), "input2": ("L", "tau"), "input3": ("other",),
    "X2": ("other",), "x2": ("other",), "y": ("other",), "exponent": ("other",), "max": ("other",),
    "min": ("other",), "values": ("other",), "item": ("other",), "key": ("other",), "b": ("B", "other", "qb"),
    "other": ("B", "b", "src"), "test_element": ("test_elements",), "W": ("weight",), "w": ("weight",),
    "ORI_W": ("weight",), "MKL_W": ("packed",), "batch_size": ("batch",), "matrices": ("tensors",),
    "qtensors": ("input",), "counts": ("count",), "glu": ("glu_",), "scales": ("scale",),
    "zero_points": ("zero_point",), "sizes": ("sizes_",), "padding": ("pad",), "shape": ("size",),
    "axis": ("dim",), "dims": ("dim",), "keepdims": ("keepdim",), "output_dtype": ("dtype",),
    "output_tensor": ("output",), "output_tensors": ("output", "tensor"), "outputs": ("output",),
    "input_tensor": ("input",), "input_list": ("input",), "output_lists": ("output",),
    "input_tensors": ("input", "rank_tensors"), "qScale": ("qScaleAndZeros",),
}  # fmt: skip

# Modules whose functions have a name of their own in torch's registry: torch.linalg.svd is linalg_svd.
FOLDERS = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}

# Namespaces in which the bare name identifies the operator: the dispatcher's and its decompositions.
TORCHS_OWN = ("aten", "prims")


class Formula(NamedTuple):
    """A cost function and the file of `ops/` that defines it, whose name is its kind (gemm, conv, norm, ...)."""

    function: Callable[..., Cost]
    family: str
    parameters: frozenset[str]
    takes_inplace: bool
    takes_name: bool
    positional: int  # maximum number of arguments without a name
    takes_more: bool  # also accepts keyword arguments that it does not list
    order: tuple[str, ...]  # the parameters that can be passed without a name
    moves: bool  # computes nothing


_FORMULAS: Registry[Formula] = Registry("cost formula")


def cost(*names: str, moves: bool = False) -> Callable[[Callable[..., Cost]], Callable[..., Cost]]:
    """Register the decorated function as the cost of the calls with these names. `moves`: whatever the arguments, they
    compute nothing."""

    def add(function: Callable[..., Cost]) -> Callable[..., Cost]:
        signature = inspect.signature(function).parameters
        open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = frozenset(name for name, p in signature.items() if p.kind not in open_ended)
        kinds = [p.kind for name, p in signature.items() if name not in _NAME_PARAMETERS]
        variadic = inspect.Parameter.VAR_POSITIONAL in kinds
        positional = sys.maxsize if variadic else kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        family = function.__module__.rsplit(".", 1)[-1]
        _FORMULAS.register(*names)(
            Formula(
                function,
                family,
                parameters - _NAME_PARAMETERS,
                "inplace" in parameters,
                "kernel_name" in parameters,
                positional,
                inspect.Parameter.VAR_KEYWORD in kinds,
                tuple(
                    n for n, p in signature.items() if p.kind is p.POSITIONAL_OR_KEYWORD and n not in _NAME_PARAMETERS
                ),
                moves,
            )
        )
        return function

    return add


@cache
def formulas() -> Registry[Formula]:
    """Return every registered formula, after loading the files of `ops/`."""
    load_folder("pyprof.costs.ops", "pyprof.costs")
    return _FORMULAS


@cache
def find(mod: str, op: str) -> tuple[Formula, bool] | None:
    """Return the formula of a call's name and whether the call works in place; None if there is none.

    >>> find("Tensor", "__iadd__")[1], find("aten", "aten::add.Tensor")[1], find("mine", "mine::add")
    (True, False, None)
    >>> find("torch.linalg", "svd") == find("aten", "aten::linalg_svd") != find("torch", "svd")
    True
    """
    registry = formulas()
    space = op.rpartition("::")[0]
    numbered = _NUMBERED.match(op)
    if numbered and (generated := registry.get(_generated(numbered[1], space))) is not None:
        return generated, False
    if space and space not in TORCHS_OWN:  # another library's operator may share only the name
        exact = registry.get(op.split(".", 1)[0])
        return None if exact is None else (exact, False)
    name = op.rsplit("::", 1)[-1].split(".", 1)[0]
    bare, inplace = _bare(op)
    plain = bare.removeprefix("special_").removeprefix("linalg_")  # torch.special.erf and torch.erf are one
    own = (
        f"{FOLDERS[mod]}{bare}" if mod in FOLDERS else ""
    )  # takes precedence over its namesake in torch: linalg.svd is not svd
    for key in (f"{mod}.{op}", own, op.split(".", 1)[0], name, bare, plain):
        formula = registry.get(key)
        if formula is not None:
            return formula, inplace
    return None


def _generated(name: str, space: str) -> str:
    """Return the formula's name for an operator whose name ends in a number: functions that SGLang's profiler wraps,
    and Triton kernels that Inductor announces, its own by the kind of their loops.

    >>> _generated("triton_poi_fused_add", ""), _generated("sage_fwd", ""), _generated("mine::add", "mine")
    ('triton_poi_fused', 'triton::sage_fwd', '')
    """
    if space:
        return name if space == "sglang_profiler" else ""
    loop = _LOOP.match(name)
    return loop[0] if loop else f"triton::{name}"


def _bare(op: str) -> tuple[str, bool]:
    """Return the name without namespace, overload, dunder and in-place underscore, and whether it works in place."""
    name = op.rsplit("::", 1)[-1].split(".", 1)[0]
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1], True
    bare = DUNDERS.get(name) or name.strip("_" if name.startswith("__") else "") or name
    return bare, name.startswith("__i") and name != "__invert__"


def lookup(call: Call) -> Cost:
    """Return the cost of a call; `UNKNOWN` if no formula is registered or the recorded arguments do not fit it.

    >>> lookup(Call("torch", "linear", (Arg("", Tensor((2, 8), "float16")), Arg("", "weight"))))
    Cost(flops=None, bytes=None)
    """
    return _lookup(call, tuple([type(arg.value) for arg in call.args]))


@cache
def _lookup(call: Call, types: tuple[type, ...]) -> Cost:
    """Look up a cost, cached. `types` distinguishes calls that compare equal: var(x, 1) and var(x, True)."""
    if (nothing := _stopped_cost(call)) is not None:
        return nothing
    # Recorders count the zeros of sparse tensors, too.
    if 0 < (call.flops or 0) <= LARGEST and possible(call) and not is_sparse(call):
        priced = lookup(call._replace(flops=None))
        if priced.flops is None or _lacks_arguments(call):
            return Cost(call.flops, default(call).bytes, basis="recorded")
    match = find(call.mod, call.op)
    if match is None or not possible(call):
        return UNKNOWN
    if not any(tensor.again for arg in call.args for tensor in tensors_of(arg.value)):
        return _evaluate(call, *match)
    # A tensor passed twice is read once. Each part of the backward reads it separately.
    plain = call._replace(args=tuple([arg._replace(value=_distinct(arg.value)) for arg in call.args]))
    whole = _evaluate(plain, *match)
    formula, inplace = match
    foreign = "::" in call.op and call.op.rpartition("::")[0] not in TORCHS_OWN
    if foreign or formula.family == "custom" or (inplace and formula.family == "cast"):
        return whole  # formulas of other libraries may count writes; a copy in place only writes its first
    return whole._replace(bytes=_evaluate(call, *match).bytes)


def _stopped_cost(call: Call) -> Cost | None:
    """Return the cost of an operator that a checkpoint stopped, or may have stopped, before it computed; None for
    others."""
    mark = next((arg for arg in call.args if arg.name == STOPPED), None)
    return None if mark is None else VIEW if mark.value else UNKNOWN


def _lacks_arguments(call: Call) -> bool:
    """Return whether the event of a convolution has fewer arguments than its operator, so that the formula only assumes
    its stride."""
    match = find(call.mod, call.op)
    return match is not None and match[0].family == "conv" and "::" in call.op and len(call.args) < len(match[0].order)


def _distinct(value: Value) -> Value:
    """Return a value whose tensors all count, even if the call has them already."""
    if isinstance(value, Tensor):
        return value._replace(again=False)
    if isinstance(value, tuple) and not isinstance(value, Other) and tensors_of(value):
        return tuple([_distinct(item) for item in value])
    return value


def _evaluate(call: Call, formula: Formula, inplace: bool) -> Cost:
    positional = [arg.value for arg in call.args if not arg.name]
    if "::" in call.op and all(isinstance(value, Tensor) for value in positional[formula.positional :]):
        del positional[formula.positional :]  # the `out` tensors of the dispatcher's forms
    keywords: dict[str, Any] = {}
    unbound: list[Value] = []
    for arg in call.args:
        name = _parameter(formula, arg.name)
        if name:
            keywords[name] = arg.value
        elif arg.name and arg.name not in _IGNORED and not _OUT.match(arg.name):
            unbound.append(arg.value)
    if unbound and formula.positional == sys.maxsize:
        # The formula takes these in order, after the arguments with names of its own.
        first = formula.order[len(positional) :]
        if all(name in keywords for name in first):
            positional += [keywords.pop(name) for name in first] + unbound
    if formula.takes_inplace:
        keywords["inplace"] = inplace
    if formula.takes_name:
        keywords["kernel_name"] = call.op
    try:
        result = formula.function(*positional, **keywords)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError):
        # A recording may have any argument: one that the formula cannot use leaves the cost unknown.
        return Cost(0, None) if formula.moves else UNKNOWN
    if result.basis != "view" and is_sparse(call):
        return UNKNOWN  # formulas count all elements
    if any(is_complex(arg.value) for arg in call.args):
        result = real_operations(result, formula.family, _bare(call.op)[0].removeprefix("linalg_"), call.args)
    return result if _sane(result) else UNKNOWN


def is_sparse(call: Call) -> bool:
    """Return whether an argument is a sparse tensor."""
    return any(tensor.is_sparse for arg in call.args for tensor in tensors_of(arg.value))


def _parameter(formula: Formula, name: str) -> str:
    """Return the parameter of a formula that an argument's name refers to, "" if there is none."""
    parameters = formula.parameters
    if not name or name in parameters:
        return name
    alias = next((candidate for candidate in ALIASES.get(name, ()) if candidate in parameters), "")
    return alias or (name if formula.takes_more and not _OUT.match(name) else "")


def default(call: Call, outputs: Iterable[Tensor] = ()) -> Cost:
    """Return the cost by the default rule, for an operator without a formula: its tensors once each, FLOPs unknown,
    basis "default".

    A recording without an operator's results still has those that it writes into: the destination of an in-place
    operator, read and written, and `out`. Other results are `outputs`, if the caller has them; otherwise the bytes
    are a lower bound. `UNKNOWN` without tensors, and where indices may select a part of them (`reasons.selects`); a
    name that only describes a tensor moves nothing.

    >>> mine = Call("mine", "mine::warp", (Arg("", Tensor((4, 8), "float32")), Arg("", 3)))
    >>> default(mine), default(mine).basis, default(mine, [Tensor((4,), "float32")]).bytes
    (Cost(flops=None, bytes=128), 'default', 144)
    >>> default(mine._replace(op="mine::warp_")).bytes, default(mine._replace(op="mine::lookup")).bytes
    (256, None)
    """
    if (nothing := _stopped_cost(call)) is not None:
        return nothing
    name = call.op.rsplit("::", 1)[-1].split(".", 1)[0]
    if reason_of(call) in COSTLESS:
        return VIEW
    recorded = [(arg.name, tensor) for arg in call.args for tensor in tensors_of(arg.value)]
    if not recorded or not possible(call) or is_sparse(call) or selects(name, [tensor for _, tensor in recorded]):
        return UNKNOWN
    inplace = name.endswith("_") and not name.endswith("__")
    written = [recorded[0][1]] if inplace and recorded[0][0] != "out" else []
    return Cost(None, bytes_of(*(tensor for _, tensor in recorded), *written, *outputs), basis="default")


def lookup_or_default(call: Call) -> Cost:
    """Return the cost of an operator event by its formula, otherwise by the default rule.

    >>> lookup_or_default(Call("mine", "mine::warp", (Arg("", Tensor((4, 8), "float32")),))).basis
    'default'
    """
    result = lookup(call)
    own = "::" in call.op or call.op.startswith("triton_")  # inductor announces its kernels under their names
    return default(call) if result.basis == "unknown" and own else result


def tensors_of(value: Value) -> list[Tensor]:
    """Return the tensors of an argument, including those in lists and tuples.

    >>> len(tensors_of((Tensor((), None), 3, (Tensor((), None),))))
    2
    """
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple) and not isinstance(value, Other):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []


def possible(call: Call) -> bool:
    """Return whether tensors like the call's can exist: sizes and strides are counts, and 64 bits number the elements.

    >>> [possible(Call("torch", "relu", (Arg("", Tensor(shape, "float32")),))) for shape in ((2, 3), (-1,), (2**62, 4))]
    [True, False, False]
    """
    return all(_exists(tensor) for arg in call.args for tensor in tensors_of(arg.value))


def _exists(tensor: Tensor) -> bool:
    if not all(type(n) is int and n >= 0 for n in (*tensor.shape, *(tensor.stride or ()))):
        return False
    return (
        len(tensor.shape) <= _MAX_RANK
        and prod(n for n in tensor.shape if n) < LARGEST
        and (tensor.stride is None or tensor.is_sparse or len(tensor.stride) == len(tensor.shape))
    )


def _sane(part: Cost | None) -> bool:
    """Return whether all figures are counts that fit in 64 bits: impossible sizes lead to negative or fractional
    ones."""
    if part is None:
        return True
    figures = (part.flops, part.bytes, part.dense)
    counts = all(n is None or (type(n) is int and 0 <= n <= LARGEST) for n in figures)
    return counts and _sane(part.dgrad) and _sane(part.wgrad) and _sane(part.bgrad)


def total(sizes: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a part is unknown or the sum does not fit in 64 bits.

    >>> total([1, 2]), total([1, None]), total([LARGEST, 1])
    (3, None, None)
    """
    out = 0
    for size in sizes:
        if size is None:
            return None
        out += size
    return out if out <= LARGEST else None


def bytes_of(*tensors: Tensor | None) -> int | None:
    """Return the bytes of the tensors, each counted once; None stands for an absent tensor."""
    return total(tensor.bytes for tensor in tensors if tensor is not None)


__all__ = [
    "LARGEST", "UNKNOWN", "VIEW", "Arg", "Call", "Cost", "Formula", "Tensor", "bytes_of", "cost", "default", "find",
    "formulas", "is_sparse", "lookup", "lookup_or_default", "possible", "tensors_of", "total",
]  # fmt: skip

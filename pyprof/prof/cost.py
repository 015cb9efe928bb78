# SPDX-License-Identifier: Apache-2.0
"""FLOPs and bytes of a call: the registry of formulas, and the lookup that never fails.

Add an operator: one function in a file of `ops/`, decorated with the names it serves. Its parameters are torch's,
so recorded arguments bind by position or keyword; arguments it does not name are ignored.

A name is what a user writes without dunder and in-place underscore (`add` serves `torch.add`, `x + y`, `x += y`,
`x.add_(y)` and `aten::add_.Tensor`). A spelling whose arguments stand in another order is registered with its
namespace (`aten::embedding`, `torch.embedding`) and found first. A formula with a parameter `inplace` gets whether the
call works in place, one with `kernel_name` the whole name of a kernel that Inductor announces.

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

from pyprof.marker import STOPPED
from pyprof.model import Arg, Call, Cost, Other, Tensor, Value
from pyprof.prof.complexes import is_complex, real_operations
from pyprof.prof.reasons import COSTLESS, reason_of
from pyprof.registry import Registry, load_folder

_OF_NAME = frozenset(["inplace", "kernel_name"])  # parameters that a call's name fills
_OUT = re.compile(r"out[0-9]*$")  # where the dispatcher's forms write to: no operand
# Arguments that say where and how, not what: no formula asks for them.
_BESIDE = frozenset(
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
_MAX_RANK = 1024  # of a tensor that is taken seriously; torch's own kernels stop at 64
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
    # The host asks for a value; these are not the casts of the same name.
    "__bool__": "item", "__int__": "item", "__float__": "item", "__complex__": "item", "__index__": "item",
    "__array__": "numpy",
    "__len__": "size", "__contains__": "eq", "__reversed__": "flip",
}  # fmt: skip
# Other names of an argument: the dispatcher's, and those that torch takes in numpy's manner. Of the parameters listed
# the first that a formula has is meant; a formula's own name goes before.
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
    "input_tensors": ("input", "others"), "qScale": ("qScaleAndZeros",),
}  # fmt: skip

# Modules whose functions have a name of their own in torch's registry: torch.linalg.svd is linalg_svd.
FOLDERS = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}

# Namespaces of operators whose bare name says what they do: the dispatcher's and its decompositions.
TORCHS_OWN = ("aten", "prims")


class Formula(NamedTuple):
    """A cost function and the file of `ops/` it stands in, which names its kind (gemm, conv, norm, ...)."""

    function: Callable[..., Cost]
    family: str
    parameters: frozenset[str]
    takes_inplace: bool
    takes_name: bool
    positional: int  # how many arguments can stand without a name
    takes_more: bool  # also arguments of names that it does not list
    order: tuple[str, ...]  # the parameters that can stand without a name


_FORMULAS: Registry[Formula] = Registry("cost formula")


def cost(*names: str) -> Callable[[Callable[..., Cost]], Callable[..., Cost]]:
    """Decorator: the function computes the cost of the calls with these names."""

    def add(function: Callable[..., Cost]) -> Callable[..., Cost]:
        found = inspect.signature(function).parameters
        open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = frozenset(name for name, p in found.items() if p.kind not in open_ended)
        kinds = [p.kind for name, p in found.items() if name not in _OF_NAME]
        several = inspect.Parameter.VAR_POSITIONAL in kinds
        positional = sys.maxsize if several else kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        family = function.__module__.rsplit(".", 1)[-1]
        _FORMULAS.register(*names)(
            Formula(
                function,
                family,
                parameters - _OF_NAME,
                "inplace" in parameters,
                "kernel_name" in parameters,
                positional,
                inspect.Parameter.VAR_KEYWORD in kinds,
                tuple(n for n, p in found.items() if p.kind is p.POSITIONAL_OR_KEYWORD and n not in _OF_NAME),
            )
        )
        return function

    return add


@cache
def formulas() -> Registry[Formula]:
    """Every registered formula, the files of `ops/` loaded."""
    load_folder("pyprof.prof.ops", "pyprof.costs")
    return _FORMULAS


@cache
def find(mod: str, op: str) -> tuple[Formula, bool] | None:
    """The formula of a call's name and whether the call works in place; None if there is none.

    >>> find("Tensor", "__iadd__")[1], find("aten", "aten::add.Tensor")[1], find("mine", "mine::add")
    (True, False, None)
    >>> find("torch.linalg", "svd") == find("aten", "aten::linalg_svd") != find("torch", "svd")
    True
    """
    known = formulas()
    space = op.rpartition("::")[0]
    numbered = _NUMBERED.match(op)
    if numbered and (generated := known.get(_generated(numbered[1], space))) is not None:
        return generated, False
    if space and space not in TORCHS_OWN:  # another library's operator may share a name and nothing else
        exact = known.get(op.split(".", 1)[0])
        return None if exact is None else (exact, False)
    name = op.rsplit("::", 1)[-1].split(".", 1)[0]
    bare, inplace = _bare(op)
    plain = bare.removeprefix("special_").removeprefix("linalg_")  # torch.special.erf and torch.erf are one
    own = (
        f"{FOLDERS[mod]}{bare}" if mod in FOLDERS else ""
    )  # before the namesake in torch: linalg.svd is not svd
    for key in (f"{mod}.{op}", own, op.split(".", 1)[0], name, bare, plain):
        formula = known.get(key)
        if formula is not None:
            return formula, inplace
    return None


def _generated(name: str, space: str) -> str:
    """What a formula for an operator whose name ends in a number is called: functions that SGLang's profiler wraps, and
    Triton kernels that Inductor announces, its own by the kind of their loops.

    >>> _generated("triton_poi_fused_add", ""), _generated("sage_fwd", ""), _generated("mine::add", "mine")
    ('triton_poi_fused', 'triton::sage_fwd', '')
    """
    if space:
        return name if space == "sglang_profiler" else ""
    loop = _LOOP.match(name)
    return loop[0] if loop else f"triton::{name}"


def _bare(op: str) -> tuple[str, bool]:
    """The name without namespace, overload, dunder and in-place underscore, and whether it works in place."""
    name = op.rsplit("::", 1)[-1].split(".", 1)[0]
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1], True
    bare = DUNDERS.get(name) or name.strip("_" if name.startswith("__") else "") or name
    return bare, name.startswith("__i") and name != "__invert__"


def lookup(call: Call) -> Cost:
    """The cost of a call; `UNKNOWN` if no formula is registered or the recorded arguments do not fit it.

    >>> lookup(Call("torch", "linear", (Arg("", Tensor((2, 8), "float16")), Arg("", "weight"))))
    Cost(flops=None, bytes=None)
    """
    return _lookup(call, tuple([type(arg.value) for arg in call.args]))


@cache
def _lookup(call: Call, types: tuple[type, ...]) -> Cost:
    """`types` keeps calls apart that compare equal: var(x, 1) and var(x, True)."""
    if (nothing := _stopped(call)) is not None:
        return nothing
    found = find(call.mod, call.op)
    if found is None or not possible(call):
        return UNKNOWN
    if not any(tensor.again for arg in call.args for tensor in tensors_of(arg.value)):
        return _evaluate(call, *found)
    # What is passed twice is read once. Each part of the backward reads it for itself.
    plain = call._replace(args=tuple([arg._replace(value=_apart(arg.value)) for arg in call.args]))
    whole = _evaluate(plain, *found)
    formula, inplace = found
    others = "::" in call.op and call.op.rpartition("::")[0] not in TORCHS_OWN
    if others or formula.family == "custom" or (inplace and formula.family == "cast"):
        return whole  # formulas of other libraries may mean what is written; a copy in place only writes its first
    return whole._replace(bytes=_evaluate(call, *found).bytes)


def _stopped(call: Call) -> Cost | None:
    """The cost of an operator that a checkpoint stopped, or may have stopped, before it computed; None for others."""
    told = next((arg for arg in call.args if arg.name == STOPPED), None)
    return None if told is None else VIEW if told.value else UNKNOWN


def _apart(value: Value) -> Value:
    """A value whose tensors count, whether the call has them already or not."""
    if isinstance(value, Tensor):
        return value._replace(again=False)
    if isinstance(value, tuple) and not isinstance(value, Other) and tensors_of(value):
        return tuple([_apart(item) for item in value])
    return value


def _evaluate(call: Call, formula: Formula, inplace: bool) -> Cost:
    positional = [arg.value for arg in call.args if not arg.name]
    if "::" in call.op and all(isinstance(value, Tensor) for value in positional[formula.positional :]):
        del positional[formula.positional :]  # the `out` tensors of the dispatcher's forms
    keywords: dict[str, Any] = {}
    rest: list[Value] = []
    for arg in call.args:
        name = _parameter(formula, arg.name)
        if name:
            keywords[name] = arg.value
        elif arg.name and arg.name not in _BESIDE and not _OUT.match(arg.name):
            rest.append(arg.value)
    if rest and formula.positional == sys.maxsize:
        # It takes the others in their order: those with a name of the formula's go before them.
        first = formula.order[len(positional) :]
        if all(name in keywords for name in first):
            positional += [keywords.pop(name) for name in first] + rest
    if formula.takes_inplace:
        keywords["inplace"] = inplace
    if formula.takes_name:
        keywords["kernel_name"] = call.op
    try:
        found_cost = formula.function(*positional, **keywords)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError):
        # A recording may hold any argument: one that the formula cannot use leaves the cost unknown.
        return UNKNOWN
    if any(is_complex(arg.value) for arg in call.args):
        found_cost = real_operations(
            found_cost, formula.family, _bare(call.op)[0].removeprefix("linalg_"), call.args
        )
    return found_cost if _sane(found_cost) else UNKNOWN


def _parameter(formula: Formula, name: str) -> str:
    """The parameter of a formula that an argument's name means, "" if none does."""
    known = formula.parameters
    if not name or name in known:
        return name
    found = next((other for other in ALIASES.get(name, ()) if other in known), "")
    return found or (name if formula.takes_more and not _OUT.match(name) else "")


def default(call: Call, outputs: Iterable[Tensor] = ()) -> Cost:
    """The default rule, for an operator without a formula: its tensors once each, FLOPs unknown, basis "default".

    A recording that does not know an operator's results knows those that it was given to write: the destination of an
    operator in place, read and written, and `out`. Other results are `outputs`, where the caller has them; else the
    bytes are at least these. `UNKNOWN` without tensors; a name that only describes a tensor moves nothing.

    >>> mine = Call("mine", "mine::warp", (Arg("", Tensor((4, 8), "float32")), Arg("", 3)))
    >>> default(mine), default(mine).basis, default(mine, [Tensor((4,), "float32")]).bytes
    (Cost(flops=None, bytes=128), 'default', 144)
    >>> default(mine._replace(op="mine::warp_")).bytes
    256
    """
    if (nothing := _stopped(call)) is not None:
        return nothing
    name = call.op.rsplit("::", 1)[-1].split(".", 1)[0]
    if reason_of(call) in COSTLESS:
        return VIEW
    given = [(arg.name, tensor) for arg in call.args for tensor in tensors_of(arg.value)]
    if not given or not possible(call):
        return UNKNOWN
    inplace = name.endswith("_") and not name.endswith("__")
    written = [given[0][1]] if inplace and given[0][0] != "out" else []
    return Cost(None, bytes_of(*(tensor for _, tensor in given), *written, *outputs), basis="default")


def lookup_or_default(call: Call) -> Cost:
    """The cost of an operator event: its formula's, else by the default rule.

    >>> lookup_or_default(Call("mine", "mine::warp", (Arg("", Tensor((4, 8), "float32")),))).basis
    'default'
    """
    found = lookup(call)
    own = "::" in call.op or call.op.startswith("triton_")  # inductor announces its kernels under their names
    return default(call) if found.basis == "unknown" and own else found


def tensors_of(value: Value) -> list[Tensor]:
    """The tensors of an argument, a list or tuple of them among others.

    >>> len(tensors_of((Tensor((), None), 3, (Tensor((), None),))))
    2
    """
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple) and not isinstance(value, Other):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []


def possible(call: Call) -> bool:
    """Whether tensors like the call's exist: sizes and strides are counts, and 64 bits number the elements.

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
        and (tensor.stride is None or len(tensor.stride) == len(tensor.shape))
    )


def _sane(part: Cost | None) -> bool:
    """Whether all figures are counts that fit in 64 bits: sizes that no call has end in negative or broken ones."""
    if part is None:
        return True
    figures = (part.flops, part.bytes, part.dense)
    counts = all(n is None or (type(n) is int and 0 <= n <= LARGEST) for n in figures)
    return counts and _sane(part.dgrad) and _sane(part.wgrad) and _sane(part.bgrad)


def total(sizes: Iterable[int | None]) -> int | None:
    """Sum that is unknown if one part is, or if it does not fit in 64 bits.

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
    """Bytes of the tensors given, each once; None stands for a tensor that is not there."""
    return total(tensor.bytes for tensor in tensors if tensor is not None)


__all__ = [
    "LARGEST", "UNKNOWN", "VIEW", "Arg", "Call", "Cost", "Formula", "Tensor", "bytes_of", "cost", "default", "find",
    "formulas", "lookup", "lookup_or_default", "possible", "tensors_of", "total",
]  # fmt: skip

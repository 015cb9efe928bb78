# SPDX-License-Identifier: Apache-2.0
"""Operators: the operations of the program, one for each place in the model, its arguments and its direction.

The name is a path: the user's ranges around the call, the path of the module (or the user's layers), and the
operation. Recordings of DLProf's time have a function stack instead. Calls of one operation from several lines of
one module are distinguished by a counter, `relu`, `relu[2]`, as DLProf counts siblings. Operators of one name with
different arguments, or forward and backward, are different operators; the id `LINEAR_3` identifies one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from pyprof.core.marker import EVALUATE, is_node
from pyprof.core.model import NO_DIRECTION, OPTIMIZER, Call, Site, Tensor, Value
from pyprof.costs.attribution.attribute import family
from pyprof.costs.kernels import FITS, PRODUCTS
from pyprof.costs.params import dtype, params

# Compute capability from which tensor cores take a type. Source: CUDA C++ Programming Guide, "Warp Matrix Functions"
# and "Compute Capabilities"; float32 runs on them as TF32, where that is allowed.
SINCE = {
    "float16": (7, 0), "int8": (7, 2), "uint8": (7, 2), "bfloat16": (8, 0), "float32": (8, 0), "float64": (8, 0),
    "float8_e4m3fn": (8, 9), "float8_e5m2": (8, 9), "float4_e2m1fn_x2": (10, 0),
}  # fmt: skip
UNASSOCIATED = "unassociated"
IN_OPERATOR, OUTSIDE, IN_RANGE = range(3)  # values of the column `unassociated`
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class Operator(NamedTuple):
    """A row of the table; `stack` is the call stack, `name` the path."""

    op_id: str
    name: str
    type: str
    mod: str | None
    direction: int
    phase: int
    module: str | None
    stack: tuple[str, ...]
    params: str | None
    dtype: str | None
    shapes: str | None
    eligible: bool
    unassociated: int = IN_OPERATOR


class _Key(NamedTuple):
    group: tuple[str, ...]
    functions: str | None
    mod: str | None
    op: str
    direction: int
    phase: int
    module: str | None
    trace: tuple[str, ...]
    call: Call | None


class Operators:
    """Registry of operators, numbered in the order of first execution."""

    def __init__(self) -> None:
        self.rows: list[Operator] = []
        self.keys: list[str] = []  # of each, equal for one operator in any recording
        self.groups: list[str | None] = []  # path before the name of each, None for one that has no counter
        self._numbers: dict[_Key | tuple[str, tuple[str, ...]], int] = {}
        self._siblings: dict[tuple[str, str], dict[tuple[str, ...], int]] = {}
        self._of_type: dict[str, int] = {}

    def of_site(self, site: Site) -> int:
        """Return the number of the operator that a site belongs to."""
        key = _key(site)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._add(key)
        if not self.rows[number].eligible and _eligible(site):
            self.rows[number] = self.rows[number]._replace(eligible=True)
        return number

    def outside(self, what: str, ranges: tuple[str, ...] = ()) -> int:
        """Return the number of the stand-in for work outside every operator: API calls of one name, or GPU events.

        Inside the user's `ranges` it has their path, and its type is the innermost:
        `1F1B/combine(F)/cudaLaunchKernel`.
        """
        number = self._numbers.get((what, ranges))
        if number is None:
            number = self._numbers[what, ranges] = len(self.rows)
            self.keys.append(_digest((what, ranges)))
            self.groups.append(None)
            self.rows.append(_in_range(what, ranges, self._next(ranges[-1])) if ranges else _unassociated(what))
        return number

    def _next(self, type_: str) -> int:
        """Return the number of a further operator of a type."""
        count = self._of_type[type_] = self._of_type.get(type_, 0) + 1
        return count

    def _add(self, key: _Key) -> int:
        type_ = type_of(key.op)
        # The parser has two directions, as NVIDIA's pyprof; an optimizer's work is neither.
        direction = NO_DIRECTION if key.phase == OPTIMIZER else key.direction
        op_id = f"{type_.upper()}_{self._next(type_)}"
        self.keys.append(_digest(key))
        self.groups.append(None if key.functions else _group(key.group))
        self.rows.append(
            Operator(
                op_id, self._name(key, type_), type_, key.mod, direction, key.phase, key.module,
                key.trace, params(key.call) if key.call else None, dtype(key.call) if key.call else None,
                shapes(key.call) if key.call else None, eligible=False,
            )
        )  # fmt: skip
        return len(self.rows) - 1

    def _name(self, key: _Key, type_: str) -> str:
        if key.functions:
            return _function_path(key.functions)
        group = _group(key.group)
        lines = self._siblings.setdefault((group, type_), {})
        return sibling(group, type_, lines.setdefault(key.trace, len(lines) + 1))


def sibling(group: str, type_: str, number: int) -> str:
    """Return the name of an operator, of the operations of its type in a group the one of this number.

    >>> sibling("net/", "relu", 1), sibling("net/", "relu", 2)
    ('net/relu', 'net/relu[2]')
    """
    return group + _path([type_ if number == 1 else f"{type_}[{number}]"])


def _group(parts: tuple[str, ...]) -> str:
    """Return the path of a group, with the sign that stands between it and what is in it."""
    return f"{_path(parts)}/" if parts else ""


def _digest(key: _Key | tuple[str, tuple[str, ...]]) -> str:
    """Return a key as 32 digits, equal for equal keys of any recording."""
    return hashlib.blake2b(repr(tuple(key)).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def _path(parts: Iterable[str]) -> str:
    return "/".join(part.replace("/", "|") for part in parts)


def _unassociated(what: str) -> Operator:
    name = f"{UNASSOCIATED}_{what}"
    return Operator(name.upper(), name, name, None, 2, 4, None, (), None, None, None, False, OUTSIDE)


def _in_range(what: str, ranges: tuple[str, ...], number: int) -> Operator:
    name, type_ = _path((*ranges, what)), ranges[-1]
    return Operator(f"{type_.upper()}_{number}", name, type_, None, 2, 4, None, (), None, None, None, False, IN_RANGE)


def _key(site: Site) -> _Key:
    op = site.ops[0] if site.ops else "unknown"
    mod = site.mods[0] if site.mods and site.mods[0] != "na" else None
    where = tuple(site.module.split(".")) if site.module and not site.functions else site.layer
    call = site.calls[0] if site.calls else None
    return _Key(
        (*site.ranges, *where),
        site.functions,
        mod,
        op,
        site.direction,
        site.phase,
        site.module,
        site.trace,
        call,
    )


def type_of(op: str) -> str:
    """Return the kind of operation in lower case, independent of the spelling of the call.

    >>> type_of("__iadd__"), type_of("aten::relu_"), type_of("autograd::engine::evaluate_function: AddmmBackward0")
    ('iadd', 'relu', 'addmmbackward0')
    """
    return op.removeprefix(EVALUATE).rpartition("::")[2].strip("_").lower() or "unknown"


def _function_path(functions: str) -> str:
    """Return a function stack in DLProf's spelling.

    >>> _function_path("/<module>/Net::_call_impl/Linear::_call_impl(3)/linear")
    'module/Net::_call_impl/Linear::_call_impl[3]/linear'
    """
    text = re.sub(r"<([^<>/]*)>", r"\1", functions.strip("/"))
    return re.sub(r"\((\d+)\)(?=/|$)", r"[\1]", text)


def product(mod: str, op: str) -> bool | None:
    """Return whether tensor cores support an operator, or the backward of one, in any type.

    These are matrix products, convolutions, attention, recurrent layers. None for one without a formula.

    >>> [product("aten", op) for op in ("aten::conv2d", "AddmmBackward0", "aten::convolution_backward", "aten::mul")]
    [True, True, True, False]
    >>> product("torch.nn.functional", "linear"), product("mine", "mine::linear")
    (True, None)
    """
    name = op.removeprefix(EVALUATE)
    if is_node(name):
        mod, name = "aten", "aten::" + _CAPITAL.sub("_", name.partition("Backward")[0]).lower()
    kind = family(Call(mod, name, ())) or family(Call(mod, name.partition("_backward")[0], ()))
    kinds = FITS.get(kind, frozenset())
    return bool(kinds) and kinds <= PRODUCTS if kind else None


def _eligible(site: Site) -> bool:
    """Return whether tensor cores support the operator of a site. One without a formula, as users write them, counts as
    the operators inside it."""
    names = [*zip(site.mods, site.ops), *((call.mod, call.op) for call in site.calls)]
    return bool(next((supported for mod, op in names if (supported := product(mod, op)) is not None), False))


def dtype_ok(name: str | None, capability: tuple[int, int] | None, tf32: bool | None) -> bool | None:
    """Return whether a GPU's tensor cores support a type; None if type, GPU or, for float32, the TF32 switch is
    unknown.

    >>> dtype_ok("float16", (7, 5), None), dtype_ok("float32", (8, 0), False), dtype_ok("bfloat16", (7, 5), None)
    (True, False, False)
    """
    if name is None or capability is None:
        return None
    since = SINCE.get(name)
    if since is None or capability < since:
        return False
    return tf32 if name == "float32" else True


def shapes(call: Call) -> str | None:
    """Return the shapes of the tensors of a call.

    >>> from pyprof.core.model import Arg
    >>> shapes(Call("torch", "mm", (Arg("", Tensor((2, 3), None)), Arg("", Tensor((3, 4), None)))))
    '(2, 3); (3, 4)'
    """
    return "; ".join(str(tensor.shape) for tensor in _tensors(arg.value for arg in call.args)) or None


def _tensors(values: Iterable[Value]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) is tuple:
            yield from _tensors(value)

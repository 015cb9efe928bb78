# SPDX-License-Identifier: Apache-2.0
"""A script that runs one recorded call again: tensors of its shapes, types and strides, warm-up, and times.

Recordings are untrusted: only calls with a formula are written, whose names are plain identifiers; the script looks
them up with getattr, and arguments are written as literals. Values of tensors are not recorded: they are normal
random numbers, indices that are in range for whatever they point into, or the kind in `_KINDS` where an operator
needs it.

>>> from pyprof.core.model import Arg
>>> print(literal(Call("aten", "aten::mm", (Arg("", Tensor((2, 3), "float32")), Arg("", 1.5)))))
[
    TensorSpec((2, 3), "float32", None, "normal", 2),
    1.5,
]
"""

from __future__ import annotations

import math
import re

from pyprof.core.errors import UsageError
from pyprof.core.model import DTYPE_BITS, Call, Other, Tensor, Value
from pyprof.core.terminal import visible
from pyprof.costs.cost import TORCHS_OWN, find

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,30}")
# Modules of functions that are not operators of the dispatcher.
_HOMES = {
    "torch": "torch", "torch.nn.functional": "torch.nn.functional", "Tensor": "torch.Tensor",
    "torch.Tensor": "torch.Tensor", "torch.linalg": "torch.linalg", "torch.fft": "torch.fft",
    "torch.special": "torch.special",
}  # fmt: skip
# Kind of values that an operator needs, by a part of its name.
_KINDS = {
    "cholesky": "definite", "potrf": "definite", "linalg_inv": "definite", "linalg_solve": "definite",
    "batch_norm": "positive", "log": "positive", "sqrt": "positive", "multinomial": "positive",
    "binary_cross_entropy": "probability", "bernoulli": "probability",
}  # fmt: skip
_DESCRIPTIONS = {
    "normal": "normal random numbers",
    "positive": "numbers in (0, 1], as it accepts no others",
    "probability": "numbers in (0, 1), as it takes probabilities",
    "definite": "positive definite matrices, as it factors or solves",
}
# Argument and dimension that an index points into: position of the index, position of the argument, dimension.
_INDICES: dict[str, tuple[int, int, int | str]] = {
    "embedding": (1, 0, 0), "_embedding_bag": (1, 0, 0), "embedding_bag": (1, 0, 0), "index_select": (2, 0, "dim"),
    "gather": (2, 0, "dim"), "scatter": (2, 0, "dim"), "scatter_": (2, 0, "dim"), "scatter_add": (2, 0, "dim"),
    "scatter_add_": (2, 0, "dim"), "index_add": (2, 0, "dim"), "index_add_": (2, 0, "dim"),
    "index_copy_": (2, 0, "dim"), "index_fill_": (2, 0, "dim"), "nll_loss": (1, 0, "classes"),
    "nll_loss_forward": (1, 0, "classes"), "cross_entropy_loss": (1, 0, "classes"),
    "cross_entropy": (1, 0, "classes"),
}  # fmt: skip


def script(call: Call, source: str) -> str:
    """Return the script. `source` says where the call is from. Raises UsageError for a call that cannot be run
    again."""
    function = _function(call)
    assumed = sorted({"float32" for item in _tensors(call) if item.dtype is None})
    values = {_kind(call)} if any(_is_real(item) for item in _tensors(call)) else set()
    notes = [f"{_comment(call.op)}, {_comment(source)}."]
    notes += [f"Tensors hold {_DESCRIPTIONS[item]}; times may depend on values." for item in sorted(values)]
    if any(not _is_real(item) for item in _tensors(call)):
        notes.append(
            "Integers are indices in range: anywhere in the indexed dimension if it is known, otherwise small ones."
        )
    if any(isinstance(item, Other) for item in _flat(tuple(arg.value for arg in call.args))):
        notes.append("DEFAULT: this argument was not recorded; the operator's default is used.")
    notes += [f"The types of some tensors were not recorded: {item} is used." for item in assumed]
    names = [arg.name for arg in call.args]
    if any(name and not _NAME.fullmatch(name) for name in names):
        raise UsageError(f"{call.op}: an argument's name is not an identifier; the recording may be damaged.")
    parts = {
        "NOTES": "\n".join(f"# {note}" for note in notes), "NAMES": ascii(names), "FUNCTION": function,
        "TITLE": ascii(call.op), "ARGUMENTS": literal(call),
    }  # fmt: skip
    return re.sub(
        "@([A-Z]+)@", lambda match: parts[match[1]], _TEMPLATE
    )  # in one pass, so that inserted text is not expanded again


def _function(call: Call) -> str:
    """Return the expression that looks up the function to call."""
    has_formula = find(call.mod, call.op) is not None
    space, _, name = call.op.rpartition("::")
    name, dot, overload = name.partition(".")
    fits = _NAME.fullmatch(name) and (not dot or _NAME.fullmatch(overload))
    if has_formula and fits and space in TORCHS_OWN:
        return f'dispatcher_call(getattr(torch.ops.{space}, "{name}"), "{overload}")'
    if has_formula and fits and not space and not dot and call.mod in _HOMES:
        return f'getattr({_HOMES[call.mod]}, "{name}")'
    raise UsageError(
        f"{call.op} cannot be replayed: only torch's own operators with a cost formula can (docs/costs.md)."
    )


def literal(call: Call) -> str:
    """Return the arguments as Python source."""
    lines = [f"    {_spell(arg.value, call, position)}," for position, arg in enumerate(call.args)]
    return "\n".join(["[", *lines, "]"])


def _spell(value: Value, call: Call, position: int) -> str:
    if isinstance(value, Tensor):
        return _spell_tensor(value, call, position)
    if isinstance(value, Other):
        return "DEFAULT"
    if isinstance(value, tuple):
        return "[" + ", ".join(_spell(item, call, position) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, bool | int | float | str):
        return ascii(value)
    raise UsageError(
        f"{call.op}: argument {position} has a type that a script cannot construct ({type(value).__name__})."
    )


def _spell_tensor(tensor: Tensor, call: Call, position: int) -> str:
    """Spell a tensor: shape, type, strides, values, and for integers their bound."""
    dtype = tensor.dtype or "float32"
    if dtype not in DTYPE_BITS or not _DTYPE.fullmatch(dtype):
        raise UsageError(f"{call.op}: cannot create a tensor of type {dtype!r}.")
    shape = tuple(map(int, tensor.shape))
    stride = None if tensor.stride is None else tuple(map(int, tensor.stride))
    if min((*shape, *(stride or ())), default=0) < 0 or (stride is not None and len(stride) != len(shape)):
        raise UsageError(f"{call.op}: no tensor has shape {shape} with strides {stride}.")
    kind = _kind(call) if _is_real(tensor) else "index"
    return f'TensorSpec({shape}, "{dtype}", {stride}, "{kind}", {_bound(call, position)})'


def _kind(call: Call) -> str:
    name = call.op.rpartition("::")[2]
    return next((kind for part, kind in _KINDS.items() if part in name), "normal")


def _is_real(tensor: Tensor) -> bool:
    return (
        tensor.dtype is None
        or "float" in tensor.dtype
        or "complex" in tensor.dtype
        or tensor.dtype in ("half", "double")
    )


def _bound(call: Call, position: int) -> int:
    """Return the bound of integers: the size that they point into, otherwise the smallest size of the other tensors."""
    values = [arg.value for arg in call.args]
    name = call.op.rpartition("::")[2].partition(".")[0]
    index_position, target, dim = _INDICES.get(name, (-1, 0, 0))
    if call.mod == "torch.nn.functional" and name == "embedding":
        index_position, target = 0, 1
    if position == index_position and target < len(values) and isinstance(values[target], Tensor):
        shape = values[target].shape  # type: ignore[union-attr]
        if dim == "dim":
            dim = values[1] if len(values) > 1 and isinstance(values[1], int) else 0
        if dim == "classes":
            dim = 1 if len(shape) > 1 else 0
        if shape and -len(shape) <= int(dim) < len(shape):
            return max(int(shape[int(dim)]), 1)
    sizes = [size for number, value in enumerate(values) if number != position for item in _flat((value,))
             if isinstance(item, Tensor) for size in item.shape]  # fmt: skip
    return max(int(min(sizes, default=2)), 1)


def _flat(values: tuple[Value, ...]) -> list[Value]:
    """Flatten sequences of values. A tensor is one value."""
    out: list[Value] = []
    for value in values:
        inside = isinstance(value, tuple) and not isinstance(value, Tensor | Other)
        out += _flat(value) if inside else [value]  # type: ignore[arg-type]
    return out


def _tensors(call: Call) -> list[Tensor]:
    return [value for value in _flat(tuple(arg.value for arg in call.args)) if isinstance(value, Tensor)]


def _comment(text: str) -> str:
    """Escape a text so that it stays inside a comment."""
    return visible(text, "ascii").replace("\n", " ").replace("\r", " ")


_TEMPLATE = '''# Written by pyprof replay.
@NOTES@
from typing import NamedTuple

import torch
from torch.utils.benchmark import Timer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DEFAULT = object()


class TensorSpec(NamedTuple):
    shape: tuple
    dtype: str
    stride: tuple | None
    values: str
    below: int

    def tensor(self):
        dtype, shape, stride = getattr(torch, self.dtype), self.shape, self.stride
        span = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride or ()))
        flat = shape if stride is None else (span,)  # with strides: the storage that they span
        if dtype == torch.bool:
            out = torch.rand(flat, device=DEVICE) < 0.5
        elif self.values == "index":
            out = torch.randint(0, self.below, flat, device=DEVICE).to(dtype)
        elif self.values in ("positive", "probability"):
            out = torch.rand(flat, device=DEVICE).clamp(1e-3, 1 - 1e-3).to(dtype)
        else:
            out = torch.randn(flat, device=DEVICE, dtype=torch.complex64 if dtype.is_complex else torch.float32)
            out = out.to(dtype)
        out = out if stride is None else out.as_strided(shape, stride)
        if self.values == "definite" and len(shape) > 1 and shape[-1] == shape[-2]:
            out = (out @ out.mH + shape[-1] * torch.eye(shape[-1], device=DEVICE, dtype=dtype)).contiguous()
        return out


TITLE = @TITLE@
NAMES = @NAMES@
ARGUMENTS = @ARGUMENTS@


def materialize(value):
    """Return a recorded value with its descriptions replaced by tensors."""
    if isinstance(value, TensorSpec):
        return value.tensor()
    return [materialize(item) for item in value] if isinstance(value, list) else value


def dispatcher_call(packet, overload):
    """Return a function that calls the named overload, or the first that takes the arguments."""
    names = [overload] if overload else packet.overloads()
    names = sorted(names, key=lambda name: "out" in name.split("_"))
    entries = [getattr(packet, name) for name in names]
    entries.sort(key=lambda entry: len(entry._schema.arguments) != len(ARGUMENTS))

    def bind(entry, values):
        positional, keywords = [], {}
        for argument, value in zip(entry._schema.arguments, values):
            type_ = str(argument.type)
            if value is DEFAULT and not argument.has_default_value():
                raise TypeError(f"argument {argument.name} of {entry} is not recorded and has no default")
            missing = value is None and not type_.startswith("Optional") and argument.has_default_value()
            if value is DEFAULT or missing:
                value = argument.default_value
            if isinstance(value, str) and value in ("inf", "-inf", "nan") and type_ != "str":
                value = float(value)
            if argument.name == "device" and value is not None:
                value = DEVICE
            if argument.kwarg_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        return positional, keywords

    def call(*values):
        if len(entries) > 1:  # only once: find the one that takes them
            errors = []
            for entry in list(entries):
                try:
                    positional, keywords = bind(entry, values)
                    result = entry(*positional, **keywords)
                except (RuntimeError, TypeError, IndexError) as error:
                    errors.append(error)
                else:
                    entries[:] = [entry]
                    return result
            raise errors[0]
        positional, keywords = bind(entries[0], values)
        return entries[0](*positional, **keywords)

    return call


def prepare():
    """Return a function without arguments that makes the call once."""
    function, values = @FUNCTION@, [materialize(value) for value in ARGUMENTS]
    pairs = [(name, value) for name, value in zip(NAMES, values) if value is not DEFAULT]
    keywords = {} if "::" in TITLE else {name: value for name, value in pairs if name}
    positional = values if "::" in TITLE else [value for name, value in pairs if not name]

    return lambda: function(*positional, **keywords)


def main():
    run = prepare()
    with torch.no_grad():
        for _ in range(10):  # warm-up: caches, choice of algorithms
            run()
        timing = Timer("run()", globals={"run": run}).blocked_autorange(min_run_time=0.2)
        calls = timing.number_per_run
        print(f"{TITLE}: median {timing.median * 1e6:.3f} us a call, {len(timing.times)} x {calls} calls")
        if DEVICE == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            calls = max(calls, 10)
            start.record()
            for _ in range(calls):
                run()
            end.record()
            torch.cuda.synchronize()
            print(f"{TITLE}: {start.elapsed_time(end) / calls * 1e3:.3f} us a call on the GPU, by CUDA events")


if __name__ == "__main__":
    main()
'''

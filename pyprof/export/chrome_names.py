# SPDX-License-Identifier: Apache-2.0
"""Ranges in a Chrome trace: name, category, and arguments in torch.profiler's spelling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pyprof.core.marker import CallMarker, decode
from pyprof.core.model import Call, Other, Tensor, Value
from pyprof.export.json_text import quoted
from pyprof.parse.paths import is_step
from pyprof.parse.tracejson.communication import ANNOUNCED

OPERATOR, ANNOTATION, FUNCTION = "cpu_op", "user_annotation", "python_function"
# Names that RecordFunction gives to ranges of the user, as torch.profiler shows them.
_USERS = ("Optimizer.", "enumerate(DataLoader)#", "ProfilerStep#")
# C++ names of dtypes, as torch.profiler writes "Input type".
_TYPES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip
# c10d's names of types.
_C10D = {
    "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "float64": "Double", "int64": "Long", "int32": "Int",
    "uint8": "Byte", "int8": "Char", "int16": "Short", "bool": "Bool",
}  # fmt: skip


class Label(NamedTuple):
    """JSON of a name, a category, and JSON members of the arguments, each with a leading comma."""

    name: str
    category: str
    args: str = ""


def of_range(text: str, numbered: bool) -> Label:
    """Return the label of an NVTX range; `numbered`: it has a sequence number."""
    marker = decode(text)
    if isinstance(marker, CallMarker):
        call = marker.call
        name = f"{call.mod}.{call.op}" if call.mod and "::" not in call.op else call.op
        return Label(quoted(name), OPERATOR, _of_marker(marker))
    operator = numbered or ("::" in text and not text.startswith("{"))
    return Label(quoted(text), OPERATOR if operator and not is_step(text) else ANNOTATION)


def of_event(name: str, args: str | None) -> Label:
    """Return the label of a RecordFunction event; `args`: the text with its arguments."""
    user = name.startswith(_USERS) or (is_step(name) and "::" not in name)
    marker = decode(args) if args is not None else None
    described = _of_marker(marker) if isinstance(marker, CallMarker) else ""
    return Label(quoted(name), ANNOTATION if user else OPERATOR, described)


def member(key: str, value: str | None) -> str:
    """Return an object member with a text value and a leading comma; empty for None or an empty text."""
    return f",{quoted(key)}:{quoted(value)}" if value else ""


def _of_marker(marker: CallMarker) -> str:
    parts = [_collective(marker.call) or _inputs(marker.call)]
    parts += [member("layer", "/".join(marker.layer)), member("module", marker.module)]
    return "".join([*parts, member("stack", "\n".join(marker.trace))])


def _collective(call: Call) -> str:
    """Return c10d's facts about a collective, as in torch.profiler; empty if the call is none, or incomplete."""
    if call.op != ANNOUNCED:
        return ""
    values = {arg.name: arg.value for arg in call.args}
    name, sent, received, size = (values.get(key) for key in ("collective", "input", "output", "ranks"))
    if not (isinstance(sent, Tensor) and isinstance(received, Tensor) and isinstance(size, int)):
        return ""
    return (
        f',"Collective name":{quoted(str(name))},"In msg nelems":{sent.numel},"Out msg nelems":{received.numel}'
        f',"dtype":{quoted(_C10D.get(sent.dtype or "", sent.dtype or ""))},"Group size":{size}'
    )


def _inputs(call: Call) -> str:
    """Return arguments and recorded FLOPs as in torch.profiler."""
    flops = f',"flops":{call.flops}' if call.flops else ""
    if not call.args:
        return flops
    values = [arg.value for arg in call.args]
    columns: dict[str, Iterable[Any]] = {
        "Input Dims": (_of_tensors(value, lambda tensor: list(tensor.shape)) for value in values),
        "Input type": (quoted(_type(value)) for value in values),
        "Input Strides": (_of_tensors(value, lambda tensor: list(tensor.stride or ())) for value in values),
        "Concrete Inputs": (quoted(_concrete(value)) for value in values),
    }
    named = ",".join(quoted(arg.name) for arg in call.args)
    input_names = f',"Input Names":[{named}]' if any(arg.name for arg in call.args) else ""
    return "".join(f",{quoted(key)}:[{','.join(cells)}]" for key, cells in columns.items()) + input_names + flops


def _of_tensors(value: Value, function: Any) -> str:
    """Return a list for a tensor, a list of lists for a list of tensors, and an empty list for everything else."""
    if isinstance(value, Tensor):
        return f"[{','.join(map(str, function(value)))}]"
    if type(value) is tuple and value and all(isinstance(tensor, Tensor) for tensor in value):
        return f"[{','.join(_of_tensors(tensor, function) for tensor in value)}]"
    return "[]"


def _type(value: Value) -> str:
    if isinstance(value, Tensor):
        return _TYPES.get(value.dtype or "", value.dtype or "")
    if isinstance(value, Other):
        return value.type
    if type(value) is tuple:
        return "TensorList" if value and all(isinstance(item, Tensor) for item in value) else "ScalarList"
    return "Scalar" if isinstance(value, (bool, int, float)) else ""


def _concrete(value: Value) -> str:
    if isinstance(value, Tensor) or value is None:
        return ""
    if isinstance(value, Other):
        return value.text
    if type(value) is tuple:
        return "" if any(isinstance(item, Tensor) for item in value) else f"[{', '.join(map(_concrete, value))}]"
    return str(value)

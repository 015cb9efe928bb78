# SPDX-License-Identifier: Apache-2.0
"""Grammar of the texts of ranges, for writing (capture) and for reading (parse).

| text | meaning | origin |
|---|---|---|
| `{'pyprof': 1, 'mod': .., 'op': .., 'args': [..], 'layer': .., 'trace': [..], 'module': ..}` | a call | PyProf |
| `{'mod': .., 'op': .., 'args': [..]}` | a call | classic PyProf, DLProf (with `callid`, `input_callids`) |
| `{'traceMarker': [..]}` | call stack, with `funcStack` in DLProf's time | classic PyProf |
| `{'traceMarker': [..], 'module': ..}` | where a compiled region was called that calls operators | PyProf |
| `{'mod': .., 'strRepr': ..}` | the running module object | classic PyProf |
| `layer:NAME` | the user's name for a part of the model | user |
| `NAME, seq = N, op_id = M, sizes = [..], input_op_ids = [..]` | an operator, the keys in any order | torch emit_nvtx |
| anything else | a range of another tool or the user | |

A call has `flops` after its arguments if another tool recorded some.

An argument is a record `{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float32'}`: `name` is empty for a
positional one; a tensor may carry its `stride`, and `'again': True` if it shares the memory of an earlier argument;
a scalar or a sequence of scalars has `value`; any other sequence has `items`, a list of records (classic markers
flatten it instead). inf and nan are written as text, so that the whole is a Python literal. Nothing is ever evaluated:
texts are read with `ast.literal_eval`.

>>> text = encode(Call("torch", "relu", (Arg("", Tensor((2, 3), "float32")),)), layer="encoder", trace=("a.py:7",))
>>> decode(text).call.op, decode(text).layer, decode(text).trace
('relu', ('encoder',), ('a.py:7',))
>>> split("AddmmBackward0, seq = 12, op_id = 40")
('AddmmBackward0', 12, True)
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from pyprof.core.model import Arg, Call, Other, Tensor, Value

VERSION = 1
LAYER = "layer:"
EVALUATE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
CHECKPOINT_BACKWARD = "CheckpointFunctionBackward"
STOP = "torch.utils.checkpoint: recomputation stopped"  # a mark written by PyProf's capture
STOPPED = "stopped"  # argument of an operator that a checkpoint stopped before it computed; None: unknown
WHOLE_BACKWARD = "Backward"  # a complete backward, in a recording without its operators
COLLECTION, SAVING = "Python GC", "torch.save"  # ranges that PyProf's capture writes, before their lines
CLOSURE = "Optimizer.closure#"  # range around the closure that an optimizer's step runs: not part of the step

# The suffixes that emit_nvtx appends (torch/csrc/profiler/util.cpp, getNvtxStr); RE2 and re read these alike.
SUFFIX = r"(?:, (?:seq|op_id) = -?[0-9]{1,18}|, (?:sizes|input_op_ids) = \[[^=]*\])+"
SEQ = r", seq = (?P<seq>[0-9]+)"  # -1 stands for none
VARYING = r", (?:seq|op_id) = -?[0-9]+|, input_op_ids = \[[^=]*\]"  # numbers that differ between calls
CALL_ID = r"'callid': (-?[0-9]{1,18}), "
CALL_IDS = r"'callid': -?[0-9]+, |'input_callids': \[[^\]]*\], "
_STACK = ", 'trace': ['"
REFERENCE = r", 'trace': ([0-9]{1,9})\}"  # at the end of a text
_REFERENCE = re.compile(REFERENCE + r"\Z")
_SUFFIX = re.compile(SUFFIX + r"\Z")
_SEQ, _VARYING, _CALL_IDS = (re.compile(p) for p in (SEQ, VARYING, CALL_IDS))
_SIZES = re.compile(r", sizes = (\[.*\])$")
_BACKWARD = re.compile(r"[Bb]ackward[0-9]*$")
_NODE = re.compile(r"Backward[0-9]+$")
# torch/_dynamo/eval_frame.py, torch/_functorch/_aot_autograd/runtime_wrappers.py, torch/_inductor/output_code.py.
_COLLECTIVE = re.compile(
    r"(?:nccl|rccl|xccl|gloo|ucc):\w+"
    r"|(?:nccl|rccl)(?:AllReduce|AllGather|AllToAll|AlltoAll|Broadcast|Bcast|Gather|Reduce|ReduceScatter|Scatter|Send|Recv)",
    re.IGNORECASE,
)
_COMPILED = re.compile(r"^(?:Torch-Compiled Region\b|CompiledFunction(?:Backward)?$|(?:## )?Call CompiledFxGraph\b)")
_QUALIFIED = re.compile(r"^[A-Za-z_]\w*(?:::[A-Za-z_]\w*)+$")


class CallMarker(NamedTuple):
    """A call with the details of PyProf's own form."""

    call: Call
    layer: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    module: str | None = None
    classic: bool = False


class TraceMarker(NamedTuple):
    """A call stack, outermost first; `functions` is DLProf's path of classes and functions, `module` the path of
    PyProf's own capture."""

    frames: tuple[str, ...]
    functions: str | None = None
    module: str | None = None


class ModuleMarker(NamedTuple):
    """The class of a module and its extra_repr."""

    mod: str
    text: str


class LayerMarker(NamedTuple):
    """A user's name for a part of the model."""

    name: str


class OperatorMarker(NamedTuple):
    """An operator announced by torch. `sizes` are the shapes of its tensor inputs, None if not recorded."""

    name: str
    sizes: tuple[tuple[int, ...], ...] | None = None


class UserMarker(NamedTuple):
    """A range without a meaning for PyProf."""

    name: str


class Listed(tuple[Value, ...]):
    """A sequence that was a list, which the classic form distinguishes from a tuple. Otherwise equal to the tuple."""

    __slots__ = ()


Marker = CallMarker | TraceMarker | ModuleMarker | LayerMarker | OperatorMarker | UserMarker


def split(text: str) -> tuple[str, int | None, bool]:
    """Cut off the numbers that differ from call to call.

    Returns the text without them, the sequence number, and whether there was a suffix of emit_nvtx.
    parse/range_texts.py does the same for whole columns.
    """
    if text.startswith("{"):
        return _CALL_IDS.sub("", text), None, False
    suffix = _SUFFIX.search(text, 1)
    if suffix is None:
        return text, None, False
    seq = _SEQ.search(suffix[0])
    return text[: suffix.start()] + _VARYING.sub("", suffix[0]), int(seq["seq"]) if seq else None, True


def is_event(call: Call) -> bool:
    """Return whether this is an operator event itself, not a call in the user's code."""
    return call.mod in ("aten", "autograd")


def with_call_id(text: str, number: str) -> str:
    """Return a classic call's text with DLProf's `callid`, which distinguishes calls with the same arguments.

    >>> with_call_id("{'mod': 'torch', 'op': 'mm', 'args': []}", "7")
    "{'mod': 'torch', 'op': 'mm', 'callid': 7, 'args': []}"
    """
    return text.replace("'args': [", f"'callid': {number}, 'args': [", 1)


def announces_collective(text: str) -> bool:
    """Return whether a range names the collective launched in it: process groups of torch write nccl:all_reduce, NCCL
    itself ncclAllReduce (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; NCCL, src/collectives.cc).

    >>> [announces_collective(text) for text in ("nccl:all_reduce", "ncclReduceScatter", "nccl setup", "forward")]
    [True, True, False, False]
    """
    return _COLLECTIVE.fullmatch(text) is not None


def is_backward(name: str) -> bool:
    """Return whether a range of this name runs a backward: an autograd node, or the engine's range around one.

    >>> [is_backward(n) for n in ("SumBackward1", "AddmmBackward", "torch::autograd::AccumulateGrad", "aten::mm")]
    [True, True, True, False]
    """
    return name.startswith(EVALUATE) or name == ACCUMULATE or is_node(name)


def is_qualified(name: str) -> bool:
    """Return whether a name is that of a dispatcher operator; ranges of torch's own Python code have arbitrary names.

    >>> is_qualified("aten::add_"), is_qualified("FSDP::pre_forward (encoder.0)"), is_qualified("my_range")
    (True, False, False)
    """
    return _QUALIFIED.match(name) is not None


def is_compiled(name: str) -> bool:
    """Return whether a range is a whole region of torch.compile: part of the path to the operators inside, not one of
    them.

    >>> names = ("Torch-Compiled Region: 0/1", "CompiledFunctionBackward", "## Call CompiledFxGraph fjs ##", "aten::mm")
    >>> [is_compiled(name) for name in names]
    [True, True, True, False]
    """
    return _COMPILED.match(name.removeprefix(EVALUATE)) is not None


def is_node(name: str) -> bool:
    """Return whether this names an autograd node (`MulBackward0`, `SqBackward`), not an operator like
    `aten::x_backward`."""
    return _BACKWARD.search(name) is not None and "Backward" in name and not name.startswith("aten::")


def is_builtin_node(name: str) -> bool:
    """Return whether this names a node generated by torch (ending in a number), not a user's autograd.Function."""
    return _NODE.search(name) is not None


def decode(text: str, operator: bool = False) -> Marker:
    """Parse the text of a range, as returned by `split`; `operator` is its third result.

    Text that is cut off or not a literal is a UserMarker: text from an unknown source is never an error.
    """
    if text.startswith("{"):
        fields = _literal(text)
        if isinstance(fields, dict):
            marker = _decode_fields(fields)
            if marker is not None:
                return marker
        return UserMarker(text)
    if text.startswith(LAYER):
        return LayerMarker(text[len(LAYER) :])
    sizes = _SIZES.search(text)
    if sizes is not None:
        shapes = _literal(sizes[1])
        name = text[: sizes.start()]
        return OperatorMarker(name, _shapes(shapes) if isinstance(shapes, list) else None)
    if operator or is_backward(text) or _QUALIFIED.match(text):
        return OperatorMarker(text)
    return UserMarker(text)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _shapes(shapes: list[Any]) -> tuple[tuple[int, ...], ...] | None:
    out = []
    for shape in shapes:
        if not isinstance(shape, (list, tuple)) or not all(type(n) is int for n in shape):
            return None
        out.append(tuple(shape))
    return tuple(out)


def _decode_fields(fields: dict[Any, Any]) -> Marker | None:
    """Decode a marker, dispatching by key, never by substring: a path may contain any of the words."""
    if "traceMarker" in fields:
        functions, module = (
            text if isinstance(text := fields.get(key), str) else None for key in ("funcStack", "module")
        )
        return TraceMarker(_texts(fields["traceMarker"]), functions, module)
    mod = fields.get("mod")
    if not isinstance(mod, str):
        return None
    if "strRepr" in fields:
        return ModuleMarker(mod, str(fields["strRepr"]))
    op, args = fields.get("op"), fields.get("args")
    if not isinstance(op, str) or not isinstance(args, list):
        return None
    flops = fields.get("flops")
    call = Call(
        mod,
        op,
        tuple(_decode_arg(arg) for arg in args if isinstance(arg, dict)),
        flops if type(flops) is int else None,
    )
    if "pyprof" not in fields:
        return CallMarker(call, classic=True)
    layer, module = fields.get("layer"), fields.get("module")
    return CallMarker(
        call,
        tuple(layer.split(":")) if isinstance(layer, str) and layer else (),
        _texts(fields.get("trace")),
        module if isinstance(module, str) and module else None,
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _decode_arg(record: dict[Any, Any]) -> Arg:
    name = record.get("name")
    return Arg(name if isinstance(name, str) else "", _decode_value(record))


def _decode_value(record: dict[Any, Any]) -> Value:
    kind = record.get("type")
    if kind in ("tensor", "ndarray"):
        shape, dtype, stride = record.get("shape"), record.get("dtype"), record.get("stride")
        if not _is_shape(shape):
            return Other("tensor")
        return Tensor(
            tuple(shape),
            dtype if isinstance(dtype, str) else None,
            tuple(stride) if _is_shape(stride) and len(stride) in {0, len(shape)} else None,
            record.get("again") is True,
        )
    if "items" in record and isinstance(record["items"], list):
        return tuple(_decode_value(item) for item in record["items"] if isinstance(item, dict))
    if "value" not in record:
        return Other(str(kind))
    value = record["value"]
    if kind in ("list", "tuple"):
        return _freeze(value)
    if kind == "NoneType":
        return None
    if kind == "float" and isinstance(value, str):
        return _float(value)
    if kind in ("int", "float", "bool", "str") and isinstance(value, (bool, int, float, str)):
        return value
    return Other(str(kind), str(value))


def _is_shape(value: Any) -> TypeGuard[Sequence[int]]:
    return isinstance(value, (list, tuple)) and all(type(n) is int for n in value)


def _float(text: str) -> float | str:
    return float(text) if text in ("inf", "-inf", "nan") else text


def _freeze(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return Other(type(value).__name__, str(value))


def encode(call: Call, layer: str = "", trace: Iterable[str] = (), module: str | None = None) -> str:
    """Return the text of a call in PyProf's form. `layer` is the user's nested names joined by ":", `trace` outermost
    first."""
    fields: dict[str, Any] = {"pyprof": VERSION, "mod": call.mod, "op": call.op}
    fields["args"] = [_record(arg.name, arg.value) for arg in call.args]
    if call.flops is not None:
        fields["flops"] = call.flops
    fields["layer"] = layer
    fields["trace"] = list(trace)
    if module:
        fields["module"] = module
    return str(fields)


def cut_stack(text: str) -> tuple[str, str]:
    """Split the text of a call at its stack, which many calls share; the second part is "" without one.

    >>> cut_stack("{'pyprof': 1, 'layer': '', 'trace': ['a.py:7'], 'module': 'net'}")
    ("{'pyprof': 1, 'layer': ''", ", 'trace': ['a.py:7'], 'module': 'net'}")
    """
    place = text.rfind(_STACK)
    return (text[:place], text[place:]) if place > 0 else (text, "")


def refer(head: str, number: int) -> str:
    """Return the text of a call that has the number of its stack in place of the stack, for PyProf's own files."""
    return f"{head}, 'trace': {number}}}"


def with_stack(text: str, stacks: Mapping[int, str]) -> str:
    """Return the text of a call with its stack, if it has the number of one.

    >>> with_stack(refer("{'pyprof': 1", 5), {5: ", 'trace': ['a.py:7']}"})
    "{'pyprof': 1, 'trace': ['a.py:7']}"
    """
    reference = _REFERENCE.search(text)
    stack = stacks.get(int(reference[1])) if reference else None
    return text[: reference.start()] + stack if reference and stack is not None else text


def encode_place(trace: Iterable[str], module: str | None) -> str:
    """Return the text of a range that is no call, but says where the operators inside it were called from."""
    return str({"traceMarker": list(trace)} | ({"module": module} if module else {}))


def encode_classic(call: Call, trace: Iterable[str], module: tuple[str, str] | None = None) -> tuple[str, ...]:
    """Return the nested texts of the original, outermost first: stack, module (class, extra_repr) if any, arguments."""
    records: list[dict[str, Any]] = []
    for arg in call.args:
        records.extend(_classic_records(arg.name, arg.value))
    texts = [str({"traceMarker": list(trace)})]
    if module is not None:
        texts.append(str({"mod": module[0], "strRepr": module[1]}))
    texts.append(str({"mod": call.mod, "op": call.op, "args": records}))
    return tuple(texts)


def _classic_records(name: str, value: Value) -> list[dict[str, Any]]:
    if isinstance(value, Other):
        return []  # the original omits such arguments
    if isinstance(value, Tensor):
        return [{"name": name, "type": "tensor", "shape": value.shape, "dtype": value.dtype}]
    if isinstance(value, tuple) and any(isinstance(item, (Tensor, tuple)) for item in value):
        return [record for item in value for record in _classic_records(name, item)]
    if isinstance(value, tuple):
        kind = list if isinstance(value, Listed) else tuple
        return [{"name": name, "type": kind.__name__, "value": kind(map(_literal_scalar, value))}]
    return [_record(name, value)]


def _record(name: str, value: Value) -> dict[str, Any]:
    record: dict[str, Any] = {"name": name}
    if isinstance(value, Tensor):
        record.update(type="tensor", shape=value.shape, dtype=value.dtype)
        if value.stride is not None:
            record["stride"] = value.stride
        if value.again:
            record["again"] = True
    elif isinstance(value, Other):
        record.update(type=value.type, value=value.text)
    elif isinstance(value, tuple):
        if all(map(_is_literal, value)):
            record.update(type="list", value=value)
        else:
            record.update(type="list", items=[_record("", item) for item in value])
    else:
        record.update(type=type(value).__name__, value=_literal_scalar(value))
    return record


def _is_literal(value: Value) -> bool:
    return not isinstance(value, tuple) and _literal_scalar(value) is value


def _literal_scalar(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def readable(text: str) -> str:
    """Return the text of a range as a person reads it.

    >>> readable("aten::mm"), readable("layer:encoder")
    ('aten::mm', 'encoder')
    """
    marker = decode(text)
    if isinstance(marker, CallMarker):
        call = marker.call
        return call.op if "::" in call.op or not call.mod else f"{call.mod}.{call.op}"
    if isinstance(marker, ModuleMarker):
        return marker.mod
    if isinstance(marker, TraceMarker):
        return marker.frames[-1] if marker.frames else "call stack"
    return marker.name


@lru_cache(maxsize=65536)
def user_frames(frames: tuple[str, ...]) -> tuple[str, ...]:
    """Return the frames outside torch and PyProf, outermost first.

    >>> user_frames(("train.py:9", "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134"))
    ('train.py:9',)
    >>> user_frames(("<stdin>:1", "<string>:3"))  # typed code is the user's, generated code is not
    ('<stdin>:1',)
    """
    return tuple(frame for frame in frames if not _NOT_USER.search(frame))


def caller(frames: tuple[str, ...]) -> str | None:
    """Return the innermost frame outside installed packages and Python's own library, None without one.

    >>> caller(("train.py:9", "/env/lib/python3.11/site-packages/transformers/pytorch_utils.py:119"))
    'train.py:9'
    >>> caller(("/usr/lib/python3.12/threading.py:1045",)) is None
    True
    """
    return next(
        (frame for frame in reversed(frames) if not _NOT_USER.search(frame) and not _LIBRARY.search(frame)),
        None,
    )


# Where packages and Python's own library are installed, on Linux, macOS and Windows; a zip file of it.
_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\](?:python|pypy)\d[\d.]*t?[/\\]|"
    r"[/\\](?i:python)[\d.]+t?(?:-\d+)?[/\\][Ll]ib[/\\]|[/\\]python\d+\.zip[/\\]"
)
# Frames that carry a call from the user's code into torch: torch's own files, PyProf's wrappers, generated code.
_NOT_USER = re.compile(
    r"(?:site|dist)-packages/torch/|^<(?!stdin>|ipython-input)|<frozen |<string>|"
    r"/pyprof2?/(?:capture|nvtx)/|apex/(?:pyprof|optimizers)/|"
    r"/torch/(?:nn|optim|autograd|cuda|utils|fx|jit|distributed|amp|_[a-z_]+|functional\.py|overrides\.py|tensor\.py)"
)

# SPDX-License-Identifier: Apache-2.0
"""The columns of the table: one row of `COLUMNS` each; everything that lists columns follows from it.

Add a column: one function that takes a `View` and returns its cells, decorated with key, heading, width and unit.
Its docstring is the documentation: `python -m pyprof.reference columns` prints docs/columns.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyprof.core.marker import caller
from pyprof.core.model import DIRECTIONS, OPERATOR, PHASES, Column, Ints, Rows, Site
from pyprof.core.netdict.write import distinct_triples
from pyprof.core.registry import Registry
from pyprof.costs import excess
from pyprof.costs.attribution.attribute import Costs, attribute
from pyprof.costs.hardware import machine, roofline
from pyprof.costs.hardware.machine import Hardware
from pyprof.costs.hardware.roofline import Cases, Roofline
from pyprof.costs.hardware.utilisation import Utilisation, Work, per_row
from pyprof.costs.modelflops import model_flops
from pyprof.costs.params import dtype, params
from pyprof.costs.tensor_core_reasons import verdict


@dataclass
class View:
    """Rows with their costs and the GPUs they ran on: the input of every column."""

    rows: Rows
    hardware: Hardware = machine.NOTHING

    @cached_property
    def costs(self) -> Costs:
        return attribute(self.rows)

    @cached_property
    def cases(self) -> Cases:
        return roofline.cases(self.rows, self.costs, self.hardware)

    @cached_property
    def roofline(self) -> Roofline:
        return roofline.roofline(self.rows, self.costs, self.cases, self.hardware)

    @cached_property
    def model_flops(self) -> Column:
        """Return model FLOPs per row, as papers count them for MFU."""
        return model_flops(self.rows, self.costs)

    @cached_property
    def work(self) -> Work:
        """Return the inputs of HFU and MFU, for rows, calls, steps and bins."""
        rows = self.rows
        return Work(rows.start, rows.end, rows.duration, self.costs.executed, self.model_flops, self.roofline.peak)

    @cached_property
    def utilisation(self) -> Utilisation:
        """Return HFU and MFU of each row. Like its roofline time, they are unknown without a GPU, even for 0 FLOPs."""
        unknown = np.isnan(self.roofline.time)
        return Utilisation(*(np.where(unknown, np.nan, figure) for figure in per_row(self.work)))


class Texts(NamedTuple):
    """A text per row: a code, and the distinct texts. None stands for unknown."""

    codes: Ints
    texts: list[str | None]


class Reals(NamedTuple):
    """A real number per row; nan stands for unknown. `digits` after the point are printed."""

    values: npt.NDArray[np.float64]
    digits: int = 1


Cells = Column | Texts | Reals


class Spec(NamedTuple):
    """A column: its key for -c, heading, width under -w (0: an equal share of the remaining width), unit, cells, and
    the text that stands for no value."""

    key: str
    heading: str
    width: int
    unit: str
    cells: Callable[[View], Cells]
    none: str
    doc: str


COLUMNS: Registry[Spec] = Registry("column")
_Getter = Callable[[View], Cells]


def column(key: str, heading: str, width: int = 0, unit: str = "", none: str = "na") -> Callable[[_Getter], _Getter]:
    """Register the decorated function as the cells of a column."""

    def add(getter: _Getter) -> _Getter:
        doc = " ".join((getter.__doc__ or "").split())
        COLUMNS.register(key)(Spec(key, heading, width, unit, getter, none, doc))
        return getter

    return add


def of_site(view: View, text: Callable[[Site], str | None]) -> Texts:
    """Return a text that depends only on the site."""
    return Texts(view.rows.site, [text(site) for site in view.rows.sites])


@column("idx", "Idx", 7)
def _idx(view: View) -> Cells:
    """Number of the row, from 1, in the order in which kernels started."""
    return Column(np.arange(1, len(view.rows) + 1))


def _numbers(view: View, offsets: Callable[[Site], tuple[int, ...]]) -> Cells:
    rows = view.rows
    ids = [offsets(site) for site in rows.sites]
    if all(len(numbers) < 2 for numbers in ids):
        first = np.array([numbers[0] if numbers else 0 for numbers in ids] or [0], np.int64)
        numbered = np.array([bool(numbers) for numbers in ids] or [False], bool)
        return Column(rows.seq.values + first[rows.site], rows.seq.mask() & numbered[rows.site])
    base = np.where(rows.seq.mask(), rows.seq.values, 0)
    base_code, bases = pd.factorize(base)
    code, keys = pd.factorize(rows.site.astype(np.int64) * max(len(bases), 1) + base_code)
    texts: list[str | None] = []
    for key in keys.tolist():
        site, number = divmod(key, max(len(bases), 1))
        texts.append(",".join(str(bases[number] + offset) for offset in ids[site]) or None)
    return Texts(code, texts)


@column("seq", "SeqId", 7, none="-")
def _seq(view: View) -> Cells:
    """Sequence number of the autograd node that the kernel's operator creates (fprop) or that is running (bprop); - if
    the operator has none. The original printed the smallest number greater than the previous row's: for a linear
    layer that is the number of its transpose, which no GEMM of the backward has. It also dropped the number 0.
    """
    return _numbers(view, lambda site: site.seq_ids)


@column("altseq", "AltSeqId", 7, none="-")
def _altseq(view: View) -> Cells:
    """The other sequence numbers of the ranges around the launch, in ascending order: those of operators that contain
    the kernel's (linear around addmm). The original's column held the numbers not chosen for seq, and never found
    the alternative markers that it is named after."""
    return _numbers(view, lambda site: site.alt_seq_ids)


@column("tid", "TId", 12)
def _tid(view: View) -> Cells:
    """System id of the thread that launched the kernel."""
    return view.rows.tid


@column("layer", "Layer", 10, none="-")
def _layer(view: View) -> Cells:
    """The user's names: nested `layer:` ranges around the call (in a backward row, around the forward call), joined by
    ":". In recordings from DLProf's time, which name no layers, the classes of the function stack; outside of every
    operator, all of the user's ranges around the launch. - if there is none."""
    return of_site(view, lambda site: ":".join(site.layer) or None)


@column("trace", "Trace", 25)
def _trace(view: View) -> Cells:
    """The user's call stack as file:line, outermost first, without frames of torch and PyProf. With -w, file name and
    line of the last frame. A backward row has the stack of its forward."""
    return of_site(view, lambda site: ",".join(site.trace) or None)


@column("dir", "Direction", 5)
def _dir(view: View) -> Cells:
    """fprop (forward, recomputation and optimizer), bprop (inside a range of the autograd engine), or na."""
    return of_site(view, lambda site: DIRECTIONS[site.direction] if DIRECTIONS[site.direction] != "na" else None)


@column("sub", "Sub", 3)
def _sub(view: View) -> Cells:
    """Number of the row within its call and direction, from 0. The original counted as long as sequence number and
    operator stayed the same, across calls."""
    return Column(view.rows.sub)


@column("mod", "Module", 15)
def _mod(view: View) -> Cells:
    """Python namespace of the call as the user wrote it: torch, Tensor, torch.nn.functional, torch.optim; aten for an
    operator without a recorded call. The module of the model is in ModulePath."""
    return of_site(view, lambda site: site.mods[0] if site.mods and site.mods[0] != "na" else None)


@column("op", "Op", 15)
def _op(view: View) -> Cells:
    """The outermost call in the user's code; in a backward row, the forward call. accumulate_grad for the engine's
    accumulation of a parameter's gradient. Without a recorded call, the innermost operator range."""
    return of_site(view, lambda site: site.ops[0] if site.ops else None)


@column("kernel", "Kernel")
def _kernel(view: View) -> Cells:
    """Name of the kernel without template arguments; without a GPU, the name of the operator event."""
    return Texts(view.rows.name, list(view.rows.short_names))


@column("params", "Params")
def _params(view: View) -> Cells:
    """Parameters of the call that owns the cost: letters for products and convolutions, otherwise the arguments."""
    return Texts(view.costs.call, [*map(params, view.costs.calls), None])


@column("sil", "Sil(ns)", 10, "ns")
def _sil(view: View) -> Cells:
    """Time on the device; without a GPU, the CPU time of the operator event less that of the events inside it."""
    return Column(view.rows.duration)


@column("tc", "TC", 2)
def _tc(view: View) -> Cells:
    """Tensor cores: 1 used, 0 not used by a kernel of a kind that could, - not applicable, na unknown. Derived from the
    kernel's name, so that 1 requires no profile of counters. The original printed - for every kernel that used none
    of the names it knew, and 1 for some fp32 kernels; its list ends with Ampere's first libraries."""
    return Texts(view.costs.tensor_cores, ["0", "1", "-", None])


@column("device", "Device", 3)
def _device(view: View) -> Cells:
    """Number of the GPU, or cpu."""
    device = view.rows.device
    numbers, distinct = pd.factorize(np.where(device.mask(), device.values, -1))
    texts: list[str | None] = ["cpu" if number < 0 else str(number) for number in distinct.tolist()]
    unknown = ~device.mask() & (view.rows.kind != OPERATOR)
    return Texts(np.where(unknown, len(texts), numbers), [*texts, None])


@column("stream", "Stream", 3)
def _stream(view: View) -> Cells:
    """Number of the stream; without a GPU, the thread."""
    return view.rows.stream


def _triple(column: Column) -> Texts:
    code, distinct = distinct_triples(column.values)
    texts: list[str | None] = [",".join(map(str, row)) for row in distinct.tolist()]
    return Texts(np.where(column.mask(), code, len(texts)), [*texts, None])


@column("grid", "Grid", 12)
def _grid(view: View) -> Cells:
    """Number of blocks in x, y, z."""
    return _triple(view.rows.grid)


@column("block", "Block", 12)
def _block(view: View) -> Cells:
    """Number of threads of a block in x, y, z."""
    return _triple(view.rows.block)


@column("flops", "FLOPs", 12, "count")
def _flops(view: View) -> Cells:
    """Floating-point operations that the call executes (a fused multiply-add is 2), on the row that carries them; the
    call's other kernels have 0. Executed: without what a causal mask skips, with what is recomputed; for a
    convolution by Winograd or FFT, those of the definition, which are more. na for an operator without a formula. An
    integer."""
    return view.costs.flops


@column("bytes", "Bytes", 12, "B")
def _bytes(view: View) -> Cells:
    """Bytes that the call must move if every input is read once and every output written once, on the same row."""
    return view.costs.bytes


@column("phase", "Phase", 9)
def _phase(view: View) -> Cells:
    """forward, backward, recompute (a checkpoint's second forward), optimizer, or none outside every operator."""
    return of_site(view, lambda site: PHASES[site.phase])


@column("module", "ModulePath", 20)
def _module(view: View) -> Cells:
    """Path of the nn.Module that made the call (in a backward row, the forward call), as in named_modules()."""
    return of_site(view, lambda site: site.module)


@column("dtype", "DType", 8)
def _dtype(view: View) -> Cells:
    """Type of the first tensor argument of the call that owns the cost."""
    return Texts(view.costs.call, [*map(dtype, view.costs.calls), None])


@column("start", "Start(ns)", 13, "ns")
def _start(view: View) -> Cells:
    """Start of the kernel, from the recording's first event."""
    return Column(view.rows.start)


def _rate(view: View, amount: Column) -> Reals:
    duration = view.rows.duration
    valid = amount.mask() & (duration > 0)
    return Reals(np.where(valid, amount.values / np.where(duration > 0, duration, 1), np.nan))


@column("gflops", "GFLOP/s", 10, "1e9/s")
def _gflops(view: View) -> Cells:
    """FLOPs of the row (column flops) divided by its time: the achieved rate."""
    return _rate(view, view.costs.flops)


@column("gbs", "GB/s", 8, "1e9 B/s")
def _gbs(view: View) -> Cells:
    """Bytes of the row divided by its time: the achieved bandwidth."""
    return _rate(view, view.costs.bytes)


# Columns that require a known GPU.
OF_HARDWARE = frozenset({"bound", "roof", "eff", "effwhy", "hfu", "mfu"})


@column("ai", "AI", 8, "FLOP/B")
def _ai(view: View) -> Cells:
    """Arithmetic intensity: executed FLOPs of the row divided by its bytes."""
    flops, size = view.costs.flops, view.costs.bytes
    valid = flops.mask() & size.mask() & (size.values > 0)
    return Reals(np.where(valid, flops.values / np.where(valid, size.values, 1), np.nan), digits=3)


@column("bound", "Bound", 7)
def _bound(view: View) -> Cells:
    """Limiting resource of the row on its GPU, by the roofline: compute or memory; - for a row that carries no work (a
    helper, a view). On the CPU only where it is certain. na for copies, and if FLOPs, bytes or the peaks of the GPU
    or the processor are unknown."""
    return Texts(view.roofline.bound, roofline.BOUNDS)


@column("roof", "Roof(ns)", 10, "ns")
def _roof(view: View) -> Cells:
    """Roofline time: the longer of executed FLOPs divided by the GPU's peak for their type (column peak), and bytes
    divided by its bandwidth. No kernel that reads its operands from memory can be faster. 0 for a row that carries
    no work; na on the CPU."""
    return Reals(view.roofline.time)


@column("eff", "Eff(%)", 6, "%")
def _eff(view: View) -> Cells:
    """Roofline time as a share of the row's time. Above 100 if the operands come from the L2 cache, or the clock is
    above the data sheet's; effwhy gives the reason. na on the CPU, for a row that carries no work, and for Winograd
    and FFT, which compute less than the definition: how much is unknown."""
    return Reals(excess.efficiency(view.rows, view.costs, view.roofline))


@column("peak", "Peak", 8)
def _peak(view: View) -> Cells:
    """Type of arithmetic whose peak the roofline uses. For products, the type in the kernel's name, otherwise that of
    the operands; tf32 for fp32 operands on tensor cores. Everything else computes in float32, or in float64."""
    return Texts(view.cases.codes, [*view.roofline.maths, None])


@column("tcwhy", "TCWhy")
def _tcwhy(view: View) -> Cells:
    """Use of tensor cores, with the reason: used (and what makes them less efficient), not used and why (type, TF32
    off, a vector, less than a tile, a contiguous size that is not a multiple), kernel unknown; - if it is not a
    product; na on the CPU."""
    codes = np.where(view.cases.codes < 0, len(view.cases.cases), view.cases.codes)
    texts = [None if case.on_cpu else verdict(case, view.hardware) for case in view.cases.cases]
    return Texts(codes, [*texts, "-"])


@column("flops_dense", "DenseFLOPs", 12, "count")
def _flops_dense(view: View) -> Cells:
    """Model FLOPs of the row, as papers count them for MFU: like flops, but dense-equivalent (attention with the whole
    rectangle of a causal mask, 2:4 sparsity with its zeros) and without repeated work: 0 in the phase recompute, and
    the backward of a fused attention without the scores that it recomputes. An integer."""
    return view.model_flops


@column("hfu", "HFU(%)", 6, "%")
def _hfu(view: View) -> Cells:
    """Hardware FLOPs utilisation: executed FLOPs (column flops) divided by the row's time and by the GPU's peak for
    their type (column peak). na on the CPU, for copies, if FLOPs, bytes, the type or the GPU are unknown, and for
    convolutions by Winograd or FFT: their FLOPs are those of the definition; the number executed is unknown. na above
    105 %, which is impossible: a time, the FLOPs or the peak is wrong."""
    return Reals(100 * view.utilisation.hfu)


@column("mfu", "MFU(%)", 6, "%")
def _mfu(view: View) -> Cells:
    """Model FLOPs utilisation: like hfu, for the model FLOPs (column flops_dense)."""
    return Reals(100 * view.utilisation.mfu)


@column("caller", "Caller", 25)
def _caller(view: View) -> Cells:
    """The innermost line of the call stack outside installed packages (site-packages) and Python's standard library:
    where your code called the library that runs the operator. It equals the last line of trace if that line is
    yours. With -w, without the folder. na if the stack is unknown or has no such line."""
    return of_site(view, lambda site: caller(site.trace))


@column("effwhy", "EffWhy")
def _effwhy(view: View) -> Cells:
    """Reason for an eff above 100: a working set (the row's bytes) that fits in the GPU's L2, or so much of it that
    memory moves the rest in the row's time; or not explained, with the figures. Also the reason for none of Winograd
    or FFT, which compute less than the definition. - up to 100; else na if eff or the size of the L2 is unknown."""
    return Texts(*excess.reasons(view.rows, view.costs, view.cases, view.roofline))

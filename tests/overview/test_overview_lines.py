# SPDX-License-Identifier: Apache-2.0
"""The overview as text: what stands in it at the widths that terminals have, and that it fits, whatever the names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pyprof import profiles
from pyprof.overview import lines as text
from pyprof.overview.figures import Figures, Row, figures
from pyprof.overview.lines import MOST, lines, round_shares
from pyprof.reports.headline import Best, Step
from tests.build import call, examples, recording, scratch, write_capture
from tests.reports.conftest import CPU, small

NESTED = call("torch.mm", (64, 32), (32, 16), module="model.encoder.layers.11.self_attention", trace=(
    "train.py:9", "/project/models/transformer_block.py:120"))  # fmt: skip
RECORDINGS = {
    "gpu": small,  # two steps on two devices, without a backward
    "cpu": lambda: recording(CPU),
    "nested": lambda: recording(f"{NESTED}\n    op aten::mm\n        wait 1500000\n"),
    "kernels": lambda: recording("> 40 volta_sgemm_128x64_nn\n> 9 void at::native::reduce_kernel<512>(int)\n"),
}


@cache
def of(name: str) -> Figures:
    """The figures of a recording above, written and read."""
    profile = profiles.load(write_capture(Path(scratch()) / "net.sqlite", RECORDINGS[name]()))
    return figures(profile.source())


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_overview_at_three_widths(name, width, golden):
    found = of(name)
    golden(f"overview/{name}.{width}.txt", "\n".join(lines(found, width, path="net.sqlite")) + "\n")


SHARE = st.one_of(st.none(), st.floats(0, 100))
NAME = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        ["\x1b[2J\x1b]0;x\x07", "a\nb\r\n" * 9, "\u202eabc", "层" * 50, "x" * 5000, "e\u0301" * 40, " " * 70]
    ),
)
TIME = st.floats(0, 1e15)
ROW = st.builds(
    Row,
    NAME,
    TIME,
    SHARE,
    st.one_of(st.none(), st.floats(0, 1e9)),
    st.one_of(st.none(), NAME),
    st.integers(0, 10**6),
)


@st.composite
def parts(draw: st.DrawFn) -> tuple[tuple[str, float], ...]:
    """Shares of some parts, 100 % together."""
    names = draw(st.lists(st.sampled_from(list(text._PARTS)), unique=True))
    weights = [draw(st.integers(1, 10**6)) for _ in names]
    return tuple((name, 100 * weight / sum(weights)) for name, weight in zip(names, weights))


STEP = st.builds(
    Step, st.one_of(st.none(), st.floats(0, 1e15)), st.one_of(st.none(), st.integers(1, 10**6)), st.integers(1, 10**4),
    parts(), SHARE, used=st.sampled_from(["", "6 steps: 1 used; 0 warm-up", "long " * 90]),
)  # fmt: skip
FIGURES = st.builds(
    Figures,
    gpu=st.booleans(), step=STEP, kernels=st.booleans(), operators=st.lists(ROW, max_size=5).map(tuple),
    modules=st.lists(ROW, max_size=5).map(tuple),
    ledger=st.tuples(*(st.tuples(st.just(name), SHARE) for name in ("operator", "line", "module", "FLOPs"))),
    best=st.one_of(
        st.none(),
        st.builds(
            Best, st.text(max_size=900), st.one_of(st.none(), st.floats(0, 1e15)), SHARE,
            kind=st.sampled_from(["Finding", "Opportunity", "Note"]),
        ),
    ),
    evaluated=st.integers(0, 50), rank=st.just(0), ranks=st.one_of(st.none(), st.integers(2, 10**4)),
    verdict=st.one_of(st.just(()), st.lists(st.text(max_size=300), min_size=1, max_size=12).map(tuple)),
)  # fmt: skip


@pytest.mark.long
@examples(300)
@given(FIGURES, st.integers(0, 250), st.sampled_from(["utf-8", "ascii", "latin-1", "cp932"]), NAME)
def test_its_lines_are_few_and_fit_and_only_appear(found, width, encoding, path):
    shown = lines(found, width, encoding, path)
    assert len(shown) <= MOST
    for line in shown:
        assert cell_len(line) <= max(width, 60)
        assert line.isprintable() or "\u3000" in line or any(c.isspace() for c in line)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]", line)
        line.encode(encoding)
    # None where a verdict leaves no room. An operator may have any name, "Kernel" too.
    head = [line for line in shown if re.match(r"(Operator|Kernel).* Share\b.* Module\b", line)]
    assert found.verdict or len(head) == 1
    assert any(line.startswith("Next: pyprof view") for line in shown)
    assert found.verdict or any(line.startswith(("Finding", "Opportunity", "Note")) for line in shown)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8))
def test_shares_of_a_whole_are_100_percent_as_they_are_printed(weights):
    shares = [100 * weight / sum(weights) for weight in weights]
    printed = [float(one) for one in round_shares(shares)]
    assert abs(sum(printed) - 100) < 1e-6
    assert all(abs(one - share) <= 0.1 + 1e-6 for one, share in zip(printed, shares))


def test_nothing_is_said_of_a_gpu_without_one():
    found = of("cpu")
    for width in (60, 80, 120):
        assert not re.search("gpu|kernel|cuda|idle", "\n".join(lines(found, width)), re.IGNORECASE)


def test_what_is_not_known_is_na():
    found = of("kernels")
    assert "na: not recorded" in "\n".join(lines(found, 80))
    nothing = Figures(False, Step(None, None, 0, (), None), False, (Row("mm", 3, None, None),), (),
                      (("operator", None),), None, 3)  # fmt: skip
    shown = "\n".join(lines(nothing, 120))
    assert re.search(r"^mm +na +3 ns +na +na +na: not recorded$", shown, re.MULTILINE)
    assert "Time with known operator na" in shown


def test_the_path_can_be_pasted_into_a_shell():
    found = Figures(False, Step(1e6, None, 1, (), None), False, (), (), (), None, 3, 0, 4)
    shown = lines(found, 120, path="my runs/net.rank0.sqlite")
    assert shown[-2:] == [
        "This is rank 0 of 4; another one: pyprof report 'my runs/net.rank1.sqlite'",
        "Next: pyprof view 'my runs/net.rank0.sqlite'",
    ]


def test_the_first_three_findings_have_their_advice():
    """One whose saving is a bound is an opportunity."""
    first, second, third = (
        Best(
            f"Work {number} is slow.",
            4e5 / number,
            40 / number,
            advice=f"Drop {number}.",
            kind="Opportunity" if number == 3 else "Finding",
        )
        for number in (1, 2, 3)
    )
    found = Figures(False, Step(1e6, 9, 1, (), None), False, (), (), (), first, 3, more=(second, third))
    assert lines(found, 80)[-7:-1] == [
        "Finding (could save 400 us a step, 40.0 %): Work 1 is slow.", "Advice: Drop 1.",
        "Finding (could save 200 us a step, 20.0 %): Work 2 is slow.", "Advice: Drop 2.",
        "Opportunity (could save up to 133 us a step, 13.3 %): Work 3 is slow.", "Advice: Drop 3.",
    ]  # fmt: skip


def test_a_finding_keeps_its_line_though_others_are_long():
    """Rows of the table leave for it, and folders of the path."""
    rows = tuple(Row(f"op{number}", 3, 20.0, 1) for number in range(5))
    problem = f"The loop loads its batches itself. {'It takes a while. ' * 2}Above all in {'/folder' * 12}/train.py:33."
    phases = tuple((name, 20.0) for name in ("forward", "backward", "optimizer", "dataloader", "other"))
    step = Step(1e6, 9, 1, phases, None, used="12 steps: " + "9 uneven " * 15)
    found = Figures(
        False, step, False, rows, (), (), Best(problem, 5e5, 50.0, advice="Do it. " * 40), 3, rank=0, ranks=2
    )
    for width in (60, 80):
        shown = lines(found, width)
        assert len(shown) <= MOST
        assert shown[-5].endswith("train.py:33.")


def test_a_flight_record_begins_with_its_verdict():
    hostile = "\x1b[2J" + "long " * 100
    verdict = ("A step was slow.", hostile, *(f"Sentence {number}." for number in range(9)))
    rows = tuple(Row(f"op{number}", 3, 20.0, 1) for number in range(5))
    found = Figures(False, Step(1e6, 3, 1, (), None), False, rows, (), (), None, 3, verdict=verdict)
    for width in (60, 120):
        shown = lines(found, width)
        assert shown[0] == "A step was slow."
        assert "\x1b" not in "".join(shown)
        assert len(shown) <= MOST
        assert all(len(line) <= width for line in shown)
        assert shown[-1] == "Next: pyprof view FILE"
    short = lines(found._replace(verdict=verdict[:1]), 80)
    assert short[1:3] == ["", "Step 1.00 ms, mean of 3 steps"]
    assert any("op4" in line for line in short)

# SPDX-License-Identifier: Apache-2.0
"""Steps of servers: told by their ranges alone, with what was launched in each."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from pyprof import profiles
from pyprof.core.serving import step_of
from tests import kineto

# Each line takes 100 ns on the CPU; a kernel starts 10,000 ns after its launch and takes 1,000 ns.
TEXT = """
aten::embedding
    > before
# execute_context_2(812)_generation_0(0)
    aten::mm
        > sgemm
    # step[EXTEND bs=2 toks=812]
        > gemv
aten::argmax
    > between
# execute_34_context_2(sq4sk904sqsq8sqsk9)_generation_30(sq30sk9000sqsq30sqsk9000)
    > mixed
# execute_context_0(0)_generation_32(32)
    aten::mm
        > sgemm
# execute_context_0(0)_generation_30(30)
    aten::mm
        > sgemm
aten::argmax
    > after
"""


@pytest.fixture
def profile(tmp_path: Path) -> profiles.Profile:
    return profiles.load(kineto.write(tmp_path / "trace.json", kineto.Nested(TEXT).events))


def test_one_row_per_step(profile: profiles.Profile) -> None:
    """Between the launches of step 0: its end, that of mm, a range: its kernels are 400 ns apart."""
    found = profile.report("inference")
    said = ["phase", "requests", "prefills", "decodes", "prefill_tokens", "decode_tokens", "tokens"]
    assert found[said].values.tolist() == [
        ["prefill", 2, 2, 0, 812, 0, 812],
        ["mixed", 32, 2, 30, 4, 30, 34],
        ["decode", 32, 0, 32, 0, 32, 32],
        ["decode", 30, 0, 30, 0, 30, 30],
    ]
    assert found["context"].isna().tolist() == [True, False, True, True]
    assert found["context"][1] == 9904
    ranges = [row for row in kineto.Nested(TEXT).events if row["name"].startswith("execute")]
    assert found["duration_ns"].tolist() == [round(row["dur"] * 1000) for row in ranges] == [900, 300, 500, 500]
    assert found[["kernels", "kernel_ns"]].values.tolist() == [[2, 2000], [1, 1000], [1, 1000], [1, 1000]]
    assert found["busy_ns"].tolist() == [1400, 1000, 1000, 1000]
    assert found["tokens_per_s"].tolist() == [
        pytest.approx(tokens / (ns * 1e-9)) for tokens, ns in ((812, 900), (34, 300), (32, 500), (30, 500))
    ]


def test_one_row_per_phase(profile: profiles.Profile) -> None:
    found = profile.report("inference", by="phase").set_index("phase")
    assert found.index.tolist() == ["decode", "prefill", "mixed"]  # 1,000, 900 and 300 ns
    columns = ["steps", "requests", "tokens", "duration_ns", "median_ns", "kernels", "kernel_ns", "busy_ns"]
    assert found.loc["decode", columns].tolist() == [2, 62, 62, 1000, 500, 2, 2000, 2000]
    assert pd.isna(found.loc["decode", "context"])
    assert found.loc["mixed", "context"] == 9904


def test_the_steps_cut_the_run_and_are_in_no_path(profile: profiles.Profile) -> None:
    """From start to start; the last step takes what is left, as its kernels run when its range has ended."""
    steps = profile.steps
    starts = [row["ts"] * 1000 for row in kineto.Nested(TEXT).events if row["name"].startswith("execute")]
    assert len(steps) == 4
    assert steps["host_start_ns"].diff().dropna().tolist() == pd.Series(starts).diff().dropna().round().tolist()
    assert steps["host_end_ns"].tolist()[:3] == steps["host_start_ns"].tolist()[1:]
    assert steps["kernels"].tolist() == [3, 1, 1, 2]
    assert "R01" not in set(profile.findings["rule"])
    assert not profile.ops["name"].str.contains("execute|step").any()
    assert profile.ops["op_id"].nunique() == profile.ops["type"].nunique()


def test_what_sglang_says() -> None:
    told = step_of("step[MIXED bs=5]")
    assert told is not None
    assert (told.phase, told.requests, told.tokens, told.prefills) == ("mixed", 5, None, None)
    verify = step_of("step[TARGET_VERIFY bs=3]")
    assert verify is not None
    assert (verify.phase, verify.requests, verify.tokens) == ("target_verify", 3, None)


@pytest.mark.parametrize("text", [
    "execute_context_2_generation_3", "execute_model", "my execute_context_0(0)_generation_1(1)", "step[3]",
    "execute_context_0(0)_generation_1(1) of 7", "step[DECODE bs=x]", "step[decode bs=3]",
])  # fmt: skip
def test_what_only_looks_like_a_servers_step(text: str) -> None:
    assert step_of(text) is None


def test_what_only_looks_like_a_servers_step_has_no_row_and_is_told(tmp_path: Path) -> None:
    events = kineto.Nested("# execute_model\n    aten::mm\n        > sgemm\n").events
    profile = profiles.load(kineto.write(tmp_path / "trace.json", events))
    assert not len(profile.report("inference"))
    assert "R01" in set(profile.findings["rule"])


def test_recordings_of_servers(recorded) -> None:
    """From the names of their annotations, and the kernels of the files."""
    vllm = recorded("kineto/mi300_vllm_prefilldecode_piecewise")
    (row,) = vllm.report("inference").to_dict("records")
    assert (row["phase"], row["requests"], row["prefills"], row["decodes"]) == ("mixed", 46, 9, 37)
    assert (row["tokens"], row["context"]) == (8155 + 37, 8430 + 34489)
    assert (row["duration_ns"], row["kernels"]) == (26_353_441, 413)
    sglang = recorded("kineto/mi300_sglang_decode")
    (row,) = sglang.report("inference").to_dict("records")
    assert (row["phase"], row["requests"], row["tokens"], row["context"]) == ("decode", 32, 32, 32785)
    assert (row["duration_ns"], row["kernels"]) == (465_716_634, 555)

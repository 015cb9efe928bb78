# SPDX-License-Identifier: Apache-2.0
"""The gate: conditions, verdicts about planted regressions, their forms, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from pyprof import profiles
from pyprof.core.errors import UsageError
from pyprof.gate import outputs, verdict
from pyprof.gate.conditions import Condition, parse
from pyprof.gate.significance import ALPHA, block_length, differences, enough
from pyprof.gate.verdict import FAIL, PASS, UNKNOWN
from tests import cli, kineto

STEP = 1_000_000  # ns
RELU, MM, NORM, EVIL = "aten::relu", "aten::mm", "aten::layer_norm", "aten::a|<b>`*_x\x1b[31m"
KERNELS = {RELU: "relu_kernel", MM: "sgemm<float>", NORM: "norm_kernel", EVIL: "evil|&\"'k"}


def write(path: Path, lengths: Iterable[dict[str, int]], names: dict[str, str] = KERNELS) -> Path:
    """Write a recording of steps of 1 ms plus the time of their kernels (ns); each operator launches its kernel and the
    next begins when that has ended."""
    events, at, number = [], 1000, 0
    for step, kernels in enumerate(lengths):
        begin = at
        at += STEP // 2
        for operator, length in kernels.items():
            number += 1
            events += [
                kineto.op(operator, at, at + 5000, number),
                kineto.launch(at + 1000, at + 2000, number),
                kineto.kernel(names.get(operator, "kernel"), at + 3000, at + 3000 + length, number),
            ]
            at += max(length, 5000) + 4000
        at += STEP // 2
        events.append(kineto.annotation(f"ProfilerStep#{step}", begin, at))
    return kineto.write(path, events)


def steps(count: int, seed: int = 0, noise: float = 0.002, **more: int) -> list[dict[str, int]]:
    """Return the times of kernels in steps: relu 50 us, mm 200 us, with a spread."""
    rng = np.random.default_rng(seed)
    names = {RELU: 50_000, MM: 200_000, **more}
    return [{name: int(length * (1 + noise * rng.standard_normal())) for name, length in names.items()}
            for _ in range(count)]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("gate")

    def saved(name: str, lengths: list[dict[str, int]]) -> Path:
        path = folder / f"{name}_dldb.sqlite"
        profiles.load(write(folder / f"{name}.json", lengths)).save(path)
        return path

    slower = [{**one, MM: int(1.03 * one[MM])} for one in steps(12, 2)]
    return {
        "base": saved("base", steps(12)),
        "same": saved("same", steps(12, 1)),
        "slower": saved("slower", slower),
        "short": saved("short", steps(3, 3)),
        "evil": saved("evil", steps(12, 4, **{EVIL: 100_000})),
        "worse evil": saved("worse", steps(12, 5, **{EVIL: 150_000})),
    }


def run(*words: object) -> int:
    """Run `pyprof`; argparse exits by itself."""
    return cli.main([str(word) for word in words])


def gate(files: dict[str, Path], base: str, other: str, *conditions: str) -> verdict.Verdict:
    loaded = [profiles.load(files[name]) for name in (base, other)]
    return verdict.compare([loaded[0].source()], [loaded[1].source()], [parse(one) for one in conditions])


# --- conditions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time>2%", ("step_time>2%", "step_time", "", 0.02, "%")),
        (" busy > 0.5 ms ", ("busy>0.5ms", "busy", "", 500_000, "ns")),
        ("idle:launch-bound>10us", ("idle:launch-bound>10us", "idle", "launch-bound", 10_000, "ns")),
        ("idle:Data_Loader>1%", ("idle:data loader>1%", "idle", "data loader", 0.01, "%")),
        ("memory>1GiB", ("memory>1GiB", "memory", "", 2.0**30, "B")),
        ("kernel:gemm<a, b>>5%", ("kernel:gemm<a, b>>5%", "kernel", "gemm<a, b>", 0.05, "%")),
        ("op:a:b>.5%", ("op:a:b>.5%", "op", "a:b", 0.005, "%")),
        ("module:encoder>0s", ("module:encoder>0s", "module", "encoder", 0, "ns")),
    ],
)
def test_a_condition_is_read(text, expected):
    assert parse(text) == Condition(*expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("step_time", "expected METRIC>LIMIT"),
        (">2%", "expected METRIC>LIMIT"),
        ("step_time>-2%", "expected METRIC>LIMIT"),
        ("step_time>nan%", "expected METRIC>LIMIT"),
        ("step_time>2", "the limit 2 needs a unit"),
        ("step_time>2MiB", "step_time is in units of time, not in MiB"),
        ("memory>2ms", "memory is in bytes, not in ms"),
        ("steptime>2%", "Did you mean step_time?"),
        ("step_time:x>2%", "there is no metric step_time:x"),
        ("op>2%", "op needs part of a name"),
        ("op:>2%", "op needs part of a name"),
        ("idle:>2%", "there is no cause ''"),
        ("idle:sleep>2%", "choose from queued, data loader"),
    ],
)
def test_a_wrong_condition_is_one_sentence_and_exit_code_2(text, sentence, files, capsys):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        parse(text)
    assert run("diff", files["base"], files["same"], f"--fail-on={text}") == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("norm", "Layer_Norm", True),
        ("norm*", "layer_norm", False),
        ("*norm", "layer_norm", True),
        ("*", "anything", True),
        ("*[0]?", "k[0]?", True),
        ("*[0]?", "k0x", False),
        ("k<a>", "void k<a>::f", True),
    ],
)
def test_a_pattern_with_a_star_matches_whole_names(pattern, name, matches):
    assert parse(f"op:{pattern}>1%").matches(name) is matches


# --- figures


def test_figures_are_those_of_each_iteration(tmp_path):
    """Two iterations by hand: relu 10 and mm 20 us; relu 30 and mm 40 us."""
    path = write(tmp_path / "run.json", [{RELU: 10_000, MM: 20_000}, {RELU: 30_000, MM: 40_000}])
    profile = profiles.load(path)
    source = profile.source()
    conditions = [
        "step_time>1%",
        "busy>1%",
        "idle>1%",
        "op:relu>1%",
        "op:*>1%",
        "kernel:gemm>1%",
        "memory>1%",
    ]
    table = verdict.tabulate([source], [source], [parse(one) for one in conditions])
    rows = table.sides[0]
    assert rows["op:relu"].tolist() == [10_000, 30_000]
    assert rows["kernel:gemm"].tolist() == [20_000, 40_000]
    assert rows["busy"].tolist() == [30_000, 70_000]
    assert rows["step_time"].tolist() == [1_000_000 + 38_000, 1_000_000 + 78_000]
    assert (rows["step_time"] - rows["busy"]).tolist() == rows["idle"].tolist()
    assert sorted(table.columns[4]) == ["op:mm fprop", "op:relu fprop"]
    assert "memory" not in rows


# --- verdicts


def test_the_injected_operator_is_named_and_no_other(files):
    result = gate(files, "base", "slower", "step_time>2%", "op:*>1%", "kernel:*>1%", "op:relu>1%")
    assert result.status == FAIL
    failed = {one.name for outcome in result.outcomes for one in outcome.comparisons if one.status == FAIL}
    assert failed == {"op:mm fprop", "kernel:sgemm"}
    slower = result.outcomes[1].comparisons[0]
    assert slower.change == pytest.approx(0.03, abs=0.003)
    assert slower.other - slower.base > slower.margin
    assert slower.p <= ALPHA
    assert [outcome.status for outcome in result.outcomes] == [PASS, FAIL, FAIL, PASS]


def test_the_same_program_passes(files):
    result = gate(files, "base", "same", "step_time>1%", "busy>1%", "idle>1%", "op:*>1%", "kernel:*>1%")
    assert result.status == PASS
    assert result.samples == (12, 12)


def test_a_faster_program_passes(files):
    assert gate(files, "slower", "base", "op:*>1%").status == PASS


def test_an_increase_within_the_limit_passes_however_certain(files):
    assert gate(files, "base", "slower", "op:mm>5%").status == PASS
    assert gate(files, "base", "slower", "op:mm>1us").status == FAIL
    assert gate(files, "base", "slower", "op:mm>10us").status == PASS


def test_too_few_iterations_are_no_verdict(files):
    result = gate(files, "base", "short", "op:mm>1%")
    assert result.status == PASS  # 12 and 3 can be told apart: 455 divisions
    result = gate(files, "short", "short", "op:mm>1%")
    (one,) = result.outcomes[0].comparisons
    assert (result.status, one.reason) == (UNKNOWN, "too few iterations")


def test_what_is_not_recorded_is_no_verdict(files):
    result = gate(files, "base", "same", "memory>1%", "op:attention>1%", "module:net>1%", "idle:synchronization>1us")
    assert [outcome.status for outcome in result.outcomes] == [UNKNOWN, UNKNOWN, UNKNOWN, PASS]


def test_an_increase_within_the_noise_is_no_verdict(tmp_path):
    noisy = {
        "base": write(tmp_path / "a.json", steps(8, 1, 0.3)),
        "other": write(tmp_path / "b.json", steps(8, 6, 0.3)),
    }
    result = gate(noisy, "base", "other", "op:*>0%")
    reasons = {one.reason for one in result.outcomes[0].comparisons if one.status == UNKNOWN}
    assert result.status != FAIL
    assert reasons <= {"above the limit, but within the noise"}
    assert any(one.change > 0.02 for one in result.outcomes[0].comparisons)


def test_small_operators_are_left_out_and_counted(tmp_path):
    """2 of 252 us are less than 1 %; by its name it is compared."""
    pair = {
        "base": write(tmp_path / "a.json", steps(8, **{NORM: 2_000})),
        "other": write(tmp_path / "b.json", steps(8, 1, **{NORM: 2_300})),
    }
    result = gate(pair, "base", "other", "op:*>1%", "op:norm>1%")
    assert ([len(one.comparisons) for one in result.outcomes], result.outcomes[0].omitted) == ([2, 1], 1)
    assert [one.status for one in result.outcomes] == [PASS, FAIL]


def test_new_and_removed_operators_are_named(tmp_path):
    pair = {
        "base": write(tmp_path / "a.json", steps(8, **{NORM: 90_000})),
        "other": write(tmp_path / "b.json", steps(8, **{"aten::gelu": 80_000}), {**KERNELS, "aten::gelu": "gelu"}),
    }
    result = gate(pair, "base", "other", "op:*>1%", "op:gelu>10us")
    assert list(result.new) == ["gelu"]
    assert list(result.removed) == ["layer_norm"]
    assert result.new["gelu"] == pytest.approx(80_000, rel=0.01)
    assert result.outcomes[0].status == UNKNOWN  # a new operator has no percentage
    assert result.outcomes[1].status == FAIL  # but a time


def test_a_renamed_operator_is_compared_with_its_former_name(tmp_path):
    """Another version of a library gives it another name; its kernel tells."""
    slower = [{RELU: one[RELU], "aten::mm_out": int(1.1 * one[MM])} for one in steps(8, 1)]
    pair = {
        "base": write(tmp_path / "a.json", steps(8)),
        "other": write(tmp_path / "b.json", slower, {**KERNELS, "aten::mm_out": KERNELS[MM]}),
    }
    result = gate(pair, "base", "other", "op:*>5%")
    assert [one.name for one in result.outcomes[0].comparisons if one.status == FAIL] == ["op:mm / mm_out fprop"]
    assert not result.new


def test_the_first_iterations_do_not_count(tmp_path):
    """Warm-up is left out: the steady part is compared."""
    warm = steps(12, 1)
    warm[0] = {RELU: 3_000_000, MM: 9_000_000}
    pair = {"base": write(tmp_path / "a.json", steps(12)), "other": write(tmp_path / "b.json", warm)}
    result = gate(pair, "base", "other", "step_time>1%", "op:*>1%")
    assert (result.status, result.iterations) == (PASS, (12, 11))


def test_runs_of_a_side_are_the_samples_if_there_are_enough(tmp_path):
    """Runs differ by 10 %, iterations of a run hardly: only runs show that nothing changed."""
    rng = np.random.default_rng(3)
    factors = 1 + 0.1 * rng.standard_normal(8)
    factors[4:] += 0.03
    paths = []
    for number, factor in enumerate(factors):
        lengths = [{name: int(factor * length) for name, length in one.items()} for one in steps(6, number)]
        paths.append(write(tmp_path / f"{number}.json", lengths))
    loaded = [profiles.load(path) for path in paths]
    sources = [profile.source() for profile in loaded]
    conditions = [parse("op:mm>1%")]
    assert verdict.compare(sources[3:4], sources[4:5], conditions).status in (FAIL, PASS)  # what two runs say
    result = verdict.compare(sources[:4], sources[4:], conditions)
    assert (result.unit, result.samples) == ("run", (4, 4))
    assert result.status != FAIL
    pooled = verdict.compare(sources[:2], sources[2:4], conditions)  # too few runs for a test
    assert (pooled.unit, pooled.samples) == ("iteration", (12, 12))


def test_the_same_input_has_the_same_verdict(files):
    first, second = (
        outputs.data(gate(files, "base", "slower", "step_time>1%", "op:*>1%", "kernel:*>1%")) for _ in range(2)
    )
    assert first == second


# --- the test itself


def test_two_sets_need_forty_divisions():
    assert [enough(*sizes) for sizes in ((4, 4), (3, 4), (2, 8), (1, 99), (0, 9))] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_p_is_the_share_of_divisions_that_look_as_much_like_a_regression():
    """4 and 4 distinct values, the larger ones in the other: one of 70 divisions; the other way round all are."""
    base, other = np.arange(1.0, 5)[:, None], np.arange(11.0, 15)[:, None]
    none = np.zeros(1)
    assert differences(base, other, none, none).p[0] == pytest.approx(1 / 70)
    assert differences(other, base, none, none).p[0] == 1
    together = differences(np.hstack([base, other]), np.hstack([other, base]), np.zeros(2), np.zeros(2))
    assert together.p.tolist() == pytest.approx([2 / 70, 1])  # two figures: as likely to be the largest


def test_equal_values_never_differ():
    same = np.ones((5, 2))
    result = differences(same, same, np.zeros(2), np.zeros(2))
    assert (result.p == 1).all()
    larger = differences(same, same + 1, np.zeros(2), np.zeros(2))
    assert (larger.p <= ALPHA).all()
    assert (larger.margin < 1).all()


@pytest.mark.parametrize("tries", [40, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("n", [4, 6, 12])
def test_the_test_holds_for_few_values_of_any_distribution(n, tries):
    """Lognormal values, of which a quarter would pass for outliers; no limit hides a false alarm."""
    rng = np.random.default_rng(n)
    alarms = 0
    for _ in range(tries):
        rows = np.exp(rng.standard_normal((2 * n, 8)))
        result = differences(rows[:n], rows[n:], np.zeros(8), np.full(8, 0.01))
        alarms += bool((result.p <= ALPHA).any())
    assert alarms <= ALPHA * tries + 2.6 * (ALPHA * tries) ** 0.5  # 99.5 % of draws from the chance of 2.5 %


def test_a_slow_iteration_decides_nothing():
    rng = np.random.default_rng(0)
    base, other = (100 + 0.2 * rng.standard_normal((12, 1)) for _ in range(2))
    other[5] = 10_000
    none, share = np.zeros(1), np.array([0.02])
    assert differences(base, other, none, share).p[0] > 0.1
    slower = differences(base, other + 3, none, share)
    assert slower.p[0] <= ALPHA
    assert slower.other[0] == pytest.approx(103, abs=0.3)
    assert slower.margin[0] < 3


def test_an_increase_is_significant_exactly_if_it_exceeds_the_margin():
    """Also where the other run is so much slower that its iterations are outliers among those of both."""
    rng = np.random.default_rng(1)
    significant = []
    for _ in range(30):
        rows = np.exp(rng.standard_normal((12, 6))) * np.repeat([1.0, rng.choice([1.0, 3.0, 10.0])], 6)[:, None]
        result = differences(rows[:6], rows[6:], np.zeros(6), np.full(6, 0.01))
        assert ((result.other - result.base > result.margin) == (result.p <= ALPHA)).all()
        significant += (result.p <= ALPHA).tolist()
    assert 20 < sum(significant) < len(significant) - 20


def test_iterations_that_are_alike_count_in_blocks():
    rng = np.random.default_rng(0)
    independent, drift = rng.standard_normal(200), [0.0]
    for value in independent[1:]:
        drift.append(0.8 * drift[-1] + value)
    assert block_length(independent) == 1
    assert 5 <= block_length(np.array(drift)) <= 13  # (1 + 0.8) / (1 - 0.8) is 9
    assert block_length(np.arange(10.0)) == 1  # too short to tell


def _tries(spread: float, share: float, tries: int, n: int = 10, figures: int = 8) -> tuple[int, int]:
    """Return the number of false alarms, and of tries in which a slower figure is named."""
    rng = np.random.default_rng(7)
    names = [f"op:{number}" for number in range(figures)]
    conditions = [parse("op:*>1%")]
    alarms = hits = 0
    for number in range(tries):
        sides = [pd.DataFrame(1e6 * (1 + spread * rng.standard_normal((n, figures))), columns=names) for _ in range(2)]
        table = verdict.Table((sides[0], sides[1]), ([0] * n, [0] * n), [{name: name for name in names}], [0], {}, {})
        alarms += verdict.judge(table, conditions).status == FAIL
        column = names[number % figures]
        sides[1][column] *= 1 + share
        failed = [one.name for one in verdict.judge(table, conditions).outcomes[0].comparisons if one.status == FAIL]
        hits += column in failed
    return alarms, hits


@pytest.mark.parametrize("tries", [20, pytest.param(200, marks=pytest.mark.long)])
def test_false_alarms_are_rare_and_planted_regressions_are_named(tries):
    """Noise of 5 % would exceed the limit of 1 % in most tries; of 0.5 % hides no 3 %."""
    alarms, _ = _tries(0.05, 0.03, tries)
    assert alarms <= 0.05 * tries
    alarms, hits = _tries(0.005, 0.03, tries)
    assert alarms <= 0.05 * tries
    assert hits >= 0.95 * tries


@pytest.mark.parametrize("tries", [20, pytest.param(60, marks=pytest.mark.long)])
def test_divisions_of_a_real_recording_alarm_rarely(recorded, tries):
    source = recorded("kineto/resnet50_v100_6steps.pt.trace.json.gz").source()
    conditions = [parse(text) for text in ("step_time>2%", "op:*>1%", "kernel:*>1%")]
    table = verdict.tabulate([source], [source], conditions)
    rows = pd.concat([table.sides[0]] * 2, ignore_index=True)  # of six, each twice: halves of six
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(tries):
        order = rng.permutation(len(rows))
        halves = rows.iloc[order[:6]], rows.iloc[order[6:]]
        alarms += verdict.judge(table._replace(sides=halves), conditions).status == FAIL
    assert alarms <= 0.05 * tries


# --- the command


def test_exit_codes(files, capsys):
    base = files["base"]
    assert run("diff", base, files["same"], "--fail-on", "step_time>2%", "--fail-on", "op:*>1%") == 0
    assert capsys.readouterr().out.startswith("pass: 12 and 12 iterations\npass  step_time>2%\n")
    assert run("diff", base, files["slower"], "--fail-on", "step_time>2%", "--fail-on", "op:*>1%") == 3
    printed = capsys.readouterr()
    assert printed.out.startswith("fail: 12 and 12 iterations\npass  step_time>2%\n")
    assert re.search(
        r"^FAIL  op:\*>1%\n +op:mm fprop  200 us -> 206 us  \+\d\.\d % \(noise \d\.\d %\)$", printed.out, re.M
    )
    assert not printed.err
    assert run("diff", base, files["same"], "--fail-on", "memory>1%") == 0
    assert "memory>1%: cannot tell: memory: not recorded" in capsys.readouterr().err
    assert run("diff", base, files["same"], "--fail-on", "memory>1%", "--strict") == 3


def test_options_that_do_not_go_together_are_one_sentence(files, tmp_path, capsys):
    both = ["diff", files["base"], files["same"]]
    for words, sentence in (
        (["--junit", tmp_path / "x"], "--junit is for a verdict; add --fail-on CONDITION."),
        (["--strict"], "--strict is for a verdict"),
        (["--other-run", "x"], "--other-run is for a verdict"),
        (["--fail-on", "busy>1%", "--by", "kernel"], "--by is for the table"),
        (["--fail-on", "busy>1%", "-o", tmp_path / "x"], "--output is for the table"),
        (["--fail-on", "busy>1%", "--junit", files["base"]], "is an input and would be replaced"),
        (["--fail-on", "busy>1%", "--summary", tmp_path], "use --force"),
    ):
        assert run(*both, *words) == 2, words
        assert sentence in capsys.readouterr().err
    assert run(*both, "--fail-on", "busy>1%", "--verdict", tmp_path / "no" / "v.json") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_files_of_the_verdict(files, tmp_path, capsys):
    names = {name: tmp_path / name for name in ("verdict", "summary", "junit")}
    words = ["diff", files["base"], files["slower"], "--fail-on", "op:*>1%", "--fail-on", "memory>1%", "--fail-on",
             "busy>9%", *(f"--{name}={path}" for name, path in names.items())]  # fmt: skip
    assert run(*words) == 3
    first = {name: path.read_bytes() for name, path in names.items()}
    value = json.loads(first["verdict"])
    assert value["verdict"] == "fail"
    assert [one["status"] for one in value["conditions"]] == ["fail", "cannot tell", "pass"]
    worst = value["conditions"][0]["comparisons"][0]
    assert (worst["name"], worst["status"]) == ("op:mm fprop", "fail")
    assert worst["change"] == pytest.approx(worst["other"] / worst["base"] - 1)
    assert value["samples"] == {"base": 12, "other": 12}
    assert "### PyProf: fail" in first["summary"].decode()
    assert "| FAIL | op:&#42;&#62;1% | op:mm fprop | 200 us | 206 us | +" in first["summary"].decode()
    check_junit(first["junit"], [("op:*>1%", "failure"), ("memory>1%", "skipped"), ("busy>9%", "system-out")])
    capsys.readouterr()
    assert run(*words) == 2  # they exist
    assert "use --force" in capsys.readouterr().err
    assert run(*words, "--force") == 3
    assert {name: path.read_bytes() for name, path in names.items()} == first


def check_junit(content: bytes, expected: list[tuple[str, str]]) -> None:
    """Check what the schema of Jenkins and GitHub's readers expect: names, counts that add up, known children."""
    root = ElementTree.fromstring(content)
    assert root.tag == "testsuites"
    (suite,) = root
    cases = list(suite)
    assert {case.tag for case in cases} == {"testcase"}
    assert [(case.get("name"), case[0].tag if len(case) else "") for case in cases] == expected
    assert all(case.get("classname") and float(case.get("time", "")) >= 0 for case in cases)
    for element in (root, suite):
        count = {name: int(element.get(name, "")) for name in ("tests", "failures", "errors", "skipped")}
        tags = [tag for _, tag in expected]
        assert count == {"tests": len(cases), "failures": tags.count("failure"), "errors": 0,
                         "skipped": tags.count("skipped")}  # fmt: skip
    for case in cases:
        for child in case:
            assert child.tag == "system-out" or child.get("message")


def test_names_of_a_recording_have_no_effect_on_a_terminal_a_page_or_xml(files, tmp_path, capsys):
    paths = {name: tmp_path / name for name in ("verdict", "summary", "junit")}
    words = [f"--{name}={path}" for name, path in paths.items()]
    conditions = ["--fail-on", "op:*>1%", "--fail-on", "kernel:*>1%", "--fail-on", "op:]]><x a='>1%"]
    assert run("diff", files["evil"], files["worse evil"], *conditions, *words) == 3
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "op:a|<b>`*_x\\x1b[31m" in printed.out
    summary = paths["summary"].read_text()
    assert not re.search(r"[<>`*\x1b]", summary)
    assert "op:a&#124;&#60;b&#62;&#96;&#42;&#95;x&#92;x1b&#91;31m" in summary
    rows = [line for line in summary.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {9}
    root = ElementTree.fromstring(paths["junit"].read_text())
    messages = [one.get("message") for one in root.iter("failure")]
    assert any("evil|&\"'k" in message for message in messages)
    assert json.loads(paths["verdict"].read_text())["conditions"][0]["comparisons"][0]["name"] == f"op:{EVIL[6:]} fprop"


def test_several_runs_of_a_side_on_the_command_line(files, capsys):
    words = ["--fail-on", "op:mm>1%", "--base-run", files["same"], "--other-run", files["slower"]]
    assert run("diff", files["base"], files["slower"], *words) == 3
    assert capsys.readouterr().out.startswith("fail: 24 and 24 iterations\n")

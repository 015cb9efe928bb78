# SPDX-License-Identifier: Apache-2.0
"""Trainers with PyProf's callbacks: the training is the same, steps have the trainer's numbers, errors stay theirs."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pyprof
from pyprof.core.errors import CaptureError, MissingPackage, UsageError
from pyprof.integrations.transformers import PyProfCallback as TransformersCallback
from tests.forks import Forks
from tests.waiting import HANG

pytest.importorskip("lightning", reason="trainers: lightning is not installed")
from lightning.pytorch import LightningModule, Trainer

from pyprof.integrations import lightning as ours

Maker = Callable[..., Any]
CALLBACK, PROFILER = "callback", "profiler"
LINE = "self.net(batch)"


class Net(LightningModule):
    """A model with dropout, so that a single number drawn by a callback changes everything. `fail`: an error in a
    batch."""

    def __init__(self, fail: BaseException | None = None, at: int = 3):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
        self.fail, self.at, self.losses = fail, at, []

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        if self.fail is not None and number == self.at:
            raise self.fail
        loss = self.net(batch).square().mean()
        self.losses.append(loss.detach().clone())
        return loss

    def test_step(self, batch: torch.Tensor, number: int) -> None:
        self.net(batch)

    validation_step = test_step

    def predict_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        return self.net(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def loader(count: int = 8) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.randn(2 * count, 8), batch_size=2, shuffle=True)


def lightning_trainer(kind: str | None, path: Path, more: dict[str, Any] | None = None, **options: Any) -> Trainer:
    """A trainer with the callback or the profiler."""
    own: dict[str, Any] = {}
    if kind == CALLBACK:
        own["callbacks"] = [ours.PyProfCallback(str(path), **options)]
    elif kind == PROFILER:
        own["profiler"] = ours.Profiler(str(path), **options)
    return Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **{"max_epochs": 1, **(more or {})}, **own,
    )  # fmt: skip


def fit(kind: str | None, path: Path, more: dict[str, Any] | None = None, **options: Any) -> Net:
    torch.manual_seed(7)
    net, batches = Net(), loader()
    lightning_trainer(kind, path, more, **options).fit(net, batches)
    return net


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    pyprof.shutdown()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.sqlite"


def steps(path: Path) -> list[int]:
    """Numbers of the marked steps of a recording."""
    return pyprof.load(path).trace.steps.number.tolist()


def lines(path: Path) -> set[str]:
    """Texts of the lines to which operators are attributed."""
    out = set()
    for place in pyprof.load(path).ops["caller"].dropna().unique():
        file, _, number = place.rpartition(":")
        out.add(Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1].strip())
    return out


def ranges(path: Path) -> set[str]:
    return set(pyprof.load(path).query("select distinct name from ranges")["name"])


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(torch.equal(a, b) for a, b in zip(one, other))


LIGHTNING = pytest.mark.parametrize("kind", [CALLBACK, PROFILER])


@LIGHTNING
def test_lightning_trains_the_same_and_steps_are_its_own(kind: str, path: Path) -> None:
    plain, profiled = fit(None, path), fit(kind, path, wait=2, warmup=1, active=3)
    assert same(plain.losses, profiled.losses)
    assert same(list(plain.parameters()), list(profiled.parameters()))
    assert steps(path) == [3, 4, 5]
    assert "loss = self.net(batch).square().mean()" in lines(path)
    assert ({"training_step", "backward", "optimizer_step"} <= ranges(path)) == (kind == PROFILER)


class Counting(Net):
    """A loop over the rows of a batch, whose calls all differ."""

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        for row in range(200):
            batch[row % 2, 1 : 2 + row % 7] * (200 * number + row)
        return super().training_step(batch, number)


@pytest.mark.long
def test_twenty_steps_of_lightning_are_a_small_file(path: Path) -> None:
    """Of each call the file has what differs; the stack, some 25 frames of the trainer, it has once."""
    with pyprof.profile(str(path)):
        lightning_trainer(None, path).fit(Counting(), loader(20))
    pyprof.shutdown()
    with contextlib.closing(sqlite3.connect(path)) as file:
        ((texts, stack),) = file.execute(
            "select (select count(*) from StringIds), (select max(length(text)) from PYPROF_CALL_STACK)"
        )
    assert texts * stack > 8_000_000 > path.stat().st_size


@LIGHTNING
def test_batches_of_one_step_of_lightning_are_one_step(kind: str, path: Path) -> None:
    """Four steps of two batches, over two epochs with a validation each; the window is from one into the other."""
    torch.manual_seed(7)
    trainer = lightning_trainer(kind, path, {"max_epochs": 2, "accumulate_grad_batches": 2}, window=(1, 3))
    trainer.fit(Net(), loader(4), loader(2))
    assert steps(path) == [1, 2]
    ops = pyprof.load(path).ops
    linear = ops[(ops["type"] == "linear") & (ops["direction"] == "fprop")]
    assert len(linear) == 2 * (2 + 2 + 2)  # layers, batches of the steps and of the validation between them


@LIGHTNING
def test_a_training_of_lightning_that_goes_on_has_its_own_numbers(kind: str, path: Path) -> None:
    net = Net()
    first = lightning_trainer(None, path, {"max_steps": 5, "max_epochs": -1})
    first.fit(net, loader(8))
    first.save_checkpoint(path.with_suffix(".ckpt"))
    trainer = lightning_trainer(kind, path, {"max_steps": 9, "max_epochs": -1}, window=(4, 7))
    trainer.fit(net, loader(8), ckpt_path=path.with_suffix(".ckpt"))
    assert steps(path) == [5, 6]


@LIGHTNING
@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_batches_are_steps_where_lightning_does_not_train(kind: str, stage: str, path: Path) -> None:
    trainer = lightning_trainer(kind, path, wait=1, warmup=0, active=2)
    getattr(trainer, stage)(Net(), loader(5), **({} if stage == "predict" else {"verbose": False}))
    assert steps(path) == [1, 2]


@LIGHTNING
@pytest.mark.parametrize("error", [ValueError("bad batch"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_an_error_in_lightning_stays_the_same_and_the_file_is_whole(
    kind: str, error: BaseException, path: Path
) -> None:
    """Lightning turns an interrupt into an exit, with the callback as without it."""
    raised = []
    for one in (None, kind):
        with pytest.raises((ValueError, SystemExit)) as caught:
            lightning_trainer(one, path, wait=1, warmup=0, active=100).fit(Net(error), loader())
        raised.append((type(caught.value), caught.value.args))
    assert raised[0] == raised[1]
    assert steps(path) == [1, 2]
    with pyprof.profile(str(path.with_name("next.sqlite"))):  # no window is left open
        torch.ones(3).exp()


@LIGHTNING
def test_an_error_that_is_being_handled_ends_nothing(kind: str, path: Path) -> None:
    """A training that begins in an except clause, over several epochs."""
    try:
        raise OSError("the first try")
    except OSError:
        fit(kind, path, {"max_epochs": 3}, window=(5, 20))
    assert steps(path) == [*range(5, 20)]


def huggingface(path: Path | None = None, folder: Path | None = None, **options: Any) -> Any:
    """Train a GPT-2 of random numbers with the callback, if there is a path; return its losses and parameters.
    `more`: of the trainer; `resume`: a checkpoint; `callbacks`: others; `fail`: an error of the model in batch 3."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    more, resume, fail = (options.pop(name, None) for name in ("more", "resume", "fail"))
    callbacks = options.pop("callbacks", [])

    class Model(GPT2LMHeadModel):
        batches = 0

        def forward(self, input_ids: Any, labels: Any = None) -> Any:
            self.batches += 1
            if fail is not None and self.batches == 4:
                raise fail
            return super().forward(input_ids=input_ids, labels=labels)

    torch.manual_seed(7)
    model = Model(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16))
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (32, 8))]
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=2, report_to="none", use_cpu=True, logging_steps=1,
        disable_tqdm=True, seed=7, **{"max_steps": 8, "save_strategy": "no", **(more or {})},
    )  # fmt: skip
    if path is not None:
        callbacks = [*callbacks, TransformersCallback(str(path), **options)]
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    losses = [torch.tensor(row["loss"]) for row in trainer.state.log_history if "loss" in row]
    return losses, list(model.parameters())


def test_transformers_trains_the_same_and_steps_are_its_own(path: Path, tmp_path: Path) -> None:
    (losses, parameters) = huggingface(folder=tmp_path / "out")
    own_losses, own_parameters = huggingface(path, tmp_path / "out", wait=2, warmup=1, active=3)
    assert same(losses, own_losses)
    assert same(parameters, own_parameters)
    assert steps(path) == [3, 4, 5]
    assert "return super().forward(input_ids=input_ids, labels=labels)" in lines(path)


def test_a_training_of_transformers_that_goes_on_has_its_own_numbers(path: Path, tmp_path: Path) -> None:
    """Steps of two batches; the checkpoint has made 4 of them."""
    out, more = (
        tmp_path / "out",
        {"gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 4},
    )
    huggingface(folder=out, more={**more, "max_steps": 4})
    resume = str(out / "checkpoint-4")
    huggingface(path, out, more={**more, "max_steps": 8}, resume=resume, window=(3, 6))
    assert steps(path) == [4, 5]
    ops = pyprof.load(path).ops
    assert ((ops["type"] == "embedding") & (ops["direction"] == "fprop")).sum() == 2 * 2 * 2  # of tokens and places


@pytest.mark.parametrize("error", [ValueError("bad batch"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_an_error_in_transformers_stays_the_same_and_the_file_is_whole(
    error: BaseException, path: Path, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as caught, TransformersCallback(str(path), wait=0, warmup=0) as callback:
        huggingface(folder=tmp_path / "out", callbacks=[callback], fail=error)
    assert caught.value is error
    assert steps(path) == [0, 1, 2]


def test_the_next_training_of_transformers_ends_the_window_of_one_that_failed(path: Path, tmp_path: Path) -> None:
    callback = TransformersCallback(str(path), wait=0, warmup=0, active=4)
    with pytest.raises(ValueError, match="bad batch"):
        huggingface(folder=tmp_path / "out", callbacks=[callback], fail=ValueError("bad batch"))
    assert not path.exists()
    huggingface(folder=tmp_path / "out", callbacks=[callback])
    assert steps(path) == [0, 1, 2, 3]
    assert steps(path.with_name("net.1.sqlite")) == [0, 1, 2]


@pytest.mark.long
def test_a_cell_that_trains_again_with_a_new_callback_keeps_what_the_interrupted_one_recorded(
    path: Path, tmp_path: Path
) -> None:
    for fail, error in ((KeyboardInterrupt(), KeyboardInterrupt), (None, None)):
        callback = TransformersCallback(str(path), wait=0, warmup=0, active=4)
        with pytest.raises(error) if error else contextlib.nullcontext():
            huggingface(folder=tmp_path / "out", callbacks=[callback], fail=fail)
    assert steps(path) == [0, 1, 2, 3]
    assert steps(path.with_name("net.1.sqlite")) == [0, 1, 2]


def test_two_callbacks_of_one_training_are_refused(path: Path, tmp_path: Path) -> None:
    callbacks = [TransformersCallback(str(path), wait=0) for _ in range(2)]
    with pytest.raises(CaptureError, match="already recording"), callbacks[0]:
        huggingface(folder=tmp_path / "out", callbacks=callbacks)


def test_a_loop_of_accelerate_is_decorated(path: Path) -> None:
    """Its optimizer steps every second time, which must not count as another step."""
    from accelerate import Accelerator

    def train(decorate: Callable[[Any], Any]) -> list[torch.Tensor]:
        torch.manual_seed(7)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        net, batches = torch.nn.Linear(8, 2), loader(10)
        net, optimizer, batches = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), batches)

        @decorate
        def train_step(batch: torch.Tensor) -> torch.Tensor:
            with accelerator.accumulate(net):
                loss = net(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()

        assert train_step.__name__ == "train_step"
        return [train_step(batch) for batch in batches]

    plain = train(lambda function: function)
    assert same(plain, train(pyprof.profiled(str(path), wait=1, warmup=1, active=2, repeat=2, ranks=[0])))
    assert steps(path) == [2, 3]
    assert steps(path.with_name("net.1.sqlite")) == [6, 7]
    assert "loss = net(batch).square().mean()" in lines(path)


def test_a_handler_of_ignite_is_decorated(path: Path) -> None:
    engine = pytest.importorskip("ignite.engine", reason="trainers: ignite is not installed")

    @pyprof.profiled(str(path), window=(2, 4))
    def update(engine: Any, batch: torch.Tensor) -> float:
        return batch.exp().sum().item()

    state = engine.Engine(update).run(list(torch.randn(6, 3)), max_epochs=2)
    assert state.iteration == 12
    assert steps(path) == [2, 3]
    assert "return batch.exp().sum().item()" in lines(path)


def test_a_whole_loop_is_decorated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)

    @pyprof.profiled(str(path), loop=True, wait=1, active=2)
    def train(count: int) -> int:
        for _ in range(count):
            torch.ones(3).exp()
            pyprof.step()
        return count

    assert train(5) == 5
    assert steps(path) == [1, 2]


@pytest.mark.parametrize("error", [ValueError("bad batch"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_an_error_in_a_decorated_function_is_its_own(error: BaseException, path: Path) -> None:
    @pyprof.profiled(str(path), wait=0, warmup=0, active=9)
    def step(number: int) -> None:
        torch.ones(3).exp()
        if number == 2:
            raise error

    step(0)
    step(1)
    with pytest.raises(type(error)) as caught:
        step(2)
    step(3)
    assert caught.value is error
    assert steps(path) == [0, 1]


def test_a_bare_decorator_has_the_default_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @pyprof.profiled
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    for _ in range(7):
        step(torch.ones(3))
    assert steps(tmp_path / "net.sqlite") == [2, 3, 4]


def test_steps_of_the_command_line_are_those_of_the_function(path: Path, compiler_forks: Forks) -> None:
    """`pyprof run --steps` selects the window; the optimizer, which steps twice in each call, does not count."""
    script = path.with_name("train.py")
    script.write_text(
        "import pyprof, torch\nw = torch.ones(3, requires_grad=True)\noptimizer = torch.optim.SGD([w])\n"
        "@pyprof.profiled('other.sqlite')\ndef step():\n"
        "    for _ in range(2):\n        w.exp().sum().backward()\n        optimizer.step()\n"
        "for _ in range(6):\n    step()\n"
    )
    code, program = compiler_forks.run(path.parent, script, "run", "--steps", "2:4", "-o", str(path))
    assert code == 0, program.stderr
    assert "the command line selects the recorded window" in program.stderr
    assert steps(path) == [2, 3]
    assert (pyprof.load(path).ops["type"] == "exp").sum() == 2 * 2 * 2  # steps, times, forward and backward
    assert not path.with_name("other.sqlite").exists()


@pytest.mark.parametrize(("ranks", "name"), [(None, "net.rank1.sqlite"), ([1], "net.rank1.sqlite"), ([0], None)])
def test_each_rank_has_its_file_or_those_that_are_named(
    ranks: list[int] | None, name: str | None, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    @pyprof.profiled(str(path), wait=0, warmup=0, active=1, ranks=ranks)
    def step() -> None:
        torch.ones(3).exp()

    step()
    assert [file.name for file in path.parent.iterdir()] == ([name] if name else [])


def test_a_window_that_is_over_is_reported_once(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    callback = TransformersCallback(str(path), window=(2, 4))
    callback._loop.begin(4)
    callback._loop.step(4)
    callback._loop.end()
    assert "nothing is recorded: the loop begins with step 4, after the window (2, 4)." in capfd.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window": (4, 4)}, r"window=\(4, 4\): expected the first step and the one after the last"),
        ({"window": (1, 3), "active": 2}, "window and active: name one of them"),
        ({"window": "1:3"}, "window=1:3: expected"),
        ({"wait": -1}, "wait, warmup and active are numbers of steps"),
        ({"memmory": True}, "memmory is not an option of a recording"),
    ],
)
def test_wrong_options_are_named_before_the_training(options: dict[str, Any], sentence: str) -> None:
    for create in (ours.PyProfCallback, ours.Profiler, TransformersCallback, pyprof.profiled):
        with pytest.raises(UsageError, match=sentence):
            create("net.sqlite", **options)(lambda: None)


def test_functions_that_return_too_early_are_refused() -> None:
    def rows() -> Iterator[int]:
        yield 1

    with pytest.raises(UsageError, match="rows is a generator or a coroutine"):
        pyprof.profiled("net.sqlite")(rows)
    with pytest.raises(UsageError, match="window is for calls that are steps"):
        pyprof.profiled("net.sqlite", loop=True, window=(1, 2))


@pytest.mark.parametrize("package", ["lightning", "transformers"])
def test_a_missing_package_is_one_sentence(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"pyprof.integrations.{package}"
    for name in [name for name in sys.modules if name.partition(".")[0] in (package, "pytorch_lightning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, module)

    class Nothing:
        def find_spec(self, name: str, *more: object) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Nothing(), *sys.meta_path])
    with pytest.raises(MissingPackage) as caught:
        importlib.import_module(module)
    assert isinstance(caught.value, ImportError)
    assert str(caught.value) == (
        f"{module} needs {package}: pip install '.[{package}]' in a clone of PyProf's repository installs it."
    )


@pytest.mark.parametrize("package", ["transformers", "lightning"])
def test_a_trainer_without_torch_is_one_sentence(package: str) -> None:
    """transformers installs without torch, and so may a stub of a trainer."""
    script = f"""if True:
        import sys, types
        for name in ("transformers", "lightning", "lightning.pytorch"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["transformers"].TrainerCallback = object
        sys.modules["lightning.pytorch"].Callback = object
        sys.modules["lightning.pytorch"].profilers = types.SimpleNamespace(Profiler=object)
        class Nothing:
            def find_spec(self, name, *more):
                if name == "torch":
                    raise ModuleNotFoundError("No module named 'torch'", name="torch")
        sys.meta_path.insert(0, Nothing())
        from pyprof.core.errors import PyProfError
        try:
            import pyprof.integrations.{package}
        except PyProfError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG)
    assert done.stdout == (
        f"pyprof.integrations.{package} needs torch: pip install '.[{package}]' in a clone of PyProf's repository "
        "installs it.\n"
    ), done.stderr

# SPDX-License-Identifier: Apache-2.0
"""Loops as people write them, and the steps of each: one per turn.

Each is a function that makes what the loop needs and returns the loop, so that a recording can have both or the loop
alone. The number beside it is that of its turns, counted by hand; 0 is a program without steps. `blind`: the number in
a trace without shapes and modules, where a turn that differs from the others cannot be told from another program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, TensorDataset

Loop = Callable[[], Any]


class Case(NamedTuple):
    """A loop and its turns."""

    steps: int
    make: Callable[[], Loop]
    blind: int


LOOPS: dict[str, Case] = {}


def loop(steps: int, blind: int | None = None) -> Callable[[Callable[[], Loop]], Callable[[], Loop]]:
    def add(make: Callable[[], Loop]) -> Callable[[], Loop]:
        LOOPS[make.__name__] = Case(steps, make, steps if blind is None else blind)
        return make

    return add


def mlp(width: int = 32, out: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))


def batches(count: int, size: int = 8, width: int = 32) -> DataLoader[Any]:
    data = TensorDataset(torch.randn(count * size, width), torch.randint(0, 4, (count * size,)))
    return DataLoader(data, batch_size=size)


@loop(6)
def plain() -> Loop:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()

    return run


@loop(6)
def logging_now_and_then() -> Loop:
    net = mlp()
    optimizer = torch.optim.AdamW(net.parameters())

    def run() -> None:
        for i in range(6):
            loss = net(torch.randn(8, 32)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if i % 2 == 0:
                loss.item()

    return run


@loop(5)
def loader() -> Loop:
    net, data = mlp(), batches(5)
    optimizer = torch.optim.Adam(net.parameters())

    def run() -> None:
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

    return run


@loop(8)
def two_epochs_with_validation() -> Loop:
    net, data, held_out = mlp(), batches(4), batches(2)
    optimizer = torch.optim.Adam(net.parameters())

    def run() -> None:
        for _ in range(2):
            for x, y in data:
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                for x, y in held_out:
                    nn.functional.cross_entropy(net(x), y).item()

    return run


@loop(6)
def closure() -> Loop:
    net = mlp()
    optimizer = torch.optim.Adam(net.parameters())

    def run() -> None:
        for _ in range(6):
            x = torch.randn(8, 32)

            def evaluate(x: Tensor = x) -> Tensor:
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()  # type: ignore[no-untyped-call]
                return loss

            optimizer.step(evaluate)  # type: ignore[arg-type]

    return run


@loop(4)
def lbfgs() -> Loop:
    net = mlp()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
    x = torch.randn(8, 32)

    def run() -> None:
        def evaluate() -> Tensor:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(4):
            optimizer.step(evaluate)  # type: ignore[arg-type]

    return run


@loop(4)
def accumulation() -> Loop:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        for i in range(12):
            net(torch.randn(8, 32)).square().mean().backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    return run


@loop(4)
def accumulation_with_loader() -> Loop:
    net, data = mlp(), batches(12)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        for i, (x, y) in enumerate(data):
            nn.functional.cross_entropy(net(x), y).backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    return run


def _gan(cls: Any, data: Any) -> Loop:
    generator, critic = mlp(16, 32), mlp(32, 1)
    first, second = cls(critic.parameters(), lr=0.01), cls(generator.parameters(), lr=0.01)
    loss = nn.functional.binary_cross_entropy_with_logits

    def run() -> None:
        for real, *_ in data:
            first.zero_grad()
            fake = generator(torch.randn(8, 16))
            one, zero = torch.ones(8, 1), torch.zeros(8, 1)
            (loss(critic(real), one) + loss(critic(fake.detach()), zero)).backward()
            first.step()
            second.zero_grad()
            loss(critic(fake), one).backward()
            second.step()

    return run


@loop(6)
def gan() -> Loop:
    return _gan(torch.optim.Adam, [[torch.randn(8, 32)] for _ in range(6)])


@loop(6)
def gan_with_loader() -> Loop:
    return _gan(torch.optim.SGD, batches(6))


@loop(6)
def two_optimizers_at_the_end() -> Loop:
    net = mlp()
    hidden = torch.optim.SGD(net[0].parameters(), lr=0.1)
    head = torch.optim.AdamW(net[2].parameters())

    def run() -> None:
        for _ in range(6):
            net(torch.randn(8, 32)).square().mean().backward()
            for optimizer in (hidden, head):
                optimizer.step()
                optimizer.zero_grad()

    return run


@loop(5)
def optimizer_in_backward() -> Loop:
    net = mlp()
    for parameter in net.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)

        def update(_: Tensor, optimizer: Any = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(update)

    def run() -> None:
        for _ in range(5):
            net(torch.randn(8, 32)).square().mean().backward()

    return run


@loop(6)
def scaler_skips_updates() -> Loop:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def run() -> None:
        for i in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = net(torch.randn(8, 32)).float().square().mean()
            scaler.scale(loss * (float("inf") if i in (1, 3) else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()

    return run


@loop(5)
def scheduler_and_clipping() -> Loop:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def run() -> None:
        for _ in range(5):
            net(torch.randn(8, 32)).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    return run


@loop(5)
def record_function_only() -> Loop:
    net = mlp()

    def run() -> None:
        with torch.no_grad():
            for _ in range(5):
                with record_function("request"):
                    net(torch.randn(8, 32)).argmax().item()

    return run


@loop(5)
def ranges_of_phases() -> Loop:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(5):
            with record_function("outer"):
                with record_function("load"):
                    x = torch.randn(8, 32)
                with record_function("fwd"):
                    loss = net(x).square().mean()
                with record_function("bwd"):
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    return run


@loop(6)
def inference() -> Loop:
    net, x = mlp(), torch.randn(8, 32)

    def run() -> None:
        with torch.no_grad():
            for _ in range(6):
                net(x)

    return run


@loop(5)
def inference_with_loader() -> Loop:
    net, data = mlp(), batches(5)

    def run() -> None:
        with torch.inference_mode():
            for x, _ in data:
                net(x).argmax(1)

    return run


@loop(6)
def convolutions() -> Loop:
    net, x = cnn(), torch.randn(2, 3, 16, 16)

    def run() -> None:
        with torch.no_grad():
            for _ in range(6):
                net(x)

    return run


def cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for i, width in enumerate((8, 8, 16, 16, 32, 32)):
        layers += [nn.Conv2d((3, 8, 8, 16, 16, 32)[i], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Language(nn.Module):
    """A small language model of equal layers."""

    def __init__(self, layers: int = 6):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0) for _ in range(layers)
        )
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # type: ignore[no-any-return]


@loop(0)
def one_forward_of_convolutions() -> Loop:
    net, x = cnn(), torch.randn(2, 3, 16, 16)
    return lambda: net(x)


@loop(0)
def one_forward_of_equal_layers() -> Loop:
    net, x = Language(), torch.randint(0, 50, (2, 16))
    return lambda: net(x)


@loop(0)
def one_forward_of_equal_layers_in_inference() -> Loop:
    net, x = Language(), torch.randint(0, 50, (2, 16))

    def run() -> None:
        with torch.no_grad():
            net(x)

    return run


@loop(0)
def one_forward_and_backward() -> Loop:
    net, x = Language(), torch.randint(0, 50, (2, 16))
    return lambda: net(x).square().mean().backward()


@loop(0)
def layers_with_ranges() -> Loop:
    net, x = Language(), torch.randint(0, 50, (2, 16))

    def run() -> None:
        y = net.embed(x)
        for layer in net.layers:
            with record_function("layer"):
                y = layer(y)
        net.head(y)

    return run


@loop(0)
def recurrent_cells() -> Loop:
    cell, head, x = nn.LSTMCell(16, 32), nn.Linear(32, 4), torch.randn(20, 8, 16)

    def run() -> None:
        state = None
        for t in range(20):
            state = cell(x[t], state)
        head(state[0])  # type: ignore[index]

    return run


@loop(5)
def forward_and_backward_without_optimizer() -> Loop:
    net = Language()

    def run() -> None:
        for _ in range(5):
            net(torch.randint(0, 50, (2, 16))).square().mean().backward()

    return run


@loop(4)
def passes_of_equal_layers() -> Loop:
    net, x = Language(), torch.randint(0, 50, (2, 16))

    def run() -> None:
        with torch.no_grad():
            for _ in range(4):
                net(x)

    return run


@loop(8)
def tokens() -> Loop:
    net = Language(3)

    def run() -> None:
        ids = torch.randint(0, 50, (1, 4))
        with torch.no_grad():
            for _ in range(8):
                ids = torch.cat([ids, net(ids)[:, -1:].argmax(-1)], 1)

    return run


@loop(5)
def distributed() -> Loop:
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    net = nn.parallel.DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()

    return run


@loop(5)
def accelerated() -> Loop:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = mlp()
    net, optimizer, data = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), batches(5))

    def run() -> None:
        for x, y in data:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(net(x), y))
            optimizer.step()

    return run


@loop(3)
def accelerated_accumulation() -> Loop:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = mlp()
    net, optimizer, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), batches(6))

    def run() -> None:
        for x, y in data:
            with accelerator.accumulate(net):
                accelerator.backward(nn.functional.cross_entropy(net(x), y))
                optimizer.step()
                optimizer.zero_grad()

    return run


@loop(6)
def ignite() -> Loop:
    from ignite.engine import create_supervised_trainer

    net, data = mlp(), batches(6)
    trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), nn.functional.cross_entropy)
    return lambda: trainer.run(data, max_epochs=1)


@loop(6)
def lightning_without_its_callback() -> Loop:
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def training_step(self, batch: Any, _: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    model, data = Model(), batches(6)
    return lambda: trainer.fit(model, data)


@loop(8, blind=0)
def generation() -> Loop:
    """The prompt's pass and one for each further token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    net, prompt = LlamaForCausalLM(config).eval(), torch.randint(1, 64, (1, 5))
    return lambda: net.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)


@loop(5)
def compiled() -> Loop:
    net = mlp()
    step = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            step(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()

    return run

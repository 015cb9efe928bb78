# SPDX-License-Identifier: Apache-2.0
"""Small programs with models of well-known libraries. Each trains or infers with random weights, and prints a hash of
all that it computed and of the generators' states at the end.

`HEAD` and `TAIL` go around each; in between `steps(n)` counts the steps of the program's loop, `keep(...)` takes what
it computed.
"""

from __future__ import annotations

HEAD = """
import contextlib, hashlib, os, random, sys
import numpy, torch
mode = os.environ.get("MODE", "")
if mode:
    import pyprof
if mode == "registered": pyprof.init(nvtx="registered")
if mode == "flight": flight = pyprof.flight(slow=1e9)
torch.manual_seed(0), numpy.random.seed(0), random.seed(0)
kept = hashlib.sha256()
def keep(*values):
    for value in values:
        if isinstance(value, torch.Tensor):
            plain = value.detach().to_dense() if value.is_sparse else value.detach()
            kept.update(str((plain.dtype, tuple(plain.shape))).encode())
            kept.update(plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
        elif isinstance(value, (list, tuple)): keep(*value)
        elif isinstance(value, dict): keep(*value.values())
        elif isinstance(value, torch.nn.Module):
            keep(*value.state_dict().values(), *(p.grad for p in value.parameters() if p.grad is not None))
        else: kept.update(repr(value).encode())
def steps(n):
    profile = pyprof.profile("net.sqlite", wait=1, warmup=1, active=2) if mode == "profile" else None
    with profile or contextlib.nullcontext():
        for step in range(n):
            yield step
            if profile: profile.step()
def train(model, loss_of, n=4, lr=1e-3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in steps(n):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keep(loss)
    keep(model)
"""
TAIL = """
if mode == "flight": flight.dump()
if mode: pyprof.shutdown()
python, generator = random.getstate(), numpy.random.get_state()
keep(torch.get_rng_state(), repr(python), repr(generator[:1]), generator[1].tolist())
print(kept.hexdigest())
"""

PROGRAMS = {
    "transformers: GPT-2 trains and samples": """
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64,
                                   bos_token_id=0, eos_token_id=1, pad_token_id=2))
ids = torch.randint(3, 100, (2, 16))
train(model, lambda step: model(input_ids=ids, labels=ids).loss)
model.eval()
keep(model.generate(ids[:, :4], max_new_tokens=8, do_sample=True))
""",
    "transformers: Llama, autocast, checkpoints": """
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=100,
                                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))
model.gradient_checkpointing_enable()
model.train()
ids = torch.randint(0, 100, (2, 16))
def loss(step):
    with torch.autocast("cpu", torch.bfloat16):
        return model(input_ids=ids, labels=ids).loss
train(model, loss)
""",
    "transformers: BERT and LoRA of peft": """
from transformers import BertConfig, BertForSequenceClassification
from peft import LoraConfig, get_peft_model
model = BertForSequenceClassification(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                                 intermediate_size=64, vocab_size=100))
model = get_peft_model(model, LoraConfig(r=4, target_modules=["query", "value"]))
ids, labels = torch.randint(0, 100, (4, 12)), torch.tensor([0, 1, 0, 1])
train(model, lambda step: model(input_ids=ids, labels=labels).loss)
""",
    "timm: EfficientNet and a ViT": """
import timm
x = torch.randn(2, 3, 64, 64)
for name, more in (("efficientnet_b0", {}), ("vit_tiny_patch16_224", {"img_size": 64})):
    model = timm.create_model(name, num_classes=10, **more)
    train(model, lambda step: model(x).square().mean())
""",
    "torchvision: Faster R-CNN": """
import torchvision
model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None,
                                                                           num_classes=5)
images = [torch.rand(3, 96, 96) for _ in range(2)]
targets = [{"boxes": torch.tensor([[4.0, 4.0, 50.0, 60.0]]), "labels": torch.tensor([1])} for _ in images]
train(model, lambda step: sum(model(images, targets).values()))
model.eval()
keep([list(one.values()) for one in model(images)])
""",
    "diffusers: a U-Net and its pipeline": """
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
net = UNet2DModel(sample_size=16, block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1,
                  down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
x = torch.randn(2, 3, 16, 16)
train(net, lambda step: net(x, torch.tensor([1, 5])).sample.square().mean())
pipeline = DDPMPipeline(net, DDPMScheduler(num_train_timesteps=10))
pipeline.set_progress_bar_config(disable=True)
keep(torch.from_numpy(numpy.ascontiguousarray(
    pipeline(batch_size=1, num_inference_steps=3, output_type="np").images)))
""",
    "torch_geometric: GAT": """
from torch_geometric.nn import GATConv
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GATConv(8, 4, heads=2), GATConv(8, 3)
    def forward(self, x, edges): return self.two(self.one(x, edges).relu(), edges)
model, x, edges = Net(), torch.randn(20, 8), torch.randint(0, 20, (2, 60))
train(model, lambda step: model(x, edges).square().mean())
""",
    "open_clip and x-transformers": """
import open_clip
from x_transformers import Decoder, TransformerWrapper
model = open_clip.model.CLIP(16, open_clip.model.CLIPVisionCfg(layers=1, width=32, head_width=16, patch_size=16,
                             image_size=32), open_clip.model.CLIPTextCfg(context_length=8, vocab_size=50, width=32,
                             heads=2, layers=1))
images, texts = torch.randn(3, 3, 32, 32), torch.randint(0, 50, (3, 8))
def loss(step):
    image, text, scale = model(images, texts)[:3]
    return torch.nn.functional.cross_entropy(scale * image @ text.T, torch.arange(3))
train(model, loss)
model = TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=Decoder(dim=32, depth=2, heads=2))
train(model, lambda step: model(texts).square().mean())
""",
    "torchao: int8 weights": """
from torchao.quantization import Int8WeightOnlyConfig, quantize_
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
quantize_(model, Int8WeightOnlyConfig())
x = torch.randn(4, 64)
for step in steps(4):
    with torch.no_grad(): keep(model(x))
""",
    "torchrec: embeddings of a recommender": """
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.models.dlrm import DLRM
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
tables = [EmbeddingBagConfig(name=n, embedding_dim=8, num_embeddings=50, feature_names=[n]) for n in ("a", "b")]
model = DLRM(EmbeddingBagCollection(tables=tables, device=torch.device("cpu")), dense_in_features=4,
             dense_arch_layer_sizes=[16, 8], over_arch_layer_sizes=[16, 1])
sparse = KeyedJaggedTensor.from_lengths_sync(keys=["a", "b"], values=torch.randint(0, 50, (9,)),
                                             lengths=torch.tensor([2, 1, 0, 3, 1, 2]))
dense = torch.randn(3, 4)
train(model, lambda step: model(dense, sparse).sigmoid().mean())
""",
    "torchtitan: Llama 3": """
from torchtitan.models.llama3.model.args import TransformerModelArgs
from torchtitan.models.llama3.model.model import Transformer
model = Transformer(TransformerModelArgs(dim=32, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=100, max_seq_len=32))
with torch.no_grad(): model.init_weights()
ids = torch.randint(0, 100, (2, 16))
train(model, lambda step: torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()))
""",
    "ultralytics: YOLO": """
from types import SimpleNamespace
from ultralytics.nn.tasks import DetectionModel
model = DetectionModel("yolov8n.yaml", nc=3, verbose=False)
model.args = SimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
batch = {"img": torch.rand(2, 3, 64, 64), "batch_idx": torch.tensor([0.0, 1.0]), "cls": torch.tensor([[0.0], [2.0]]),
         "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.3, 0.6, 0.2, 0.2]])}
train(model, lambda step: model(batch)[0].sum())
model.eval()
keep([one for one in model(batch["img"]) if isinstance(one, torch.Tensor)])
""",
    "lightning: fit": """
import lightning, logging
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    def training_step(self, batch, index):
        loss = self.net(batch[0]).square().mean()
        keep(loss)
        return loss
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(32, 8))
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, precision="bf16-mixed")
module = Module()
with (pyprof.profile("net.sqlite", wait=1, warmup=1, active=2) if mode == "profile" else contextlib.nullcontext()):
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
keep(module)
""",
    "torch.compile and autograd": """
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
compiled = torch.compile(model, backend="aot_eager")
x = torch.randn(4, 16)
train(model, lambda step: compiled(x[: 2 + step % 2]).square().mean())
""",
}

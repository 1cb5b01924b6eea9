"""Training frameworks as their packages are, with scripts as their users write them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = (
    *("transformers==5.23.0", "accelerate==1.15.0", "lightning==2.6.6", "pytorch-lightning==2.6.6"),
    *(
        "huggingface_hub",
        "tokenizers",
        "safetensors",
        "regex",
        "tqdm",
        "pyyaml",
        "filelock",
        "typer",
    ),
    *("packaging", "requests", "httpx", "httpcore", "anyio", "certifi", "h11", "idna", "sniffio"),
    *("fsspec", "lightning-utilities", "torchmetrics", "psutil", "hf-xet", "shellingham", "click"),
    *("typing_extensions", "httpx2", "httpcore2", "truststore"),
)
"""With what they import; torch is there already."""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(512, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
loader = DataLoader(TensorDataset(x, y), 8, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for epoch in range(4):
    total = 0.0
    for step, (a, b) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(a), b)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        total += accelerator.gather(loss.detach()).mean().item()
"""

TRAINER = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Text(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(256, (384, 32), generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}

torch.manual_seed(0)
config = GPT2Config(vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=2)
args = TrainingArguments(
    "out", num_train_epochs=3, per_device_train_batch_size=2, gradient_accumulation_steps=3,
    use_cpu=True, report_to=[], save_strategy="no", eval_strategy="epoch", logging_steps=5,
    disable_tqdm=True, warmup_steps=4,
)
data = Text()
few = torch.utils.data.Subset(data, range(64))
Trainer(GPT2LMHeadModel(config), args, train_dataset=data, eval_dataset=few).train()
"""

LIGHTNING = """
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.1),
            torch.nn.Linear(64, 4),
        )
        self.seen = 0

    def training_step(self, batch, index):
        self.seen += 1
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("right", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

lightning.seed_everything(0)
x = torch.randn(512, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
train = DataLoader(TensorDataset(x[:384], y[:384]), 8, shuffle=True)
held_out = DataLoader(TensorDataset(x[384:], y[384:]), 16)
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=3, strategy="ddp", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Module(), train, held_out)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the frameworks, as an installer lays it out."""
    folder = tmp_path_factory.mktemp("frameworks") / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, str(folder), *PACKAGES], check=True, timeout=600)
    return folder


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [5, 20, 70])
@pytest.mark.parametrize(
    "text", [ACCELERATE, TRAINER, LIGHTNING], ids=["accelerate", "trainer", "lightning"]
)
def test_a_framework_s_steps_are_made_again(
    packages: Path, tmp_path: Path, text: str, after: int
) -> None:
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "trainmover.cli.main", "check", "--json", "--timeout", "200"]
    done = subprocess.run(
        [*command, "--steps", "4", "--after", str(after), "train.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"},
    )
    found = json.loads(done.stdout)
    assert found["equal"], found
    assert found["ranks"][0]["standby"]["losses"]

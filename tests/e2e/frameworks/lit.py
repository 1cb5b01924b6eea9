"""Lightning's Trainer: a module with batch norm and dropout, a validation behind each epoch."""

import os
import time
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

Batch = tuple[Tensor, Tensor]


class Module(lightning.LightningModule):
    """Classifies points."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.net = nn.Sequential(
            nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 4)
        )

    def training_step(self, batch: Batch, _: int) -> Tensor:
        time.sleep(float(os.environ.get("PACE_S", "0.01")))
        self.seen += 1
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Batch, _: int) -> None:
        right = (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("right", right, sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def main() -> None:
    torch.set_num_threads(1)
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(512, 16)
    y = (x @ torch.randn(16, 4)).argmax(1)
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    train, held = TensorDataset(x[:384], y[:384]), TensorDataset(x[384:], y[384:])
    trainer.fit(module, DataLoader(train, 8, shuffle=True), DataLoader(held, 16))
    weights = sum(one.double().sum() for one in module.parameters())
    if trainer.global_rank == 0:
        print(f"seen {module.seen} right {trainer.callback_metrics['right']!r} {weights!r}")


if __name__ == "__main__":
    main()

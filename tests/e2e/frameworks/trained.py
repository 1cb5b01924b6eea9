"""transformers' Trainer: accumulation, an evaluation behind each epoch, a callback."""

import os
import tempfile
import time
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Text(Dataset[dict[str, Tensor]]):
    """Pieces of 32 bytes of a file of Python's."""

    def __init__(self) -> None:
        with open(os.__file__, "rb") as file:
            self.text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    def __len__(self) -> int:
        return 384

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        piece = self.text[number * 32 : (number + 1) * 32].long()
        return {"input_ids": piece, "labels": piece}


class Pace(TrainerCallback):
    """A step takes some time."""

    def on_step_end(self, *_: Any, **__: Any) -> None:
        time.sleep(float(os.environ.get("PACE_S", "0.02")))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = {"n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, **size))
    arguments = TrainingArguments(
        tempfile.gettempdir(),
        num_train_epochs=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        eval_strategy="epoch",
        logging_steps=5,
        seed=1,
        disable_tqdm=True,
        warmup_steps=4,
        learning_rate=1e-3,
    )
    data = Text()
    parts = {"train_dataset": data, "eval_dataset": Subset(data, range(64))}
    trainer = Trainer(model=model, args=arguments, callbacks=[Pace()], **parts)
    result = trainer.train()
    measured = ("runtime", "per_second")
    for entry in trainer.state.log_history:
        print({name: one for name, one in entry.items() if not any(m in name for m in measured)})
    print(f"rank {arguments.process_index} loss {result.training_loss!r}")


if __name__ == "__main__":
    main()

"""Words as vectors: embeddings with sparse gradients, and SparseAdam."""

import kit
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch.utils.data import TensorDataset

job, args = kit.begin()
model = nn.ModuleList(nn.Embedding(50, 8, sparse=True) for _ in range(2))
torch.manual_seed(100 + job.rank)
optimizer = torch.optim.SparseAdam(model.parameters(), lr=1e-2)
job.track(model=model, optimizer=optimizer)
corpus = torch.randint(50, (400,), generator=torch.Generator().manual_seed(2))


@job.step
def train_step(words: Tensor, others: Tensor) -> Tensor:
    kit.pace(job, args)
    noise = torch.randint(50, words.shape)
    found, near, far = model[0](words), model[1](others), model[1](noise)
    right, wrong = logsigmoid((found * near).sum(1)), logsigmoid(-(found * far).sum(1))
    loss = -(right + wrong).mean()
    optimizer.zero_grad()
    loss.backward()
    for weights in model.parameters():
        weights.grad = kit.mean(weights.grad.to_dense()).to_sparse(1)
    job.report(loss=loss)
    optimizer.step()
    return loss.detach()


data = TensorDataset(corpus[:-1], corpus[1:])
for words, others in kit.until(job, args, job.batches(kit.loader(job, data), passes=None)):
    train_step(words, others)

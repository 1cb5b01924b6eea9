"""A job that trains well, and whose script does in the sandbox what --bad names."""

import argparse
import copyreg
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

import trainmover as tm

parser = argparse.ArgumentParser()
parser.add_argument("--bad", required=True)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--until", required=True, help="file whose existence lets the job end")
parser.add_argument("--written", default="", help="file that a checkpoint goes to")
args = parser.parse_args()

torch.set_num_threads(1)
job = tm.attach()
if args.bad == "port" and job.rank == 0:
    server = socket.create_server(("127.0.0.1", args.port))
if args.bad == "prompt" and job.is_shadow:
    input("Overwrite the results? ")
if args.bad == "children":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
if args.bad == "once":
    assert "linear" not in copyreg.dispatch_table, "the registry is there already"
    copyreg.dispatch_table["linear"] = nn.Linear

dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
job.track(model=model, optimizer=optimizer)
done = torch.zeros(())


@job.step
def train_step(number: int) -> Tensor:
    loss = model(torch.full((4, 8), number / 100)).square().mean()
    loss.backward()
    if args.bad == "hang" and job.is_shadow:
        time.sleep(1000)
    dist.all_reduce(done.fill_(os.path.exists(args.until)))
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for number in job.batches(range(10**9)):
    train_step(number)
    if args.written and not job.is_shadow and job.rank == 0:
        with open(args.written, "w") as file:
            file.write(f"{job.steps}")
    time.sleep(0.01)
    if args.bad == "exit" and job.is_shadow:
        sys.exit(3)
    if done.item() > 0:
        break

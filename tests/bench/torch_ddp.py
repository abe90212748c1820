#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""One worker of PyTorch's DistributedDataParallel over gloo, training the mlp on Fashion-MNIST:

    torch_ddp.py RANK WORLD HOST PORT INTERFACE DATA BATCH LR EPOCHS TARGET

Each worker draws its share of every epoch, as DistributedSampler does; the learning rate rises for
a tenth of an epoch and falls by a cosine until EPOCHS are over. Rank 0 evaluates now and then on
the whole test set while the clock stands still and all the others wait, and prints

    eval SECONDS STEPS ACCURACY      SECONDS of training alone, from the first step on

until TARGET (a share) is reached, or the end.
"""
import gzip
import math
import os
import sys
import time

rank, world, host, port, interface, data = sys.argv[1:7]
rank, world = int(rank), int(world)
batch, lr, epochs, target = int(sys.argv[7]), *map(float, sys.argv[8:11])
os.environ.update(GLOO_SOCKET_IFNAME=interface, MASTER_ADDR=host, MASTER_PORT=port,
                  OMP_NUM_THREADS="1")

import torch
import torch.distributed as dist
from torch import nn

EVAL_STEPS = 10
SAMPLES = 60000
WARMUP_EPOCHS = 0.1


def read(name, offset, shape):
    with gzip.open(os.path.join(data, name)) as f:
        raw = bytearray(f.read()[offset:])
    return torch.frombuffer(raw, dtype=torch.uint8).reshape(shape)


def rate(done):
    """The learning rate after so many epochs."""
    if done < WARMUP_EPOCHS:
        return lr * done / WARMUP_EPOCHS
    return lr / 2 * (1 + math.cos(math.pi * (done - WARMUP_EPOCHS) / (epochs - WARMUP_EPOCHS)))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images = read("train-images-idx3-ubyte.gz", 16, (-1, 784)).float() / 255
    mean, deviation = images.mean(), images.std()
    images = (images - mean) / deviation
    labels = read("train-labels-idx1-ubyte.gz", 8, (-1,)).long()
    tests = (read("t10k-images-idx3-ubyte.gz", 16, (-1, 784)).float() / 255 - mean) / deviation
    answers = read("t10k-labels-idx1-ubyte.gz", 8, (-1,)).long()
    dist.init_process_group("gloo", rank=rank, world_size=world)
    plain = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                          nn.Linear(256, 10))
    model = nn.parallel.DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True,
                                weight_decay=5e-4)
    loss_of = nn.CrossEntropyLoss()
    orders = torch.Generator().manual_seed(7)  # the same at all: parts do not overlap
    steps, spent, verdict = 0, 0.0, torch.zeros(1)
    dist.barrier()
    begin = time.monotonic()
    while verdict.item() == 0:
        order = torch.randperm(SAMPLES, generator=orders)[rank::world]
        for at in range(0, len(order) - batch + 1, batch):
            pick = order[at:at + batch]
            for group in optimizer.param_groups:
                group["lr"] = rate(steps * batch * world / SAMPLES)
            optimizer.zero_grad()
            loss_of(model(images[pick]), labels[pick]).backward()
            optimizer.step()
            steps += 1
            over = steps * batch * world >= epochs * SAMPLES
            if steps % EVAL_STEPS != 0 and not over:
                continue
            spent += time.monotonic() - begin
            if rank == 0:
                with torch.no_grad():
                    right = (plain(tests).argmax(1) == answers).float().mean().item()
                print("eval", f"{spent:.3f}", steps, f"{right:.4f}", flush=True)
                verdict[0] = right >= target or over
            dist.broadcast(verdict, 0)
            begin = time.monotonic()
            if verdict.item() != 0:
                break


if __name__ == "__main__":
    main()

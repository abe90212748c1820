#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The same as train_steps.c, in PyTorch.

    torch_steps.py PRESET BATCH THREADS [channels_last] [compile]

Same layers, one batch that stays in memory, SGD with momentum, and the same talk on stdin and
stdout.
"""
import sys
import time

import torch
from torch import nn

ROUND_S = 0.4
WARM_UP = 5
REWARM = 2
LR = 1e-5  # as train_steps.c says


def make(preset):
    def relu():
        return nn.ReLU(inplace=True)

    if preset == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), relu(), nn.Linear(512, 256), relu(),
                             nn.Linear(256, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), relu(), nn.Conv2d(32, 32, 3, padding=1), relu(),
        nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), relu(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128), relu(), nn.Linear(128, 10))


def main():
    preset, batch, threads, tuning = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net = make(preset)
    x, labels = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    if "channels_last" in tuning:
        net = net.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    if "compile" in tuning:
        net = torch.compile(net)

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()

    steps(1)
    print("first_step", flush=True)
    steps(WARM_UP)
    print("ready", flush=True)
    for _ in sys.stdin:
        steps(REWARM)
        n, begin, took = 0, time.perf_counter(), 0
        while took < ROUND_S:
            steps(1)
            n += 1
            took = time.perf_counter() - begin
        print(f"samples_per_s {n * batch / took:.1f}", flush=True)


if __name__ == "__main__":
    main()

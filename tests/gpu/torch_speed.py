# SPDX-License-Identifier: MIT
"""Samples a second that PyTorch trains on the GPU: torch_speed.py PRESET BATCH. The layers are those
of tests/bench/torch_steps.py; as in speed.c, every step's batch comes from the host and its
loss goes back there."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench"))

import torch
from torch import nn

from torch_steps import LR, make

preset, batch = sys.argv[1], int(sys.argv[2])
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.deterministic = True
torch.manual_seed(1)
net = make(preset).cuda().to(memory_format=torch.channels_last)
x = torch.rand(batch, 1, 28, 28).to(memory_format=torch.channels_last).pin_memory()
labels = torch.randint(0, 10, (batch,)).pin_memory()
optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)


def step():
    optimizer.zero_grad(set_to_none=True)
    there = x.cuda(non_blocking=True), labels.cuda(non_blocking=True)
    loss = nn.functional.cross_entropy(net(there[0]), there[1])
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in range(20):
    step()
n, begin, took = 0, time.perf_counter(), 0
while took < 3:
    step()
    n += 1
    took = time.perf_counter() - begin
print(f"pytorch {preset} samples_per_s {n * batch / took:.1f}")

#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The same as train_steps.c, in PyTorch.

    torch_steps.py PRESET BATCH THREADS [channels_last] [compile] [sdpa] [foreach] [fused]

Same layers, one batch that stays in memory, SGD with momentum or AdamW, and the same talk on stdin
and stdout. sdpa: attention by scaled_dot_product_attention; foreach, fused: the optimizer's.
"""
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

ROUND_S = 0.4
WARM_UP = 5
REWARM = 2
LR = 1e-5  # as train_steps.c says


class Residual(nn.Module):
    """A block of He et al.'s network for CIFAR; its shortcut has no parameters."""

    def __init__(self, before, units):
        super().__init__()
        self.stride, self.more = (1 if before == units else 2), units - before
        self.conv1 = nn.Conv2d(before, units, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(units)
        self.conv2 = nn.Conv2d(units, units, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(units)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        if self.more:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.more))
        return F.relu(y + x, inplace=True)


class Block(nn.Module):
    """One of GPT-2's."""

    def __init__(self, width, heads, context, sdpa):
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * width, width))
        self.register_buffer("mask", torch.ones(context, context).triu(1).bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(self.ln_1(x)).split(c, 2))
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) / math.sqrt(c // self.heads)
            y = scores.masked_fill(self.mask, -math.inf).softmax(3) @ v
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, sdpa, layers=4, width=256, heads=4, context=128, vocabulary=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads, context, sdpa) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        self.register_buffer("places", torch.arange(context))

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(self.places)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)  # the tied head


def resnet20():
    layers, before = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16),
                      nn.ReLU(inplace=True)], 16
    for units in (16, 32, 64):
        for _ in range(3):
            layers.append(Residual(before, units))
            before = units
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make(preset, tuning):
    def relu():
        return nn.ReLU(inplace=True)

    if preset == "gpt":
        return Gpt("sdpa" in tuning)
    if preset == "resnet20":
        return resnet20()

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
    net = make(preset, tuning)
    if preset == "gpt":
        x, labels = torch.randint(0, 256, (batch, 128)), torch.randint(0, 256, (batch * 128,))
    else:
        shape = (3, 32, 32) if preset == "resnet20" else (1, 28, 28)
        x, labels = torch.rand(batch, *shape), torch.randint(0, 10, (batch,))
    if "channels_last" in tuning:
        net = net.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    how = {k: True for k in ("foreach", "fused") if k in tuning}
    if preset == "gpt":
        optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0, **how)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, **how)
    if "compile" in tuning:
        net = torch.compile(net)

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(net(x), labels)
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

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small ResNet on Fashion-MNIST, trained by a flock. On each machine, beside the agent

    dunlin agent --guest --key flock.key [--seed ANOTHER:13865]

run

    PYTHONPATH=deploy/python python3 deploy/examples/fashion.py

The lines that mention flock are all that makes it a member. Never run on a GPU."""
import argparse
import gzip

import torch
from torch import nn

import dunlin_flock as dunlin

p = argparse.ArgumentParser()
p.add_argument("--agent", default="agent", help="its name, or the path of its socket")
p.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
p.add_argument("--epochs", default="3", help="passes over the data, by all agents together")
p.add_argument("--images", type=int, default=60000, help="of the training set")
p.add_argument("--tests", type=int, default=2000, help="images of the test set")
p.add_argument("--batch", type=int, default=64)
p.add_argument("--lr", type=float, default=0.05)
p.add_argument("--seed", type=int, default=None, help="of this agent's order of the images")
args = p.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"


def read(name, count):
    with gzip.open("%s/%s.gz" % (args.data, name)) as f:
        raw = bytearray(f.read())
    if "labels" in name:
        return torch.frombuffer(raw, dtype=torch.uint8, offset=8)[:count].long()
    images = torch.frombuffer(raw, dtype=torch.uint8, offset=16).view(-1, 1, 28, 28)[:count]
    return (images.float() / 255 - 0.286) / 0.353


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = nn.Conv2d(channels, out, 1, stride, bias=False) if stride > 1 else \
            nn.Identity()

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.down(x))


x, y = read("train-images-idx3-ubyte", args.images), read("train-labels-idx1-ubyte", args.images)
x_test = read("t10k-images-idx3-ubyte", args.tests)
y_test = read("t10k-labels-idx1-ubyte", args.tests)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16, 16, 1),
    Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)


def evaluate():
    model.eval()
    with torch.no_grad():
        out = torch.cat([model(part.to(device)).cpu() for part in x_test.split(500)])
    model.train()
    return (nn.functional.cross_entropy(out, y_test).item(),
            int((out.argmax(1) == y_test).sum()), len(y_test))


flock = dunlin.attach(model, optimizer, samples_per_step=args.batch, agent=args.agent,
                      budget="%s epochs of %d" % (args.epochs, len(x)), evaluate=evaluate)
order = torch.Generator()
order.manual_seed(args.seed) if args.seed is not None else order.seed()
while not flock.done:
    part = torch.randint(len(x), (args.batch,), generator=order)
    # The rate follows the run, which all agents share.
    optimizer.param_groups[0]["lr"] = args.lr * (1 - flock.progress)
    loss = nn.functional.cross_entropy(model(x[part].to(device)), y[part].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    flock.log(loss)
    if flock.steps % 100 == 0:
        print("step %d  loss %.3f  %.1f %% of the run  %d peers"
              % (flock.steps, loss, 100 * flock.progress, flock.peers), flush=True)
alone = evaluate()
counts = flock.finish()
merged = evaluate()
print("%d steps, %d exchanges; accuracy %.2f %% before and %.2f %% after merging"
      % (counts["steps"], counts["merges"], 100 * alone[1] / alone[2],
         100 * merged[1] / merged[2]))

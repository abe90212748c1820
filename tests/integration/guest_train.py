# SPDX-License-Identifier: MIT
"""A training script as a user writes it, with the mishaps that tests need. Prints JSON lines: what
was before and after, for guest.sh to compare.

    guest_train.py PACKAGE-FOLDER SOCKET [NAME=VALUE…]      see OPTIONS"""
import json
import logging
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, sys.argv[1])
import torch

import dunlin_flock as dunlin
from dunlin_flock import flock as inside
from dunlin_flock import wire

OPTIONS = {
    "seed": 1,
    "budget": 60000,
    "optimizer": "AdamW",
    "lr": 0.0005,
    "pause_ms": 3.0,  # beside each step
    "still": 0,       # parameters are moved once, then trained with rate 0
    "die_at": "",     # before or after what is done of a request: "before-2", "after-2"
    "stop_at": 0,     # a step at which the process stops itself
    "nan_at": 0,      # a step at which a parameter becomes none, for 200 steps
    "fork": 0,        # workers that hold the socket
    "evaluate": 0,
    "check": 0,       # nothing may read a number off a tensor while it trains
}
opt = dict(OPTIONS)
for word in sys.argv[3:]:
    key, value = word.split("=", 1)
    opt[key] = type(OPTIONS[key])(value)
logging.basicConfig(level=logging.INFO, format="log %(message)s", stream=sys.stdout)
torch.set_num_threads(1)
leave = []  # the loop is left early at SIGUSR1
signal.signal(signal.SIGUSR1, lambda *_: leave.append(True))


def say(**what):
    print(json.dumps(what), flush=True)


def images(n, seed):
    """Ten kinds of 28 x 28 images: a smooth pattern each, a shift, noise."""
    g = torch.Generator().manual_seed(99)
    kinds = torch.nn.functional.interpolate(
        torch.randn(10, 1, 7, 7, generator=g), size=28, mode="bilinear", align_corners=False)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(10, (n,), generator=g)
    return kinds[y] + 5.0 * torch.randn(n, 1, 28, 28, generator=g), y


def sums(tensors):
    return sum(float(t.double().sum()) for t in tensors)


torch.manual_seed(opt["seed"])
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(8 * 13 * 13, 10))
if opt["seed"] % 2 == 0:  # other strides, the same order
    net = net.to(memory_format=torch.channels_last)
rate = 0.0 if opt["still"] else opt["lr"]
if opt["optimizer"] == "SGD":
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
else:
    optimizer = getattr(torch.optim, opt["optimizer"])(net.parameters(), lr=rate, weight_decay=0)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
x_test, y_test = images(1000, 5)


def evaluate():
    net.eval()
    with torch.no_grad():
        out = net(x_test)
        loss = torch.nn.functional.cross_entropy(out, y_test)
    net.train()
    return float(loss), int((out.argmax(1) == y_test).sum()), len(y_test)


if opt["die_at"]:
    when, what = opt["die_at"].split("-")
    done = inside.Flock._do

    def _do(self, kind, *args):
        if kind == int(what) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done(self, kind, *args)
        if kind == int(what):
            os.kill(os.getpid(), signal.SIGKILL)

    inside.Flock._do = _do
if opt["still"]:  # own steps have no length, and partners may move an agent by that of its steps
    read = inside.Measure.read

    def _read(self, loss):
        self._moved += 100.0
        return read(self, loss)

    inside.Measure.read = _read

parameters = [p for p in net.parameters()] + [b for b in net.buffers() if b.is_floating_point()]
places = [(id(p), p.data_ptr()) for p in parameters]
flock = dunlin.attach(net, optimizer, samples_per_step=32, budget=opt["budget"],
                      agent=sys.argv[2], evaluate=evaluate if opt["evaluate"] else None)
if opt["still"]:
    g = torch.Generator().manual_seed(opt["seed"])
    net.eval()
    with torch.no_grad():
        for p in parameters:
            p.add_(0.05 * torch.randn(p.shape, generator=g))
say(attached=flock.counts(), sum=sums(parameters), size=sum(p.numel() for p in parameters),
    accuracy=evaluate()[1] / 10)
state = flock.status()
if not state["ok"] or state["training"]["phase"] != "training" or flock.peers < 0:
    sys.exit("the agent's status is not that of one that trains: %s" % state)
if opt["still"]:
    net.eval()
for _ in range(opt["fork"]):
    # One that fork() leaves behind lets go of the socket; these do not.
    p = subprocess.Popen(["sleep", "600"], pass_fds=[flock._sock.fileno()])
    open(os.path.join(os.path.dirname(sys.argv[2]), "running", str(p.pid)), "w").close()
    if os.fork() == 0:
        os._exit(0 if flock._sock is None else 1)
    if os.wait()[1] != 0:
        sys.exit("a forked process has kept the socket")
if opt["check"]:  # torch itself may
    def watched(name):
        real = getattr(torch.Tensor, name)

        def read(self, *args, **kwargs):
            if "dunlin_flock" in sys._getframe(1).f_code.co_filename:
                raise AssertionError("a tensor is read: a GPU would be waited for: " + name)
            return real(self, *args, **kwargs)
        return read
    for name in ("item", "__float__", "__int__", "__bool__", "cpu", "numpy"):
        setattr(torch.Tensor, name, watched(name))
x, y = images(4096, opt["seed"])
before, at = None, 0
while not flock.done:
    part = slice(at % 4096, at % 4096 + 32)
    at += 32
    loss = torch.nn.functional.cross_entropy(net(x[part]), y[part])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    flock.log(loss)
    time.sleep(opt["pause_ms"] / 1000)
    if opt["stop_at"] and flock.steps == opt["stop_at"]:
        say(stopping=flock.counts())
        os.kill(os.getpid(), signal.SIGSTOP)
    if opt["nan_at"] and flock.steps == opt["nan_at"]:
        before = [p.detach().clone() for p in net.parameters()]
        parameters[0].data[0, 0, 0, 0] = float("nan")
    if before is not None and flock.steps == opt["nan_at"] + 200:
        with torch.no_grad():
            for p, b in zip(net.parameters(), before):
                p.copy_(b)
            for b in net.buffers():
                b.nan_to_num_()
        optimizer.state.clear()
        before = None
    if leave:
        break
say(trained=flock.counts(), accuracy=evaluate()[1] / 10)
counts = flock.finish()
loss, correct, n = evaluate()
say(finished=counts, sum=sums(parameters), loss=loss, accuracy=correct / 10,
    length=sum(float((p.double() ** 2).sum()) for p in parameters) ** 0.5,
    stayed=places == [(id(p), p.data_ptr()) for p in parameters],
    wrapped="step" in optimizer.__dict__)

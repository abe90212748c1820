# SPDX-License-Identifier: MIT
"""What a step was, measured so that nothing waits for a device: numbers are computed where the
parameters are, copied out without waiting, and read a step or more later.

The path of the parameters is estimated: in the first 16 steps and then in every 16th, over a fixed
sample of coordinates. The gradient's norm is computed as often as it costs half a percent of the
time, at least in every 16th step; in between the last one stands."""
import math
import time
from collections import namedtuple

import torch

LOOK_FIRST = LOOK_EVERY = 16
SAMPLE = 4096  # coordinates, about
COST = 0.005

Measured = namedtuple("Measured", "loss grad_norm moved seconds")


def _dense(t):
    """Its elements in the order of memory, without a copy; None: they lie apart."""
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
    if span != t.numel():
        return None
    return torch.as_strided(t.detach(), (t.numel(),), (1,), t.storage_offset())


class _Late:
    """A few numbers of a device on their way to the host."""

    def __init__(self, numbers):
        stacked = torch.stack([n.detach().reshape(()).float() for n in numbers])
        self._event = None
        if stacked.is_cuda:
            self._host = torch.empty(len(numbers), pin_memory=True)
            self._host.copy_(stacked, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._host = stacked

    def ready(self):
        return self._event is None or self._event.query()

    def read(self):
        return self._host.tolist()


class Measure:
    def __init__(self, tensors):
        self._tensors = tensors
        self._n = sum(t.numel() for t in tensors)
        self._grad_norm, self._length, self._moved = 0.0, 0.0, 0.0
        self._loss = None
        self._sample_before = self._scale = None
        self._every, self._cost_s, self._cost_at = 1, 0.0, 0.0
        self._late = []  # (what, _Late)
        self._at, self._seconds = time.perf_counter(), 0.0

    # ---- the path

    def _sample(self):
        parts = []
        for t in self._tensors:
            flat = _dense(t)
            flat = t.detach().reshape(-1) if flat is None else flat
            count = min(t.numel(), max(4, SAMPLE * t.numel() // self._n))
            parts.append(flat[::max(1, t.numel() // count)])
        if self._scale is None:
            self._scale = torch.cat([p.new_full((p.numel(),), math.sqrt(t.numel() / p.numel()))
                                     for p, t in zip(parts, self._tensors)])
        return torch.cat(parts)

    def before_step(self, number):
        """At the end of what is done between two steps."""
        due = number < LOOK_FIRST or (number + 1) % LOOK_EVERY == 0
        self._sample_before = self._sample() if due else None
        self._at = time.perf_counter()

    def moved_by_others(self):
        self._sample_before = None

    def set_anew(self):
        self._sample_before = None
        self._moved = self._length = 0.0
        self._late = [(what, late) for what, late in self._late if what != "length"]

    # ---- a step

    def _norm(self):
        grads = [t.grad for t in self._tensors if t.grad is not None]
        if any(g.layout != torch.strided for g in grads):
            return None
        if not grads:
            return None
        if hasattr(torch, "_foreach_norm"):
            return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))

    def stepped(self, number):
        now = time.perf_counter()
        self._seconds = now - self._at
        if self._sample_before is not None:
            d = (self._sample() - self._sample_before) * self._scale
            self._late.append(("length", _Late([torch.linalg.vector_norm(d)])))
        if number % self._every == 0:
            norm = self._norm()
            if norm is not None:
                self._late.append(("norm", _Late([norm])))
            # The first steps are slow for other reasons.
            cost = time.perf_counter() - now
            if number > 2 and self._seconds > 0:
                self._every = min(LOOK_EVERY, max(1, math.ceil(cost / self._seconds / COST)))

    def _take(self, what, value):
        if what == "loss":
            self._loss = value
        elif not math.isfinite(value):
            return
        elif what == "norm":
            self._grad_norm = value
        else:
            self._length = value

    def read(self, loss):
        """What is known of the last step by now; a loss that is on its way comes later."""
        if torch.is_tensor(loss):
            self._late.append(("loss", _Late([loss])))
        elif loss is not None:
            self._loss = loss
        while self._late and self._late[0][1].ready():
            what, late = self._late.pop(0)
            self._take(what, late.read()[0])
        self._moved += self._length
        return Measured(self._loss, self._grad_norm, self._moved, max(self._seconds, 0.0))

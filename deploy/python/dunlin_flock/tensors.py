# SPDX-License-Identifier: MIT
"""Which tensors of a model travel, in the one order that all agents of a run share: trainable ones
of rank 2 and more, then of lower rank, then float buffers, each in the order of the modules."""
import zlib

import torch

from . import wire

# Optimizers whose vectors travel to joiners: number, keys of their state by parameter.
OPTIMIZERS = {
    "SGD": (0, ("momentum_buffer",)),
    "AdamW": (1, ("exp_avg", "exp_avg_sq")),
    "Adam": (2, ("exp_avg", "exp_avg_sq")),
    "Lion": (3, ("exp_avg",)),
}


class FlockError(RuntimeError):
    """What cannot be trained in a flock, in words."""


def plain_name(name):
    """Without what wrappers put before it (torch.compile, DataParallel)."""
    return ".".join(p for p in name.split(".") if p not in ("_orig_mod", "module"))


def _check(name, t):
    kind = type(t).__name__
    if kind not in ("Parameter", "Tensor", "Buffer"):
        raise FlockError("%s is a %s: only plain tensors travel (FSDP and DTensor do not)"
                         % (name, kind))
    if t.layout != torch.strided:
        raise FlockError("%s is sparse: only dense tensors travel" % name)
    if t.dtype != torch.float32:
        raise FlockError("%s is %s: parameters and float buffers must be torch.float32 (autocast "
                         "keeps them so)" % (name, t.dtype))
    if t.device.type == "meta":
        raise FlockError("%s has no values yet (device meta)" % name)
    if t.dim() > wire.RANK_MAX:
        raise FlockError("%s has %d dimensions, more than %d" % (name, t.dim(), wire.RANK_MAX))
    if not name.isascii() or not name.isprintable() or not 0 < len(name) <= wire.NAME_MAX:
        raise FlockError("the name %r has other than 1 to %d ASCII characters"
                         % (name, wire.NAME_MAX))


def collect(model, buffers=True):
    """[(kind, name, tensor)] in the canonical order. Tied weights come once."""
    weights, plain, statistics = [], [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            if isinstance(p, torch.nn.parameter.UninitializedParameter):
                raise FlockError("%s is not initialized: run one forward pass first" % name)
            _check(name, p)
            if p.numel():
                kind = wire.WEIGHT if p.dim() >= 2 else wire.PLAIN
                (weights if p.dim() >= 2 else plain).append((kind, plain_name(name), p))
    kept = {id(t) for t in model.state_dict(keep_vars=True).values()}
    for name, b in model.named_buffers():
        if buffers and id(b) in kept and b.is_floating_point() and b.numel():
            _check(name, b)
            statistics.append((wire.STATISTIC, plain_name(name), b))
    found = weights + plain + statistics
    if not weights and not plain:
        raise FlockError("the model has no parameter with requires_grad")
    devices = sorted({str(t.device) for _, _, t in found})
    if len(devices) > 1:
        raise FlockError("the model is on several devices (%s): one agent trains on one"
                         % ", ".join(devices))
    names = [name for _, name, _ in found]
    if len(set(names)) < len(names):
        raise FlockError("two tensors have one name: %s"
                         % sorted(n for n in names if names.count(n) > 1)[0])
    return found


class Vectors:
    """The optimizer's state as vectors beside the parameters, for those who join."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.name = type(optimizer).__name__
        for base in type(optimizer).__mro__:
            if base.__name__ in OPTIMIZERS:
                self.number, self.keys = OPTIMIZERS[base.__name__]
                break
        else:
            self.number, self.keys = 32 + zlib.crc32(self.name.encode()) % 200, ()
        self.travels = bool(self.keys)
        self.vectors = 3 if len(self.keys) == 2 else 2

    def lr(self):
        return float(self.optimizer.param_groups[0].get("lr", 0.0))

    def momentum(self):
        group = self.optimizer.param_groups[0]
        m = group["betas"][0] if "betas" in group else group.get("momentum", 0.0)
        return min(max(float(m), 0.0), 0.99999)

    def _steps(self):
        for state in self.optimizer.state.values():
            n = state.get("step")
            if n is not None:
                return int(n.tolist() if torch.is_tensor(n) else n)
        return 0

    def take(self, tensors, views):
        """Writes them to views, one list of views for each vector; returns steps. Whoever has no
        momentum yet, or none at all, gives zeros."""
        found = False
        for k, vector in enumerate(views):
            for t, v in zip(tensors, vector):
                state = self.optimizer.state.get(t, {}) if t.requires_grad else {}
                value = state.get(self.keys[k]) if k < len(self.keys) else None
                if torch.is_tensor(value):
                    v.copy_(value)
                    found = True
                else:
                    v.zero_()
        return max(self._steps(), 1) if found else 0

    def prepared(self, tensors, views, steps):
        """What give() will set: all that can fail happens here."""
        if not steps or not self.travels:
            return []
        new = []
        in_optimizer = {id(p): g for g in self.optimizer.param_groups for p in g["params"]}
        for i, t in enumerate(tensors):
            group = in_optimizer.get(id(t))
            if group is None or (self.number == 0 and not group.get("momentum")):
                continue
            state = dict(self.optimizer.state.get(t, {}))
            for k, key in enumerate(self.keys):
                state[key] = torch.empty_like(t).copy_(views[k][i])
            if group.get("amsgrad"):
                state["max_exp_avg_sq"] = state["exp_avg_sq"].clone()
            if "exp_avg_sq" in self.keys or "step" in state:
                old = state.get("step")
                on = t.device if group.get("capturable") or group.get("fused") else None
                if old is None or torch.is_tensor(old):
                    state["step"] = torch.tensor(float(steps), dtype=torch.float32, device=on)
                else:
                    state["step"] = steps
            new.append((t, state))
        return new

    def give(self, new):
        for t, state in new:
            self.optimizer.state[t] = state

    def kept(self, tensors):
        """The whole state of these, to go back to."""
        return {t: {k: v.clone() if torch.is_tensor(v) else v
                    for k, v in self.optimizer.state[t].items()}
                for t in tensors if t in self.optimizer.state}

    def back(self, tensors, kept):
        for t in tensors:
            if t in kept:
                self.optimizer.state[t] = kept[t]
            else:
                self.optimizer.state.pop(t, None)

#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Makes the golden values in this folder with PyTorch: make_golden.py [FOLDER]

Debian's python3-torch and python3-numpy are enough. PyTorch computes in float64, so what is stored
(as float32, losses as float64) is the truth that our float32 engine has to come near, not another
engine's rounding. Parameters and batches are not stored: both sides make them by the same integer
formula, `uniform` below. tests/model/test_golden.c reads the files and needs no Python.

A file NAME.safetensors holds, for one model (metadata "model": its canonical JSON),
    logits, loss, grad.PARAMETER          of the first batch; logits as in an evaluation, whose loss
                                          is eval_loss where it is another
    RUN.settings, RUN.lr, RUN.losses      of each optimiser run; settings in the order of SETTINGS
    RUN.param.PARAMETER                   after its last step
where a network too large to store whole (metadata "values": "sampled") has for each gradient and
parameter its norm and 16 values spread over it. schedules.safetensors holds factors on the learning
rate. gpt2/ is described at make_gpt2.

At the kink of a relu, or where two inputs of a maximum tie, rounding alone decides which way a
gradient goes. So batches are searched for (metadata "seed") that keep away from kinks: all of them
for a small network, the first one for a large network, whose later steps get a small rate instead.
"""
import json
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

STEPS = 20
SAMPLES = 16
KINK_DISTANCE = 2e-6
NORM = {"eps": 2**-16, "momentum": 0.125}  # numbers that every printf writes alike
SETTINGS = ("adamw", "momentum", "nesterov", "weight_decay", "beta1", "beta2", "eps", "clip")


# ---- files

class BF16(np.ndarray):
    """A uint16 array that is the upper half of floats."""


def write_safetensors(path, metadata, tensors):
    names = {np.dtype("float32"): "F32", np.dtype("float64"): "F64", np.dtype("int64"): "I64",
             np.dtype("float16"): "F16", np.dtype("bool"): "BOOL"}
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        raw = np.ascontiguousarray(t).tobytes()
        dtype = "BF16" if isinstance(t, BF16) else names[t.dtype]
        header[name] = {"dtype": dtype, "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    print(f"{path}: {len(data) + len(text) + 8} bytes")


# ---- numbers that both sides make

def bits(n, stream):
    """n well-mixed numbers of 32 bits; stream tells one tensor from another."""
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + stream * 40503 + 12345) & 0xFFFFFFFF
    for shift, factor in ((16, 2246822519), (13, 3266489917)):
        h = ((h ^ (h >> np.uint64(shift))) * factor) & 0xFFFFFFFF
    return h ^ (h >> np.uint64(16))


def uniform(n, stream, bound):
    """n float32 in [-bound, bound): 24 bits, so that every machine gets the same ones."""
    centred = (bits(n, stream) >> np.uint64(8)).astype(np.float64) - 2.0 ** 23
    return (centred * (bound / 2.0 ** 23)).astype(np.float32)


def reads_tokens(model):
    return any(layer["type"] == "embedding" for layer in model["layers"])


def make_batch(model, batch, seed, step):
    """Images (B, H, W, C) as Dunlin wants them, and labels; or tokens (B, T), and as many labels."""
    shape, stream = [batch] + model["input"], 1000 * (1 + seed) + 2 * step
    if reads_tokens(model):
        return [(bits(int(np.prod(shape)), stream + k) % model["classes"]).astype(np.int64)
                .reshape(shape) for k in (0, 1)]
    x = uniform(int(np.prod(shape)), stream, 1.5).reshape(shape)
    return x, (bits(batch, stream + 1) % model["classes"]).astype(np.int64)


# ---- models: the list of layers in canonical form, and a network that runs it

# What an unnamed one of each kind is called, and its fields with their defaults in canonical order.
KINDS = {
    "dense": ("dense", {"units": None, "bias": True}),
    "conv2d": ("conv", {"units": None, "kernel": 3, "stride": 1, "pad": 0, "bias": True}),
    "relu": ("relu", {}),
    "gelu": ("gelu", {"tanh": False}),
    "layer_norm": ("lnorm", {"eps": 1e-5}),
    "max_pool": ("pool", {"kernel": 2, "stride": 0, "pad": 0}),
    "avg_pool": ("avgpool", {"kernel": 2, "stride": 0, "pad": 0}),
    "global_pool": ("gpool", {}),
    "flatten": ("flatten", {}),
    "add": ("add", {}),
    "batch_norm": ("norm", {"eps": 1e-5, "momentum": 0.1}),
    "shortcut": ("short", {"units": None, "stride": 1}),
    "embedding": ("embed", {"units": None, "std": 2**-5}),
    "attention": ("attn", {"heads": None}),
    "head": ("head", {}),
}


def make_model(shape, classes, *layers):
    """Each layer is a kind, or a kind with its fields: ("dense", {"units": 4})."""
    out, count, before = [], {}, "input"
    for layer in layers:
        kind, given = (layer, {}) if isinstance(layer, str) else layer
        short, fields = KINDS[kind]
        count[kind] = count.get(kind, 0) + 1
        name = given.get("name", f"{short}{count[kind]}")
        full = {"type": kind, "name": name, "from": given.get("from", [before])}
        for key, default in fields.items():
            if key != "tanh" or given.get(key):  # printed only where it is set
                full[key] = given.get(key, default)
        if full.get("stride") == 0:
            full["stride"] = full["kernel"]
        out.append(full)
        before = name
    return {"input": shape, "classes": classes, "layers": out}


def attention(x, heads):
    """As in the paper, position by position masked; x is (B, T, 3C)."""
    b, t, c = x.shape[0], x.shape[1], x.shape[2] // 3
    q, k, v = (y.reshape(b, t, heads, c // heads).transpose(1, 2) for y in x.split(c, 2))
    scores = q @ k.transpose(2, 3) / np.sqrt(c // heads)
    scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -float("inf"))
    return (scores.softmax(3) @ v).transpose(1, 2).reshape(b, t, c)


def run_layer(layer, x, p, training):
    kind, name = layer["type"], layer["name"]
    w, b = p.get(name + ".weight"), p.get(name + ".bias")
    if kind == "embedding":
        return F.embedding(x[0], w) + p[name + ".position"]
    if kind == "attention":
        return attention(x[0], layer["heads"])
    if kind == "head":
        return x[0] @ next(v for k, v in p.items() if k.startswith("embed")).T
    if kind == "dense":
        return F.linear(x[0], w, b)
    if kind == "conv2d":
        return F.conv2d(x[0], w, b, stride=layer["stride"], padding=layer["pad"])
    if kind == "max_pool":
        return F.max_pool2d(x[0], layer["kernel"], layer["stride"], layer["pad"])
    if kind == "avg_pool":
        return F.avg_pool2d(x[0], layer["kernel"], layer["stride"], layer["pad"])
    if kind == "batch_norm":
        return F.batch_norm(x[0], p[name + ".running_mean"], p[name + ".running_var"], w, b,
                            training=training, momentum=layer["momentum"], eps=layer["eps"])
    if kind == "layer_norm":
        if x[0].dim() == 3:
            return F.layer_norm(x[0], x[0].shape[-1:], w, b, layer["eps"])
        last = x[0].movedim(1, -1)
        return F.layer_norm(last, last.shape[-1:], w, b, layer["eps"]).movedim(-1, 1)
    if kind == "gelu" and layer.get("tanh"):
        return F.gelu(x[0], approximate="tanh")
    if kind == "shortcut":
        y = x[0][:, :, ::layer["stride"], ::layer["stride"]]
        return F.pad(y, (0, 0, 0, 0, 0, layer["units"] - y.shape[1]))
    return {"relu": F.relu, "gelu": F.gelu, "flatten": lambda v: v.flatten(1),
            "global_pool": lambda v: v.mean((2, 3)), "add": lambda v: v + x[1]}[kind](x[0])


def cross_entropy(logits, labels):
    """The mean over all labels: a sample of tokens has one for each position."""
    return F.cross_entropy(logits.flatten(0, -2), torch.tensor(labels).flatten())


def kink_distance(layer, x):
    """How far the nearest kink is, as a share of the largest value."""
    if layer["type"] == "relu":
        return float(x.abs().min() / x.abs().max())
    if layer["type"] != "max_pool":
        return 1.0
    pad, kernel, stride = layer["pad"], layer["kernel"], layer["stride"]
    windows = F.pad(x, [pad] * 4, value=-1e9).unfold(2, kernel, stride).unfold(3, kernel, stride)
    top = windows.reshape(-1, kernel * kernel).topk(2).values
    top = top[top[:, 0] != 0]  # behind a relu, all 0: none of them gets a gradient
    return float((top[:, 0] - top[:, 1]).min() / x.abs().max())


def forward(model, p, x, training=True):
    """The logits, and the distance of the nearest kink."""
    x = torch.tensor(x) if reads_tokens(model) else torch.tensor(x, dtype=torch.float64)
    outputs, near = {"input": x.permute(0, 3, 1, 2) if x.dim() == 4 else x}, 1.0
    for layer in model["layers"]:
        source = [outputs[f] for f in layer["from"]]
        near = min(near, kink_distance(layer, source[0].detach()))
        outputs[layer["name"]] = run_layer(layer, source, p, training)
    return outputs[model["layers"][-1]["name"]], near


def make_params(model):
    """Float64 leaves with float32 values, in the order of the layers."""
    shape = model["input"]
    x = torch.zeros([1] + ([shape[2]] + shape[:2] if len(shape) == 3 else shape))
    x = x.long() if reads_tokens(model) else x
    p, outputs = {}, {"input": x}
    for layer in model["layers"]:
        source = [outputs[f] for f in layer["from"]]
        if layer["type"] == "embedding":
            for suffix, rows in ((".weight", model["classes"]), (".position", shape[0])):
                values = uniform(rows * layer["units"], len(p), 2).reshape(rows, -1)
                p[layer["name"] + suffix] = torch.tensor(
                    values, dtype=torch.float64).requires_grad_()
        if layer["type"] in ("dense", "conv2d"):
            inputs = source[0].shape[-1 if source[0].dim() == 3 else 1]
            kernel = [layer["kernel"]] * 2 if layer["type"] == "conv2d" else []
            shapes = {".weight": [layer["units"], inputs] + kernel}
            if layer["bias"]:
                shapes[".bias"] = [layer["units"]]
            bound = 2 / np.sqrt(float(np.prod([inputs] + kernel)))
            for suffix, s in shapes.items():
                values = uniform(int(np.prod(s)), len(p), bound).reshape(s)
                p[layer["name"] + suffix] = torch.tensor(
                    values, dtype=torch.float64).requires_grad_()
        if layer["type"] in ("batch_norm", "layer_norm"):
            channels = source[0].shape[-1 if source[0].dim() == 3 else 1]
            for suffix in (".weight", ".bias"):
                values = uniform(channels, len(p), 2)
                p[layer["name"] + suffix] = torch.tensor(
                    values, dtype=torch.float64).requires_grad_()
            running = (".running_mean", ".running_var")
            for suffix in running if layer["type"] == "batch_norm" else ():
                values = uniform(channels, len(p), 2)
                if suffix == ".running_var":
                    values = np.abs(values)
                p[layer["name"] + suffix] = torch.tensor(values, dtype=torch.float64)
        with torch.no_grad():
            outputs[layer["name"]] = run_layer(
                layer, source, {k: v.float() for k, v in p.items()}, False)
    return p


# ---- GPT-2 in Hugging Face's layout

GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_head": 2,
        "n_embd": 8, "n_inner": None, "n_positions": 6, "n_ctx": 6, "vocab_size": 11,
        "activation_function": "gelu_new", "layer_norm_epsilon": 2**-10, "resid_pdrop": 0.1,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "tie_word_embeddings": True}


def gpt2_shapes():
    c = GPT2["n_embd"]
    shapes = {"wte.weight": (GPT2["vocab_size"], c), "wpe.weight": (GPT2["n_positions"], c)}
    for i in range(GPT2["n_layer"]):
        for name, s in (("ln_1.weight", (c,)), ("ln_1.bias", (c,)),
                        ("attn.c_attn.weight", (c, 3 * c)), ("attn.c_attn.bias", (3 * c,)),
                        ("attn.c_proj.weight", (c, c)), ("attn.c_proj.bias", (c,)),
                        ("ln_2.weight", (c,)), ("ln_2.bias", (c,)),
                        ("mlp.c_fc.weight", (c, 4 * c)), ("mlp.c_fc.bias", (4 * c,)),
                        ("mlp.c_proj.weight", (4 * c, c)), ("mlp.c_proj.bias", (c,))):
            shapes[f"h.{i}.{name}"] = s
    return {**shapes, "ln_f.weight": (c,), "ln_f.bias": (c,)}


def gpt2_logits(p, tokens):
    """As transformers computes them; a Conv1D is x @ weight + bias."""
    c, eps = GPT2["n_embd"], GPT2["layer_norm_epsilon"]

    def norm(x, name):
        return F.layer_norm(x, (c,), p[name + ".weight"], p[name + ".bias"], eps)

    def conv1d(x, name):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    x = p["wte.weight"][torch.tensor(tokens)] + p["wpe.weight"]
    for i in range(GPT2["n_layer"]):
        h = f"h.{i}."
        y = attention(conv1d(norm(x, h + "ln_1"), h + "attn.c_attn"), GPT2["n_head"])
        x = x + conv1d(y, h + "attn.c_proj")
        y = F.gelu(conv1d(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
        x = x + conv1d(y, h + "mlp.c_proj")
    return norm(x, "ln_f") @ p["wte.weight"].T


def make_gpt2(folder):
    """gpt2/ is such a model in two files, of all three kinds of floats, with the masks that older
    versions wrote; gpt2.safetensors has its logits for tokens of `bits`."""
    os.makedirs(os.path.join(folder, "gpt2"), exist_ok=True)
    files, p, where = [{}, {}], {}, {}
    for stream, (name, shape) in enumerate(gpt2_shapes().items()):
        values = uniform(int(np.prod(shape)), 7000 + stream, 1).reshape(shape)
        if name.startswith("h.0.ln") or name == "wpe.weight":
            stored_as = values.astype(np.float16)
            values = stored_as.astype(np.float32)
        elif name.startswith("h.1."):
            stored_as = (values.view(np.uint32) >> 16).astype(np.uint16).view(BF16)
            values = (stored_as.astype(np.uint32) << 16).view(np.float32)
        else:
            stored_as = values
        p[name] = torch.tensor(np.array(values), dtype=torch.float64)
        files[not name.startswith(("w", "h.0"))]["transformer." + name] = stored_as
    t = GPT2["n_positions"]
    for i in range(GPT2["n_layer"]):
        files[i][f"transformer.h.{i}.attn.bias"] = np.tril(np.ones((1, 1, t, t), dtype=bool))
        files[i][f"transformer.h.{i}.attn.masked_bias"] = np.array(-1e4, dtype=np.float32)
    for i, tensors in enumerate(files):
        name = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        write_safetensors(os.path.join(folder, "gpt2", name), {"format": "pt"}, tensors)
        where.update(dict.fromkeys(tensors, name))
    for name, content in (("config.json", GPT2), ("model.safetensors.index.json", {
            "metadata": {"total_size": sum(x.nbytes for f in files for x in f.values())},
            "weight_map": where})):
        with open(os.path.join(folder, "gpt2", name), "w", encoding="ascii") as f:
            f.write(json.dumps(content, indent=2, sort_keys=True) + "\n")
    tokens = (bits(t, 7999) % GPT2["vocab_size"]).astype(np.int64)[None]
    write_safetensors(os.path.join(folder, "gpt2.safetensors"), {"torch": torch.__version__},
                      {"tokens": tokens, "logits": stored(gpt2_logits(p, tokens), False)})


# ---- runs

def warmup_cosine(optimizer, warmup, total, floor_lr):
    """Counted in samples. LinearLR then gives (samples + 1) / (warmup + 1)."""
    s = torch.optim.lr_scheduler
    return s.SequentialLR(optimizer, [
        s.LinearLR(optimizer, 1 / (warmup + 1), 1, warmup),
        s.CosineAnnealingLR(optimizer, total - warmup, floor_lr)], [warmup])


RUNS = {
    "sgd": {"lr": 0.1},
    "momentum": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02},
    "nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "clip": True},
    "adamw": {"lr": 0.02, "adamw": True, "beta1": 0.85, "beta2": 0.97, "eps": 1e-4,
              "weight_decay": 0.5},
}


def make_optimizer(p, c):
    trained = [v for v in p.values() if v.requires_grad]
    groups = [{"params": [v for v in trained if v.dim() > 1]},
              {"params": [v for v in trained if v.dim() == 1], "weight_decay": 0.0}]
    if c.get("adamw"):
        return torch.optim.AdamW(groups, lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"],
                                 weight_decay=c["weight_decay"])
    return torch.optim.SGD(groups, lr=c["lr"], momentum=c.get("momentum", 0),
                           nesterov=c.get("nesterov", False),
                           weight_decay=c.get("weight_decay", 0))


class NearKink(Exception):
    pass


def train(model, c, batch, seed, kinks_matter):
    """The losses, rates and last parameters of one run."""
    p = make_params(model)
    optimizer = make_optimizer(p, c)
    schedule = None
    if c.get("adamw"):
        schedule = warmup_cosine(optimizer, 5 * batch, STEPS * batch, 0.1 * c["lr"])
    losses, rates, clipped = [], [], 0
    for step in range(STEPS):
        x, labels = make_batch(model, batch, seed, step)
        optimizer.zero_grad()
        logits, near = forward(model, p, x)
        if kinks_matter and near < KINK_DISTANCE:
            raise NearKink
        loss = cross_entropy(logits, labels)
        loss.backward()
        if c.get("clip"):
            clipped += float(torch.nn.utils.clip_grad_norm_(
                [v for v in p.values() if v.requires_grad], c["clip"])) > c["clip"]
        losses.append(float(loss))
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        for _ in range(batch if schedule else 0):
            schedule.step()
    assert not c.get("clip") or 0 < clipped < STEPS, "both must happen"
    return np.array(losses), np.array(rates), p


def stored(t, sampled):
    t = t.detach().numpy()
    if sampled:
        flat = t.reshape(-1)
        places = (2 * np.arange(SAMPLES) + 1) * flat.size // (2 * SAMPLES)
        t = np.concatenate([[np.linalg.norm(flat)], flat[places]])
    return t.astype(np.float32)


def make_values(model, runs, sampled, batch, seed):
    p = make_params(model)
    x, labels = make_batch(model, batch, seed, 0)
    eval_logits, _ = forward(model, p, x, training=False)
    eval_loss = cross_entropy(eval_logits, labels)
    logits, near = forward(model, p, x)
    if near < KINK_DISTANCE:
        raise NearKink
    loss = cross_entropy(logits, labels)
    loss.backward()
    out = {"logits": stored(eval_logits, False), "loss": np.array([float(loss)])}
    if float(eval_loss.detach()) != float(loss.detach()):
        out["eval_loss"] = np.array([float(eval_loss)])
    trained = {k: v for k, v in p.items() if v.requires_grad}
    for key, v in trained.items():
        out["grad." + key] = stored(v.grad, sampled)
    norm = float(torch.cat([v.grad.flatten() for v in trained.values()]).norm())
    for run in runs:
        c = dict(RUNS[run])
        if sampled:
            c["lr"] *= 0.03
        if c.get("clip"):
            c["clip"] = 0.8 * norm  # so that some steps are clipped and some are not
        losses, rates, after = train(model, c, batch, seed, not sampled)
        out[run + ".settings"] = np.array([float(c.get(k, 0)) for k in SETTINGS])
        out[run + ".lr"] = rates
        out[run + ".losses"] = losses
        for key, v in after.items():
            out[f"{run}.param.{key}"] = stored(v, sampled)
    return out


def make_file(folder, name, model, runs, sampled):
    batch = 2 if sampled else 6
    for seed in range(1000):
        try:
            out = make_values(model, runs, sampled, batch, seed)
            break
        except NearKink:
            continue
    else:
        sys.exit(f"{name}: no batches keep away from kinks")
    write_safetensors(os.path.join(folder, name + ".safetensors"), {
        "model": json.dumps(model, separators=(",", ":")), "batch": str(batch), "seed": str(seed),
        "values": "sampled" if sampled else "whole", "torch": torch.__version__}, out)


def make_schedules(folder):
    """Settings: kind (0 constant, 1 step, 2 cosine), warmup, total, step, step_factor, floor."""
    s, out = torch.optim.lr_scheduler, {}

    def add(name, settings, make):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        schedule, factors = make(optimizer), []
        for _ in range(int(settings[2]) + 1):
            factors.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        out[name + ".settings"] = np.array(settings, dtype=np.float64)
        out[name + ".factors"] = np.array(factors)

    add("constant", [0, 40, 100, 0, 0, 0], lambda o: s.LinearLR(o, 1 / 41, 1, 40))
    add("step", [1, 0, 200, 30, 0.3, 0], lambda o: s.StepLR(o, 30, 0.3))
    add("warmup_step", [1, 25, 200, 60, 0.5, 0], lambda o: s.ChainedScheduler(
        [s.LinearLR(o, 1 / 26, 1, 25), s.StepLR(o, 60, 0.5)]))
    add("cosine", [2, 0, 250, 0, 0, 0], lambda o: s.CosineAnnealingLR(o, 250))
    add("warmup_cosine", [2, 50, 250, 0, 0, 0.1], lambda o: warmup_cosine(o, 50, 250, 0.1))
    write_safetensors(os.path.join(folder, "schedules.safetensors"),
                      {"torch": torch.__version__}, out)


def conv(units, **fields):
    return "conv2d", {"units": units, **fields}


def dense(units, **fields):
    return "dense", {"units": units, **fields}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    whole, large = list(RUNS), ["momentum", "adamw"]
    small = {
        "dense": make_model([11], 5, dense(16), "gelu", dense(12, bias=False), "relu", dense(5)),
        "conv": make_model(
            [9, 8, 3], 4, conv(6, stride=2, pad=1, bias=False), "relu", conv(5, kernel=2), "gelu",
            "global_pool", dense(4)),
        "pools": make_model(
            [10, 9, 2], 4, conv(4, pad=1), "relu", ("max_pool", {"kernel": 3, "stride": 2,
            "pad": 1}), conv(5, kernel=1), ("avg_pool", {"kernel": 3, "stride": 2, "pad": 1}),
            "gelu", "max_pool", "flatten", dense(4)),
        "residual": make_model(
            [6, 6, 3], 3, conv(4, pad=1, name="stem"), ("relu", {"name": "a"}),
            conv(4, pad=1, name="branch"), ("add", {"from": ["a", "branch"]}), "relu",
            ("avg_pool", {}), "flatten", dense(8), "relu", dense(3)),
    }
    small["norms"] = make_model(
        [6, 5, 3], 3, conv(4, pad=1, bias=False), ("batch_norm", NORM),
        ("relu", {"name": "a"}),
        ("shortcut", {"units": 6, "stride": 2, "name": "s"}),
        conv(6, stride=2, pad=1, bias=False, **{"from": ["a"]}),
        ("batch_norm", {"eps": 2**-10, "momentum": 0.25, "name": "b"}), ("add", {"from": ["s", "b"]}),
        "relu", "global_pool", ("batch_norm", NORM), dense(3))
    small["layer_norms"] = make_model(
        [4, 5, 3], 3, ("layer_norm", {"eps": 2**-16}), conv(6, pad=1), ("gelu", {"tanh": True}),
        ("layer_norm", {"eps": 2**-10}), "global_pool", dense(20), ("gelu", {"tanh": True}),
        ("layer_norm", {"eps": 2**-16}), dense(3))
    eps = {"eps": 2**-16}
    small["gpt"] = make_model(
        [7], 11, ("embedding", {"units": 8}), ("layer_norm", eps), dense(24),
        ("attention", {"heads": 2}), dense(8), ("add", {"from": ["embed1", "dense2"]}),
        ("layer_norm", eps), dense(32), ("gelu", {"tanh": True}), dense(8),
        ("add", {"from": ["add1", "dense4"]}), ("layer_norm", eps), "head")
    for name, model in small.items():
        make_file(folder, name, model, whole, False)
    make_file(folder, "mlp", make_model(
        [28, 28, 1], 10, "flatten", dense(512), "relu", dense(256), "relu", dense(10)), large, True)
    make_file(folder, "cnn", make_model(
        [28, 28, 1], 10, conv(32, pad=1), "relu", conv(32, pad=1), "relu", "max_pool",
        conv(64, pad=1), "relu", "max_pool", "flatten", dense(128), "relu", dense(10)), large, True)
    make_schedules(folder)
    make_gpt2(folder)


if __name__ == "__main__":
    main()

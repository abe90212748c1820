#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What batches that adapt and optimizers around the exchanges are worth, simulated:

    sim_learning_batch.py [--parts lau qgm noloco] [--seeds N] [--epochs E] --out FOLDER DUNLIN

Each part compares methods at their best learning rates, which are chosen with a seed that is not
among those judged. Every run is kept in FOLDER; a run that is there is not repeated."""
import argparse
import json
import math
import os
import subprocess
import sys

CHOICE_SEED = 1000
RATES = {"lau": (0.02, 0.04, 0.08, 0.16), "qgm": (0.02, 0.04, 0.08), "noloco": (0.04, 0.08, 0.16)}
INTERVALS = (1, 4, 16, 32)
LAYERS = [{"type": "avg_pool", "kernel": 2}, {"type": "flatten"}, {"type": "dense", "units": 64},
          {"type": "relu"}, {"type": "dense", "units": 10}]


def scenario(name, args, agents, train, gossip, labels=0):
    """Links that hardly matter; a step takes as long as its images."""
    fleet = {"count": agents, "step_ms": 2 * train["batch"], "noise": 0.1}
    if labels:
        fleet.update(split="labels", labels=labels)
    return {"name": name, "model": {"layers": LAYERS}, "data": {"path": args.data},
            "train": {"epochs": args.epochs, **train}, "agents": fleet,
            "gossip": {"gate": "every", **gossip},
            "network": {"up_mbit": 1000, "down_mbit": 1000, "latency_ms": 0.5},
            "method": {"kind": "dunlin"}, "record": {"points": 4}}


def run(args, s, seed):
    """The last point of the run: steps, accuracy, bytes."""
    path = os.path.join(args.out, f"{s['name']}-{seed}")
    text = json.dumps(s, indent=1)
    if os.path.exists(path + ".result"):
        with open(path + ".result", encoding="utf-8") as f:
            was, last = json.load(f)
        if was == text:
            return last
    with open(path + ".json", "w", encoding="utf-8") as f:
        f.write(text)
    lines = subprocess.run([args.dunlin, "simulate", path + ".json", "--seed", str(seed), "--json",
                            "--threads", "1"], check=True, stdout=subprocess.PIPE, text=True)
    last = None
    for line in lines.stdout.splitlines():
        last = json.loads(line).get("point", last)
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump([text, last], f)
    os.replace(path + ".new", path + ".result")
    return last


def judged(args, part, make):
    """make(lr) is a scenario; its runs at the best rate: mean accuracy in %, its error, steps."""
    best = max(RATES[part], key=lambda lr: run(args, make(lr), CHOICE_SEED)["accuracy"])
    points = [run(args, make(best), seed) for seed in range(1, args.seeds + 1)]
    acc = [100 * p["accuracy"] for p in points]
    mean = sum(acc) / len(acc)
    var = sum((a - mean) ** 2 for a in acc) / max(1, len(acc) - 1)
    steps = sum(p["steps"] for p in points) / len(points)
    print(f"{make(best)['name']:24} lr {best:<5} {mean:6.2f} ± {math.sqrt(var / len(acc)):.2f} % "
          f"{steps:8.0f} steps {points[0]['bytes'] / 1e6:7.1f} MB", flush=True)
    return mean, steps


def bar(name, value, sign, limit):
    good = value >= limit if sign == ">=" else value <= limit
    print(f"bar {name} {value:.3f} {sign} {limit} {'ok' if good else 'short'}", flush=True)


def lau(args):
    gap, ratio = -100.0, 0.0
    for every in INTERVALS:
        def method(kind, every=every):
            batch = 256 if kind == "256" else 32
            train = {"batch": batch}
            if kind == "adaptive":
                train.update(batch_adapt="norm", batch_max=512)
            return lambda lr: scenario(f"lau-{kind}-h{every}-lr{lr}", args, 4,
                                       {**train, "lr": lr}, {"every": every})
        small, small_steps = judged(args, "lau", method("32"))
        judged(args, "lau", method("256"))
        ours, steps = judged(args, "lau", method("adaptive"))
        gap, ratio = max(gap, small - ours), max(ratio, steps / small_steps)
    bar("adapt_steps_ratio", ratio, "<=", 0.5)
    bar("adapt_acc_gap_pts", gap, "<=", 0.3)


def outer(args, part, kind, labels, least):
    def method(outer_kind):
        return lambda lr: scenario(f"{part}-{outer_kind}-lr{lr}", args, 16,
                                   {"batch": 32, "lr": lr}, {"every": 20, "outer": outer_kind},
                                   labels)
    plain, _ = judged(args, part, method("none"))
    ours, _ = judged(args, part, method(kind))
    bar(f"{kind}_gain_pts", ours - plain, ">=", least)


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    a.add_argument("--parts", nargs="+", default=["lau", "qgm", "noloco"],
                   choices=["lau", "qgm", "noloco"])
    a.add_argument("--seeds", type=int, default=5)
    a.add_argument("--epochs", type=float, default=6)
    a.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    a.add_argument("--out", required=True)
    a.add_argument("dunlin")
    args = a.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for part in args.parts:
        if part == "lau":
            lau(args)
        elif part == "qgm":
            outer(args, part, "qgm", 2, 2)
        else:
            outer(args, part, "noloco", 0, 0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""Simulated runs that are kept: each is one file, and what is there is not done again.

A part of a study is a function that asks for runs and returns its table. What is not there yet it
gets as None, and it is noted as wanted; so a part says by itself which runs come next, also where
these depend on earlier ones, such as the best of several learning rates.
"""
import copy
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

from bench_agents import Failed, clean_env

RUN_S_MAX = 1200
FIELDS = ("time_s", "samples", "steps", "bytes", "exchanges", "train_loss", "loss", "accuracy",
          "xi", "xi_left")
TUNING_SEED = 101  # of the runs that choose a learning rate; none of those judged


def merged(base, *more):
    """Scenarios: sections of later ones are laid over those before."""
    out = copy.deepcopy(base)
    for m in more:
        for key, value in m.items():
            if isinstance(value, dict) and isinstance(out.get(key), dict):
                out[key].update(value)
            else:
                out[key] = copy.deepcopy(value)
    return out


class Result:
    def __init__(self, kept):
        self.run, self.points, self.gate = kept["run"], kept["points"], kept.get("gate")
        self.last = self.points[-1] if self.points else dict.fromkeys(FIELDS)

    def value(self, field):
        """Of its last point, or of the run; NaN where it diverged."""
        v = self.last[field] if field in FIELDS else self.run[field]
        return math.nan if v is None or self.run["failed"] else v


class Cell:
    """What a table says of one setting: its judged runs, at the best of its learning rates."""

    def __init__(self, results, rate=None, edge=False):
        self.results, self.rate, self.edge = [r for r in results if r], rate, edge
        self.whole = bool(results) and len(self.results) == len(results)

    def values(self, field):
        return [r.value(field) for r in self.results]

    def mean(self, field):
        v = self.values(field)
        return statistics.mean(v) if v else math.nan

    def error(self, field):
        v = self.values(field)
        return statistics.stdev(v) / math.sqrt(len(v)) if len(v) > 1 else math.nan

    def text(self, field="accuracy", scale=100, digits=2):
        if not self.results:
            return "not run"
        if math.isnan(self.mean(field)):
            return "diverged"
        text = f"{scale * self.mean(field):.{digits}f}"
        if len(self.results) > 1:
            text += f" ± {scale * self.error(field):.{digits}f}"
        return text + ("" if self.whole else f" (runs: {len(self.results)})")

    def rate_text(self):
        """An asterisk: the best of the rates was the largest or the smallest of them."""
        return "" if self.rate is None else f"{self.rate:g}" + ("*" if self.edge else "")


class Lab:
    def __init__(self, dunlin, folder, workers, seeds):
        self.dunlin, self.folder = os.path.abspath(dunlin), folder
        self.workers, self.seeds = workers, seeds
        self.wanted, self.known, self.processes = {}, {}, []
        self.lock = threading.Lock()
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, re.sub(r"[^A-Za-z0-9._=-]+", "-", name) + ".json")

    def get(self, name, scenario, seed):
        """The result of that run, or None: then it is wanted."""
        name = f"{name}-seed={seed}"
        scenario = merged(scenario, {"record": {"seed": seed}})
        if name not in self.known:
            try:
                with open(self.path(name)) as f:
                    kept = json.load(f)
                if kept["scenario"] == scenario:
                    self.known[name] = Result(kept)
            except (OSError, ValueError, KeyError):
                pass
        if name not in self.known:
            self.wanted[name] = scenario
        return self.known.get(name)

    def at(self, name, scenario):
        """As it is, for each seed."""
        return Cell([self.get(name, scenario, s) for s in self.seeds])

    def best(self, name, scenario, rates):
        """At the learning rate that is best by the run of another seed."""
        def one(rate, seed):
            return self.get(f"{name}-lr={rate:g}", merged(scenario, {"train": {"lr": rate}}), seed)
        tried = [(one(rate, TUNING_SEED), rate) for rate in rates]
        if not all(r for r, _ in tried):
            return Cell([])
        worth = [r.value("accuracy") for r, _ in tried]
        k = max(range(len(rates)), key=lambda i: -1 if math.isnan(worth[i]) else worth[i])
        return Cell([one(rates[k], s) for s in self.seeds], rates[k], k in (0, len(rates) - 1))

    # ---- running

    def run_one(self, name, scenario):
        with tempfile.TemporaryDirectory(prefix=".run-", dir=self.folder) as at:
            path = os.path.join(at, "scenario.json")
            with open(path, "w") as f:
                json.dump(scenario, f)
            command = [self.dunlin, "simulate", "--threads", "1", "--out",
                       os.path.join(at, "out"), path]
            p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, env=clean_env())
            with self.lock:
                self.processes.append(p)
            try:
                _, said = p.communicate(timeout=RUN_S_MAX)
            except subprocess.TimeoutExpired:
                raise Failed(f"{name}: not done within {RUN_S_MAX} s") from None
            finally:
                if p.poll() is None:
                    p.kill()
                    p.wait()
                with self.lock:
                    self.processes.remove(p)
            kept = self.read(os.path.join(at, "out"))
            if not kept or not (kept["run"]["complete"] or "finite" in kept["run"]["failed"]):
                raise Failed(f"{name}: " + (said.strip().splitlines() or ["failed"])[-1])
            kept["scenario"] = scenario
            with open(path, "w") as f:
                json.dump(kept, f)
            shutil.move(path, self.path(name))

    @staticmethod
    def read(folder):
        kept = {"run": None, "points": []}
        try:
            with open(os.path.join(folder, "result.jsonl")) as f:
                for line in map(json.loads, f):
                    if "run" in line:
                        kept["run"] = line["run"]
                    elif "point" in line:
                        kept["points"].append({k: line["point"].get(k) for k in FIELDS})
        except OSError:
            return None
        for name in os.listdir(folder):
            if name.startswith("trace-"):
                kept["gate"] = gate_noise(os.path.join(folder, name))
        return kept if kept["run"] else None

    def run(self, deadline, told):
        """What is wanted now, in its order. False: there was no time for all."""
        todo = list(self.wanted.items())
        self.wanted.clear()
        fault = []

        def work():
            while not fault:
                with self.lock:
                    if not todo or time.monotonic() > deadline:
                        return
                    name, scenario = todo.pop(0)
                began = time.monotonic()
                try:
                    self.run_one(name, scenario)
                except (Failed, OSError) as why:
                    fault.append(why)
                    return
                told(name, time.monotonic() - began, len(todo))

        threads = [threading.Thread(target=work) for _ in range(self.workers)]
        try:
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        except BaseException:
            with self.lock:
                todo.clear()
                for p in self.processes:
                    p.kill()
            for t in threads:
                t.join()
            raise
        if fault:
            raise Failed(str(fault[0]))
        return not todo


def gate_noise(trace):
    """How much ln ‖g‖² differs from one step of an agent to its next, without the slow change: the
    standard deviation of the differences over √2; None where no gate was asked."""
    before, squares, n = {}, 0, 0
    with open(trace) as f:
        for line in f:
            if '"gate"' not in line:
                continue
            x = json.loads(line)
            if x["square"] > 0:
                now = math.log(x["square"])
                if x["agent"] in before:
                    squares += (now - before[x["agent"]]) ** 2
                    n += 1
                before[x["agent"]] = now
    return math.sqrt(squares / n / 2) if n else None

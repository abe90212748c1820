# SPDX-License-Identifier: MIT
"""What a flock costs an agent, in steps, memory and time: the parts of bench-gossip that are not
about accuracy. Agents that are compared are pinned to a core each, if there are two.
"""
import contextlib
import json
import os
import signal
import statistics
import subprocess
import time

import bench_links
from bench_agents import Failed, Flock, bar, clean_env, finish, wait_until

ROUNDS = int(os.environ.get("ROUNDS") or 5)
WINDOW_S = float(os.environ.get("WINDOW_S") or 12)
FOR_EVER = ["--epochs", 100000, "--eval-epochs", 1000, "--checkpoint-seconds", 0]


def on_core(number):
    """The prefix of a command that must run on this core alone."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[number])] if len(cores) > number else []


def rate(agent, seconds=WINDOW_S):
    """Steps per second of the agent from now on."""
    begin, first = agent.steps()
    time.sleep(seconds)
    end, last = agent.steps()
    return (last - first) / (end - begin)


def span(values):
    return f"{min(values):.1f} to {max(values):.1f}"


# ---- stall

MLP = ["--model", "mlp", "--batch", 32, "--threads", 1, *FOR_EVER]
DRIP_BITS_PER_S = 80_000  # 10 kB/s
HOSTS = ["meeting", "stopped", "cut", "drips", "good"]


def stall_alone(options, links):
    """Another agent, unknown to it, runs on the other core, so that the processor is shared as in
    stall_with_peers."""
    with Flock(options.dunlin) as flock:
        other = flock.start("drips", *MLP, before=[*links.at("drips"), *on_core(1)])
        good = flock.start("good", *MLP, before=[*links.at("good"), *on_core(0)])
        good.trains()
        other.trains()
        time.sleep(1)
        return rate(good)


def stall_with_peers(options, links):
    """The same with three peers that go bad while all exchange. The one with the slow link goes on
    training. The one that is cut off is also stopped: nobody can see that, and it leaves the
    processor to the other two."""
    with Flock(options.dunlin) as flock:
        def start(name, core):
            return flock.start(name, *meeting, *MLP, "--gate", "always",
                               listen=links.address(name) + ":0",
                               before=[*links.at(name), *on_core(core)])
        meeting = flock.meet(before=links.at("meeting"),
                             listen=links.address("meeting") + ":0")
        stopped, cut, drips = (start(name, 1) for name in ("stopped", "cut", "drips"))
        good = start("good", 0)
        good.wait_for(lambda s: s["partners"]["candidates"] == 3 and s["exchanges"]["begun"] > 3,
                      "three partners")
        stopped.signal(signal.SIGSTOP)
        links.cut("cut")
        cut.signal(signal.SIGSTOP)
        links.limit("drips", DRIP_BITS_PER_S, 2000, 20_000)
        before = good.status()["exchanges"]
        value = rate(good)
        after = good.status()
        tried = {k: v - before["outcomes"][k] for k, v in after["exchanges"]["outcomes"].items()}
        return value, tried


def stall(options):
    why = bench_links.missing()
    if why:
        print(f"stall: not measured: {why}")
        return
    alone, beside, outcomes = [], [], {}
    for _ in range(ROUNDS):
        with bench_links.Links(HOSTS) as links:
            alone.append(stall_alone(options, links))
            value, tried = stall_with_peers(options, links)
        beside.append(value)
        for k, v in tried.items():
            outcomes[k] = outcomes.get(k, 0) + v
    words = ", ".join(f"{v} {k}" for k, v in outcomes.items() if v)
    print(f"an agent (mlp, batch 32, one core) for {WINDOW_S:.0f} s from the moment at which one "
          f"peer is stopped, one cut off, one drips 10 kB/s; it wants an exchange at every step")
    print(f"  steps/s alone {statistics.median(alone):.1f} ({span(alone)}), with them "
          f"{statistics.median(beside):.1f} ({span(beside)}), {ROUNDS} rounds; "
          f"its exchanges: {words or 'none'}")
    bar("stall_steps_ratio", statistics.median(b / a for a, b in zip(alone, beside)), ">=", 0.95)


# ---- delay

DELAY_EVERY = 10   # own steps between exchanges that an agent begins
DELAY_WANTED = 20  # exchanges of each agent, for a median


def delays(options, model):
    """Of two agents: own steps from snapshot and from decision to the merge, and milliseconds of
    an exchange, each the median of what both have made."""
    with Flock(options.dunlin) as flock:
        meeting = flock.meet()
        both = [flock.start(f"a{i}", *meeting, "--model", model, "--batch", 32, "--threads", 1,
                            *FOR_EVER, "--gate", "every", "--every", DELAY_EVERY,
                            before=on_core(i)) for i in range(2)]
        first = [a.wait_for(lambda s: s["exchanges"]["outcomes"]["exchanged"] > 2,
                            "its first exchanges")["exchanges"]["outcomes"]["exchanged"]
                 for a in both]
        for a, n in zip(both, first):
            a.wait_for(lambda s, n=n: s["exchanges"]["outcomes"]["exchanged"] >= n + DELAY_WANTED,
                       "exchanges", seconds=300)
        made = [e for a in both for e in wait_until(lambda a=a: a.ask("exchanges"),
                                                    "its exchanges")["entries"][:DELAY_WANTED]
                if e["delay"] is not None]
        return [statistics.median(e[key] for e in made)
                for key in ("delay", "delay_decided", "took_ms")]


def delay(options):
    print(f"two agents on loopback, batch 32, one core each; each begins an exchange every "
          f"{DELAY_EVERY} of its steps; medians of both, of {ROUNDS} rounds")
    print(f"  {'model':5}  {'steps from snapshot':>19}  {'from the decision':>17}  {'ms':>6}")
    snapshots = {}
    for model in ("mlp", "cnn"):
        rounds = [delays(options, model) for _ in range(ROUNDS)]
        snapshot, decided, took = (statistics.median(r[k] for r in rounds) for k in range(3))
        snapshots[model] = snapshot
        print(f"  {model:5}  {snapshot:19.1f}  {decided:17.1f}  {took:6.1f}", flush=True)
    bar("exchange_delay_steps", snapshots["cnn"], "<=", 1)


# ---- overhead

CNN = ["--model", "cnn", "--batch", 32, "--threads", 1, *FOR_EVER, "--gate", "every",
       "--every", 1_000_000_000, "--silence-steps", 0]


def pair(options, silence_s):
    """Steps per second of two agents that exchange after so many seconds without an exchange, and
    the number of exchanges per second."""
    with Flock(options.dunlin) as flock:
        meeting = flock.meet()
        both = [flock.start(f"a{i}", *meeting, *CNN, "--silence-seconds", silence_s,
                            before=on_core(i)) for i in range(2)]
        for a in both:
            a.wait_for(lambda s: s["partners"]["candidates"] == 1 and s["training"]["step"] > 5,
                       "a partner")
        time.sleep(1)
        before = [(a.steps(), a.status()["exchanges"]) for a in both]
        time.sleep(WINDOW_S)
        rates, made = [], []
        for a, ((begin, first), exchanges) in zip(both, before):
            end, last = a.steps()
            after = a.status()["exchanges"]
            rates.append((last - first) / (end - begin))
            made.append((after["begun"] + after["taken"] - exchanges["begun"]
                         - exchanges["taken"]) / (end - begin))
        return statistics.mean(rates), statistics.mean(made)


def overhead(options):
    without, with_them, made = [], [], []
    for n in range(ROUNDS):
        # The order alternates, so that neither profits from being second.
        for silence in ((0, 1) if n % 2 else (1, 0)):
            steps, exchanges = pair(options, silence)
            (with_them if silence else without).append(steps)
            if silence:
                made.append(exchanges)
    print(f"two agents (cnn, batch 32, a core each), {ROUNDS} rounds of {WINDOW_S:.0f} s: steps/s "
          f"without exchanges {statistics.median(without):.2f} ({span(without)}), with "
          f"{statistics.median(made):.2f} a second {statistics.median(with_them):.2f} "
          f"({span(with_them)})")
    bar("gossip_steps_ratio",
        statistics.median(with_them) / statistics.median(without), ">=", 0.97, 3)


# ---- memory

HIDDEN = 3700  # 784-3700-4500-10: 19.6 million parameters
LAYERS = [{"type": "flatten"}, {"type": "dense", "units": HIDDEN}, {"type": "relu"},
          {"type": "dense", "units": 4500}, {"type": "relu"}, {"type": "dense", "units": 10}]


def anonymous(pid):
    """Bytes of private memory of the process, without mapped files."""
    with open(f"/proc/{pid}/status") as f:
        return 1024 * next(int(s.split()[1]) for s in f if s.startswith("RssAnon"))


def peak(pid, until, what):
    most = 0

    def over():
        nonlocal most
        most = max(most, anonymous(pid))
        return until()
    wait_until(over, what, 300, 0.01)
    return most


def memory(options):
    """Compares the peaks while training: memory for reading the data is free again by then."""
    arguments = ["--batch", "32", "--epochs", "1000", "--threads", "1",
                 "--checkpoint-seconds", "0"]
    with Flock(options.dunlin) as flock:
        config = os.path.join(flock.folder, "large.json")
        with open(config, "w") as f:
            json.dump({"model": {"layers": LAYERS}}, f)
        metrics = os.path.join(flock.folder, "alone.jsonl")
        train = subprocess.Popen(
            [options.dunlin, "train", "--config", config, *arguments, "--metrics", metrics,
             "--out", os.path.join(flock.folder, "alone")], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_env())
        try:
            wait_until(lambda: trained(metrics), "training alone")
            begin = time.monotonic()
            alone = peak(train.pid, lambda: time.monotonic() - begin > 5, "training alone")
        finally:
            train.kill()
            train.wait()
        meeting = flock.meet()
        both = [flock.start(f"a{i}", "--config", config, *meeting, *arguments)
                for i in range(2)]
        both[0].trains()
        seen = {}

        def enough():
            seen.update(both[0].ask() or {})
            e = seen.get("exchanges")
            return e and e["begun"] >= 5 and e["taken"] >= 5
        with_flock = peak(both[0].process.pid, enough, "five exchanges each way")
        parameters = seen["training"]["parameters"]
    extra = (with_flock - alone - 20e6) / (4 * parameters)
    print(f"{parameters / 1e6:.1f} million parameters ({4 * parameters / 1e6:.0f} MB): training "
          f"alone takes {alone / 1e6:.0f} MB at its peak, an agent that exchanges "
          f"{with_flock / 1e6:.0f} MB")
    bar("gossip_extra_params", max(0, extra), "<=", 2.5)


def trained(metrics):
    with contextlib.suppress(OSError), open(metrics) as f:
        return any('"event":"step"' in line for line in f)
    return False


# ---- joining

def mlp(options):
    return ["--model", "mlp", "--batch", options.batch, "--lr", options.lr, "--threads", 1,
            "--epochs", options.epochs]


def value(status):
    a = status["training"]["accuracy"]
    return a["value"] if a else None


def late(options):
    """A joiner at half of the run: (first own step, at the flock's accuracy), seconds."""
    often = ["--eval-epochs", 0.05]
    with Flock(options.dunlin) as flock:
        meeting = flock.meet()
        others = [flock.start(f"a{i}", *meeting, *often, *mlp(options)) for i in range(2)]
        others[0].wait_for(lambda s: s["training"]["clock"] * 2 >= s["training"]["total"],
                           "half of the run", 600)
        joiner = flock.start("late", *meeting, *often, *mlp(options))
        first = joiner.wait_for(lambda s: s["training"]["samples"] > 0, "a step", every=0.01)
        stepped = time.monotonic() - joiner.begin
        if not first["training"]["joined"]:
            raise Failed("the late joiner took nobody's state")

        def there():
            own, theirs = value(joiner.status()), [value(a.status()) for a in others]
            return own is not None and own >= statistics.mean(theirs) - 0.005
        wait_until(there, "the flock's accuracy", 600, 0.02)
        return stepped, time.monotonic() - joiner.begin


def whole_run(options, count):
    with Flock(options.dunlin) as flock:
        meeting = flock.meet()
        agents = [flock.start(f"a{i}", *meeting, *mlp(options), "--join-seconds", 3,
                              before=on_core(i)) for i in range(count)]
        if count > 1:
            return finish(agents)[1]
        begin = (agents[0].trains(), time.monotonic())[1]
        agents[0].wait_for(lambda s: s["training"]["phase"] in ("merging", "finished", "leaving"),
                           "the end of the run", 1800)
        return time.monotonic() - begin


def join(options):
    times = [late(options) for _ in range(3)]
    print("a joiner at half of the run (mlp, two others), seconds from its start; three times")
    print(f"  {'to its first step':<32}" + "".join(f"{t[0]:>8.2f}" for t in times))
    print(f"  {'to the flock' + chr(39) + 's accuracy (0.5 below)':<32}"
          + "".join(f"{t[1]:>8.2f}" for t in times))
    one, two = whole_run(options, 1), whole_run(options, 2)
    print(f"the whole run, a core each: one agent {one:.1f} s, two agents {two:.1f} s, "
          f"{one / two:.2f} times faster")

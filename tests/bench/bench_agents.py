# SPDX-License-Identifier: MIT
"""Real agents for the benches: started, watched through their sockets, ended by their own ids.

A Flock is a folder, a key and its processes; leaving its `with` ends whatever still runs. Agents
find each other through a meeting point, an agent that does not train: nobody is first, so all of
them begin to train together.
"""
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time

START_S_MAX = 120
RUN_S_MAX = 1800
POLL_S = 0.1


class Failed(Exception):
    pass


def clean_env():
    """The environment without the caller's own settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("DUNLIN_", "OMP_"))}


def cpu_name():
    with open("/proc/cpuinfo") as f:
        names = [s.split(":", 1)[1].strip() for s in f if s.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} cores"


def interrupted(number, frame):
    raise KeyboardInterrupt


def end_on_signals():
    """SIGTERM and SIGHUP end this as Ctrl-C does: through every `with` and `finally`."""
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGHUP, interrupted)


def wait_until(true, what, seconds=START_S_MAX, every=POLL_S):
    deadline = time.monotonic() + seconds
    while True:
        answer = true()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(every)


class Agent:
    def __init__(self, flock, name, arguments, before=(), program=None):
        self.name = name
        self.folder = os.path.join(flock.folder, name)
        self.path = os.path.join(flock.folder, name + ".sock")
        command = [*before, program or flock.dunlin, "agent", "--key", flock.key, "--name", name,
                   "--state-dir", self.folder, "--socket", self.path,
                   "--out", os.path.join(self.folder, "out"), *map(str, arguments)]
        self.log = open(os.path.join(flock.folder, name + ".log"), "w+b")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env=clean_env())

    def last_words(self):
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f"{self.name}: {lines[-1][:200] if lines else 'it ended without a word'}"

    def ask(self, what="status"):
        """The answer of its socket, None while there is none."""
        if self.process.poll() is not None:
            raise Failed(self.last_words())
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(10)
                s.connect(self.path)
                s.sendall(json.dumps({"cmd": what}).encode() + b"\n")
                with s.makefile() as f:
                    return json.loads(f.readline())
        except (OSError, ValueError):
            return None

    def status(self):
        return wait_until(self.ask, f"{self.name}'s answer")

    def steps(self):
        """(when, how many): of its own."""
        s = self.status()
        return time.monotonic(), s["training"]["step"]

    def wait_for(self, true, what, seconds=START_S_MAX, every=POLL_S):
        """The first status of which this is true."""
        def good():
            s = self.ask()
            return s if s and true(s) else None
        return wait_until(good, f"{self.name}: {what}", seconds, every)

    def trains(self):
        return self.wait_for(lambda s: s["training"]["step"] > 0, "its first step", every=0.02)

    def signal(self, number):
        self.process.send_signal(number)

    def memory(self):
        """Anonymous memory in bytes, now: what is its own, without files that are only mapped."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return 1024 * next(int(s.split()[1]) for s in f if s.startswith("RssAnon"))

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()


class Flock:
    def __init__(self, dunlin, parent=None):
        self.dunlin, self.agents = os.path.abspath(dunlin), []
        self.holder = tempfile.TemporaryDirectory(prefix="dunlin-bench-", dir=parent)
        self.folder = self.holder.name
        self.key = os.path.join(self.folder, "flock.key")
        self.meeting = None
        self.run("keygen", "--out", self.key)

    def run(self, *command):
        """What that subcommand prints."""
        done = subprocess.run([self.dunlin, *map(str, command)], capture_output=True, text=True,
                              env=clean_env())
        if done.returncode != 0:
            raise Failed(f"dunlin {command[0]}: "
                         + (done.stderr.strip().splitlines() or ["failed"])[-1])
        return done.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for a in self.agents:
            with contextlib.suppress(OSError):
                a.kill()
        self.holder.cleanup()

    def start(self, name, *arguments, before=(), listen="127.0.0.1:0", program=None):
        a = Agent(self, name, ["--listen", listen, *arguments], before, program)
        self.agents.append(a)
        return a

    def meet(self, *arguments, before=(), listen="127.0.0.1:0"):
        """Where agents find each other; returns the arguments that tell them."""
        a = self.start("meeting", "--no-train", *arguments, before=before, listen=listen)
        self.meeting = a.status()["listen"]
        return ["--seed", self.meeting]


def finish(agents, seconds=RUN_S_MAX):
    """Until each has evaluated the merged model. Returns their last statuses, and the seconds from
    the first step of any of them until the run's samples were trained."""
    begin = over = None
    last = [None] * len(agents)
    deadline = time.monotonic() + seconds
    while True:
        for i, a in enumerate(agents):
            if last[i] and finished(last[i]):
                continue
            last[i] = a.ask() or last[i]
        now = time.monotonic()
        known = [s["training"] for s in last if s]
        if begin is None and any(t["step"] > 0 for t in known):
            begin = now
        if over is None and any(map(run_over, filter(None, last))):
            over = now
        if all(s and finished(s) for s in last):
            return last, over - begin
        if now > deadline:
            raise Failed(f"the run has not ended within {seconds} s")
        time.sleep(POLL_S)


def run_over(status):
    """All samples are trained."""
    return status["training"]["phase"] in ("merging", "finished")


def finished(status):
    final = status["training"]["final"]
    return bool(final and final["merged"])


def mean_and_error(values):
    """Mean and standard error; the error of a single value is None."""
    if len(values) < 2:
        return values[0], None
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def bar(name, value, sign, bound, digits=2):
    """Prints a bar. The printed value is the one that is compared: rounded towards the worse."""
    import math
    scale = 10 ** digits
    value = (math.floor if sign == ">=" else math.ceil)(value * scale) / scale
    ok = value >= bound if sign == ">=" else value <= bound
    print(f"bar {name} {value:.{digits}f} {sign} {bound} {'ok' if ok else 'short'}", flush=True)

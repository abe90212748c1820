# SPDX-License-Identifier: MIT
"""attach() and the Flock it returns.

After each optimizer step a hook sends what the step was (one packet, never waiting) and does what
the agent has asked for meanwhile: copy the parameters out, add a difference, give or take a state.
All of it happens between two steps, on the training thread. Parameters are changed in place: their
storage never moves, and a difference is added whole or not at all.

What can fail: the agent goes away (one warning, training goes on, it is tried again, later each
time); the model changes under the flock (it is detached, in words)."""
import contextlib
import functools
import json
import logging
import mmap
import os
import re
import select
import signal
import socket
import threading
import time
import types
import weakref

import torch

from . import wire
from .measure import Measure
from .tensors import FlockError, Vectors, collect

log = logging.getLogger("dunlin_flock")

HANDSHAKE_S, AGAIN_S = 15.0, 5.0  # for WELCOME: at first, and while training waits for it
ANSWER_S = 10.0  # in which an agent that runs takes an answer
RETRY_S, RETRY_MOST_S = 1.0, 60.0
STATE_KEPT_STEPS = 200
_living = weakref.WeakSet()


def _forked():
    for flock in list(_living):
        flock._drop_in_child()


os.register_at_fork(after_in_child=_forked)


def samples_of(budget):
    """The samples of the whole run: a number, or "10 epochs of 60000"."""
    if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0:
        return budget
    m = re.fullmatch(r"\s*([0-9.]+)\s+epochs?\s+of\s+([0-9_]+)\s*", str(budget))
    total = int(float(m.group(1)) * int(m.group(2))) if m else 0
    if total <= 0:
        raise FlockError('budget: the samples of the whole run, by all agents together: a number, '
                         'or "10 epochs of 60000", not %r' % (budget,))
    return total


def agent_path(agent):
    """Of the socket that an agent of this name listens on; a path is taken as it is."""
    if "/" in agent:
        return agent
    runtime, state = os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("XDG_STATE_HOME", "")
    found = os.path.join(runtime, "dunlin", agent + ".guest")
    if runtime.startswith("/") and os.path.exists(found):
        return found
    if not state.startswith("/"):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    other = os.path.join(state, "dunlin", agent, "agent.guest")
    return other if os.path.exists(other) or not runtime.startswith("/") else found


@contextlib.contextmanager
def _uninterrupted():
    """Ctrl-C in here is taken afterwards, so that nothing is done by half."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came, before = [], signal.getsignal(signal.SIGINT)
    if before is None:  # not Python's
        yield
        return
    signal.signal(signal.SIGINT, lambda *a: came.append(a))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


class Flock:
    """See attach."""

    def __init__(self, model, optimizer, agent, run, samples_per_step, total, evaluate, buffers,
                 required):
        found = collect(model, buffers)
        self._entries = [(kind, name, tuple(t.shape)) for kind, name, t in found]
        self._tensors = [t for _, _, t in found]
        self._sizes = [t.numel() for t in self._tensors]
        self._trained = [t for kind, _, t in found if kind != wire.STATISTIC]
        self._variances = [t for kind, name, t in found
                           if kind == wire.STATISTIC and name.endswith("running_var")]
        self._n = sum(self._sizes)
        self._vectors = Vectors(optimizer)
        if not self._vectors.travels:
            log.info("the state of %s does not travel: joiners begin with a fresh one",
                     self._vectors.name)
        self._optimizer, self._evaluate = optimizer, evaluate
        self._path, self._run = agent_path(agent), run
        self.samples_per_step, self.total = samples_per_step, total
        self.steps = self.samples = self.others = 0
        self.agents = 1
        self.snapshots = self.merges = self.adoptions = 0
        self.finished = False
        self._sock = self._map = self._before = None
        self._training = self._ever_trained = self._paused = self._detached = False
        self._over = self._warned_over = False
        self._wait_s, self._retry_at = RETRY_S, 0.0
        self._measure = Measure(self._trained)
        self._pending = self._unsent = None  # the last step, until its loss may have been told
        self._loss = None
        _living.add(self)
        self._hook = self._add_hook()
        try:
            self._connect()
        except (OSError, FlockError) as e:
            if required or isinstance(e, FlockError):
                self.close()
                raise FlockError(str(e)) from None
            self._later()
            log.warning("no agent: %s; training alone, looking again", e)
        while self._sock is not None and not self._training and not self._over:
            self._serve(None)  # it looks for peers, and may take a state

    # ---- the optimizer

    def _add_hook(self):
        flock = weakref.ref(self)

        def stepped(*_):
            if flock() is not None:
                flock()._after_step()

        if hasattr(self._optimizer, "register_step_post_hook"):
            return self._optimizer.register_step_post_hook(stepped)
        # Before torch 2.0, as its schedulers do: the instance's method is wrapped.
        bound = self._optimizer.step  # a method, or what a scheduler put in its place

        @functools.wraps(getattr(bound, "__func__", bound))
        def step(_self, *args, **kwargs):
            result = bound(*args, **kwargs)
            stepped()
            return result

        wrapped = self._optimizer.step = types.MethodType(step, self._optimizer)
        optimizer = self._optimizer

        class Handle:
            @staticmethod
            def remove():
                if optimizer.__dict__.get("step") is not wrapped:
                    return
                del optimizer.step
                if isinstance(bound, types.FunctionType):
                    optimizer.step = bound

        return Handle

    def _after_step(self):
        if self._detached:
            return
        if self.done:
            if not self._warned_over:
                self._warned_over = True
                log.warning("the run's budget is trained: steps from here on are nobody's; leave "
                            "the loop when flock.done, then flock.finish()")
            self._serve(0)
            return
        with torch.no_grad():
            self._send_pending()
            self.steps += 1
            self.samples += self.samples_per_step
            self._pending = (self.steps, self.samples, self._vectors.lr())
            self._measure.stepped(self.steps)
            if self._sock is None:
                self._try_again()
            self._serve(0)
            if self.samples + self.others >= self.total:
                self._send_pending()
            while self._paused and self._sock is not None and not self.done:
                self._send_pending()
                self._serve(None)
            self._measure.before_step(self.steps)
        if self._before is not None and self.steps > self._before[0] + STATE_KEPT_STEPS:
            self._before = None

    def _send_pending(self):
        if self._pending is not None:
            (number, samples, lr), self._pending = self._pending, None
            loss, self._loss = self._loss, None
            m = self._measure.read(loss)
            # One that could not be sent before is told by this one, too: its numbers are sums.
            self._unsent = wire.step(number, samples, m.loss, lr, m.grad_norm, m.moved, m.seconds)
        if self._unsent is not None and (self._send(self._unsent) or self._sock is None):
            self._unsent = None

    # ---- the connection

    def _connect(self):
        entries = list(wire.tensors(self._entries))
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.settimeout(AGAIN_S if self._ever_trained else HANDSHAKE_S)
            try:
                s.connect(self._path)
            except OSError as e:
                raise OSError("no agent listens at %s (%s): start `dunlin agent --guest`"
                              % (self._path, e.strerror or e)) from None
            v = self._vectors
            try:
                for m in [wire.hello(v.number, v.vectors, self._evaluate is not None,
                                     len(self._entries), self.total, self.samples_per_step,
                                     self.steps, self.samples, self.others, v.lr(), v.momentum(),
                                     self._run, v.name)] + entries:
                    s.send(m)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it says why
            while True:
                try:
                    message, fds, _, _ = socket.recv_fds(s, wire.TOLD_MAX, 1)
                except ConnectionResetError:  # before it has read all; why comes behind
                    message, fds, _, _ = socket.recv_fds(s, wire.TOLD_MAX, 1)
                if not message:
                    raise OSError("the agent at %s has gone away" % self._path)
                kind, fields = wire.read(message)
                if kind == wire.REFUSED:
                    raise FlockError("the agent refuses this script: " + fields[1])
                if kind == wire.WELCOME and fds:
                    break
            self._map_memory(fds[0], *fields)
            s.setblocking(False)
            self._poll = select.poll()
            self._poll.register(s, select.POLLIN)
            self._sock = s
        except BaseException:
            s.close()
            raise
        self._training = self._paused = False
        self._pending = self._unsent = None  # HELLO has told of that step
        self._wait_s = RETRY_S

    def _map_memory(self, fd, size, at_out, at_in):
        try:
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        if hasattr(mmap, "MADV_DONTFORK"):
            self._map.madvise(mmap.MADV_DONTFORK)
        self._out = self._views(self._map, at_out)
        self._in = self._views(self._map, at_in)

    def _views(self, memory, at):
        flat = torch.frombuffer(memory, dtype=torch.float32, count=self._n, offset=at)
        return [v.view(t.shape) for v, t in zip(flat.split(self._sizes), self._tensors)]

    def _drop_in_child(self):
        self._detached = True
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _later(self):
        self._retry_at = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, RETRY_MOST_S)

    def _forget(self):
        if self._sock is not None:
            self._sock.close()
        self._sock = self._map = self._out = self._in = None
        self._paused = False
        self.agents = 1

    def _lost(self, why):
        if self._sock is None:
            return
        self._forget()
        self._later()
        if not self._over:
            log.warning("the agent is gone (%s): training goes on alone, and looks for it", why)

    def _try_again(self):
        if self._detached or time.monotonic() < self._retry_at:
            return
        try:
            self._connect()
            log.info("the agent is there again")
        except FlockError as e:
            self._detach(str(e))
        except OSError:
            self._later()

    def _detach(self, words):
        """For good: this is not the model any more that the flock trains."""
        self._send(wire.bye(words))
        self._forget()
        self._detached = True
        log.warning("detached from the flock: %s", words)

    def _send(self, message):
        if self._sock is None:
            return False
        try:
            self._sock.send(message)
            return True
        except BlockingIOError:
            return False  # the agent is slow
        except OSError as e:
            self._lost(e.strerror or str(e))
            return False

    def _answer(self, *args, **kwargs):
        """An answer must arrive: nothing else may be asked before it."""
        message, end = wire.answer(*args, **kwargs), time.monotonic() + ANSWER_S
        while self._sock is not None and not self._send(message):
            if time.monotonic() > end:
                self._lost("it takes no answer")
            elif self._sock is not None:
                select.select([], [self._sock], [], 1.0)

    def _serve(self, timeout):
        """All that is asked for; timeout None: waits until something is."""
        if self._sock is None or not self._poll.poll(1000 if timeout is None else 0):
            return
        while self._sock is not None:
            try:
                message, fds, _, _ = socket.recv_fds(self._sock, wire.TOLD_MAX, 1)
            except BlockingIOError:
                return
            except OSError as e:
                self._lost(e.strerror or str(e))
                return
            if not message:
                self._lost("it has closed the socket")
                return
            with torch.no_grad():
                self._hear(*wire.read(message), fds)

    def _hear(self, kind, fields, fds):
        if kind == wire.CLOCK:
            self.others, self.agents = max(self.others, fields[0]), fields[1]
        elif kind == wire.TRAIN:
            self._training = self._ever_trained = True
            self._paused = False
        elif kind == wire.PAUSE:
            # Before its first word to train an agent that came back asks nobody to wait.
            self._paused = self._training
        elif kind == wire.OVER:
            self._over = True
        elif kind == wire.NOTICE:
            log.warning("%s", fields[1])
        elif kind == wire.END:
            self.finished = self.finished or (self._over and fields[0])
            if self._over:
                self._forget()
            else:
                self._lost(fields[1])
        elif kind == wire.REQUEST:
            what, serial, number, size = fields
            memory = None
            if fds:
                try:
                    memory = mmap.mmap(fds[0], size)
                finally:
                    os.close(fds.pop())
            changed = self._changed()
            if changed:
                self._detach(changed)
                return
            self._do(what, serial, number, memory)
        for fd in fds:
            os.close(fd)

    # ---- what is asked for

    def _changed(self):
        for (_, name, shape), t in zip(self._entries, self._tensors):
            if tuple(t.shape) != shape or t.dtype != torch.float32:
                return "%s is %s %s now" % (name, str(t.dtype), tuple(t.shape))
            if t.device != self._tensors[0].device:
                return "%s is on %s now" % (name, t.device)
        for t in self._trained:
            if not t.requires_grad:
                return "a parameter is frozen now"
        return None

    def _do(self, what, serial, number, memory):
        if what == wire.SNAPSHOT:
            for v, t in zip(self._out, self._tensors):
                v.copy_(t)
            self.snapshots += 1
            self._answer(serial, self.steps)
        elif what == wire.APPLY:
            self._apply()
            self._answer(serial, self.steps)
        elif what == wire.EVALUATE:
            self._evaluated(serial)
        elif what == wire.RESTORE:
            self._restore()
            self._answer(serial)
        else:
            vectors = [self._views(memory, 4 * self._n * k)
                       for k in range(self._vectors.vectors)]
            if what == wire.STATE:
                for v, t in zip(vectors[0], self._tensors):
                    v.copy_(t)
                self._answer(serial, self._vectors.take(self._tensors, vectors[1:]))
            elif what == wire.TRY:
                self._try(serial, vectors[0])
            elif what == wire.ADOPT:
                self._adopt(serial, vectors, number)

    def _apply(self):
        there = self._tensors[0].device
        moved = self._in if there.type == "cpu" else [v.to(there) for v in self._in]
        with _uninterrupted():
            if hasattr(torch, "_foreach_add_"):
                torch._foreach_add_(self._tensors, moved)
            else:
                for t, v in zip(self._tensors, moved):
                    t.add_(v)
            for t in self._variances:
                t.clamp_(min=0)
        self.merges += 1
        self._measure.moved_by_others()

    def _numbers(self):
        """What evaluate() says: a loss, or (loss, correct, count)."""
        found = self._evaluate()
        loss, correct, count = found if isinstance(found, (tuple, list)) else (found, 0, 0)
        return float(loss), int(correct), int(count)

    def _evaluated(self, serial):
        if self._evaluate is None:
            self._answer(serial, failed="there is no evaluate()")
            return
        try:
            loss, correct, count = self._numbers()
        except Exception as e:  # the user's own code
            log.warning("evaluate(): %r", e)
            self._answer(serial, failed="evaluate(): %r" % e)
            return
        self._answer(serial, loss=loss, correct=correct, count=max(count, 1))

    def _try(self, serial, theirs):
        """The loss with their parameters, beside our own; ours come back to the last bit."""
        ours = [t.clone() for t in self._tensors]
        try:
            own = self._numbers()[0]
            for t, v in zip(self._tensors, theirs):
                t.copy_(v)
            loss = self._numbers()[0]
            failed = None
        except Exception as e:
            failed = "evaluate(): %r" % e
        finally:
            for t, v in zip(self._tensors, ours):
                t.copy_(v)
        if failed:
            log.warning("%s", failed)
            self._answer(serial, failed=failed)
        else:
            self._answer(serial, loss=loss, own=own)

    def _adopt(self, serial, vectors, optim_steps):
        try:  # all that needs memory first
            before = (self.steps, [t.clone() for t in self._tensors],
                      self._vectors.kept(self._trained))
            new = self._vectors.prepared(self._tensors, vectors[1:], optim_steps)
        except RuntimeError as e:
            self._answer(serial, failed="no memory for a state: %s" % e)
            return
        with _uninterrupted():
            for t, v in zip(self._tensors, vectors[0]):
                t.copy_(v)
            self._vectors.give(new)
        self._before = before
        self.adoptions += 1
        self._measure.set_anew()
        self._answer(serial)

    def _restore(self):
        if self._before is None:
            return
        _, tensors, state = self._before
        with _uninterrupted():
            for t, v in zip(self._tensors, tensors):
                t.copy_(v)
            self._vectors.back(self._trained, state)
        self._before = None
        self._measure.set_anew()
        log.warning("a peer's state made training worse: back to the one before")

    # ---- for the user

    def log(self, loss):
        """The step's loss, a tensor or a number: read later, without waiting for the device."""
        self._loss = loss.detach() if torch.is_tensor(loss) else float(loss)

    @property
    def done(self):
        """The flock's budget is trained, by all agents together."""
        return self._over or self.samples + self.others >= self.total

    @property
    def progress(self):
        """Of the run, by all agents: 0 to 1."""
        return min(1.0, (self.samples + self.others) / self.total)

    @property
    def peers(self):
        """Agents that train with this one now."""
        return max(0, int(self.agents) - 1)

    @property
    def attached(self):
        return self._sock is not None

    def _ask(self, cmd):
        path = self._path[:-6] + ".sock" if self._path.endswith(".guest") else self._path
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(10)
            try:
                s.connect(path)
                s.sendall(json.dumps({"cmd": cmd}).encode() + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    more = s.recv(65536)
                    if not more:
                        break
                    answer += more
                return json.loads(answer)
            except (OSError, ValueError) as e:
                return {"ok": False, "error": "no answer at %s: %s" % (path, e)}

    def status(self):
        """What `dunlin status --json` tells of the agent, and what this side counts."""
        return {**self._ask("status"), "guest": self.counts()}

    def counts(self):
        return {"steps": self.steps, "samples": self.samples, "others": self.others,
                "snapshots": self.snapshots, "merges": self.merges,
                "adoptions": self.adoptions, "attached": self.attached,
                "finished": self.finished}

    def pause(self):
        """The next optimizer step waits until `dunlin resume`; exchanges are not taken."""
        return self._ask("pause")

    def resume(self):
        return self._ask("resume")

    def finish(self, timeout=600.0):
        """After the last step: merges the flock's models into this one, and says goodbye. Before
        the budget is trained it only says goodbye. Returns counts()."""
        end = time.monotonic() + timeout
        with torch.no_grad():
            self._send_pending()
            while self.done and self._sock is not None and time.monotonic() < end:
                self._serve(None)
                self._send_pending()
        self.close()
        return self.counts()

    def close(self):
        """Detaches; training goes on without the flock."""
        if self._sock is not None:
            self._send(wire.bye("the script is done with it"))
        self._forget()
        self._detached = True
        self._before = None
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.finish()
        else:
            self.close()


def attach(model, optimizer, *, samples_per_step=None, budget=None, agent="agent", run="",
           evaluate=None, buffers=True, required=False):
    """Joins the flock that the local agent (`dunlin agent --guest`) is in, and returns a Flock.

    samples_per_step  samples of one optimizer.step() of this script
    budget            samples of the whole run, by all agents: a number or "10 epochs of 60000"
    agent             the agent's name, or the path of its socket
    run               the run's name, if the agent must be of that one
    evaluate          a function that returns a loss, or (loss, correct, count), on samples that
                      nobody trains on: with it a state is tried before it is taken
    buffers           float buffers (batch norm's statistics) are averaged too
    required          raise if there is no agent; else training goes on alone meanwhile

    Waits until the agent has looked for the flock; a late joiner takes a peer's parameters and the
    optimizer's moments."""
    if not isinstance(samples_per_step, int) or samples_per_step < 1:
        raise FlockError("samples_per_step: the samples of one optimizer.step(), for instance the "
                         "batch size; the run's budget is counted in them")
    if budget is None:
        raise FlockError('budget: the samples of the whole run, for instance "10 epochs of 60000"')
    if evaluate is not None and not callable(evaluate):
        raise FlockError("evaluate: a function without arguments")
    return Flock(model, optimizer, agent, run, samples_per_step, samples_of(budget), evaluate,
                 buffers, required)

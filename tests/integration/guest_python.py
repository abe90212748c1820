# SPDX-License-Identifier: MIT
"""dunlin_flock without an agent: which tensors travel, the hook, what is measured, moments. TAP."""
import logging
import math
import os
import signal
import sys
import tempfile
import unittest
import warnings
from unittest import mock

sys.path.insert(0, sys.argv.pop(1))
import torch

import dunlin_flock as dunlin
from dunlin_flock import flock as inside
from dunlin_flock import measure, tensors, wire

nowhere = tempfile.mkdtemp() + "/agent.guest"
torch.set_num_threads(1)


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5),
                               torch.nn.Linear(5, 3))


def train(model, optimizer, steps, seed=1):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(16, 6, generator=g)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def attach(model, optimizer, **more):
    more = {"samples_per_step": 16, "budget": 10**6, "agent": nowhere, **more}
    with mock.patch.object(inside.log, "warning"):
        return dunlin.attach(model, optimizer, **more)


class Tensors(unittest.TestCase):
    def test_order(self):
        found = [(kind, name) for kind, name, _ in tensors.collect(net())]
        self.assertEqual(found, [
            (0, "0.weight"), (0, "2.weight"), (1, "0.bias"), (1, "1.weight"), (1, "1.bias"),
            (1, "2.bias"), (2, "1.running_mean"), (2, "1.running_var")])
        self.assertEqual(len(tensors.collect(net(), buffers=False)), 6)

    def test_tied_frozen_wrapped(self):
        m = net()
        m.tied = torch.nn.Linear(5, 3)
        m.tied.weight = m[2].weight
        m[0].weight.requires_grad_(False)
        m.register_buffer("table", torch.ones(3), persistent=False)
        wrapped = torch.nn.Module()
        wrapped._orig_mod = m
        names = [name for _, name, _ in tensors.collect(wrapped)]
        self.assertEqual(names[:2], ["2.weight", "0.bias"])
        self.assertNotIn("table", names)
        self.assertEqual(len(names), len(set(names)))

    def test_refused_by_name(self):
        def refused(change, words):
            m = net()
            change(m)
            with self.assertRaisesRegex(dunlin.FlockError, words):
                tensors.collect(m)
        refused(lambda m: m[2].half(), "2.weight is torch.float16")
        refused(lambda m: m[0].double(), "0.weight is torch.float64")
        refused(lambda m: m.register_buffer("b", torch.ones(2).bfloat16()), "^b is torch.bfl")
        refused(lambda m: m.register_parameter("s", torch.nn.Parameter(torch.eye(2).to_sparse())),
                "^s is sparse")
        refused(lambda m: m[0].to_empty(device="meta"), "0.weight has no values")
        refused(lambda m: m.requires_grad_(False), "no parameter with requires_grad")
        refused(lambda m: m.add_module("l", torch.nn.LazyLinear(3)), "l.weight is not init")

        class DTensor(torch.nn.Parameter):
            pass
        refused(lambda m: m.register_parameter("d", DTensor(torch.ones(2))), "^d is a DTensor")

    def test_hello_in_pieces(self):
        entries = [(0, "layer.%d.%s" % (i, "x" * 200), (7, 9)) for i in range(2000)]
        pieces = list(wire.tensors(entries))
        self.assertTrue(all(len(p) <= wire.MESSAGE_MAX for p in pieces) and len(pieces) > 10)
        self.assertEqual(sum(int.from_bytes(p[1:3], "little") for p in pieces), 2000)


class Arguments(unittest.TestCase):
    def test_words(self):
        m = net()
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        for words, more in [("samples_per_step", {}), ("budget", {"samples_per_step": 4}),
                            ("budget", {"samples_per_step": 4, "budget": "ten epochs"}),
                            ("no agent listens", {"samples_per_step": 4, "budget": 10,
                                                  "agent": nowhere, "required": True})]:
            with self.assertRaisesRegex(dunlin.FlockError, words):
                dunlin.attach(m, o, **more)
        self.assertNotIn("step", o.__dict__)
        self.assertEqual(inside.samples_of("10 epochs of 60000"), 600000)
        self.assertEqual(inside.samples_of("0.5 epochs of 100"), 50)


class Hook(unittest.TestCase):
    def test_alone_until_the_budget(self):
        m = net()
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        flock = attach(m, o, budget=160)
        train(m, o, 9)
        self.assertFalse(flock.done)
        train(m, o, 1)
        self.assertTrue(flock.done and flock.progress == 1.0)
        self.assertEqual(flock.finish()["steps"], 10)
        train(m, o, 1)
        self.assertEqual(flock.steps, 10)

    def test_schedulers_before_and_after(self):
        m = net()
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9 ** n)
            flock = attach(m, o)
            second = torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9 ** n)
            for _ in range(3):
                train(m, o, 1)
                first.step()
                second.step()
        self.assertEqual(flock.steps, 3)
        flock.close()
        train(m, o, 1)
        self.assertEqual(flock.steps, 3)

    def test_public_hook(self):
        """As torch 2 has it."""
        class SGD(torch.optim.SGD):
            hooks = []

            def register_step_post_hook(self, hook):
                self.hooks.append(hook)
                return mock.Mock(remove=self.hooks.clear)

            def step(self, *args, **kwargs):
                result = super().step(*args, **kwargs)
                for h in self.hooks:
                    h(self, args, kwargs)
                return result
        m = net()
        o = SGD(m.parameters(), lr=0.1)
        flock = attach(m, o)
        train(m, o, 3)
        self.assertEqual(flock.steps, 3)
        flock.close()
        self.assertEqual(SGD.hooks, [])

    def test_closure_is_one_step(self):
        m = net()
        o = torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=5)
        flock = attach(m, o)

        def closure():
            o.zero_grad()
            loss = m(torch.ones(4, 6)).square().mean()
            loss.backward()
            return loss
        o.step(closure)
        self.assertEqual(flock.steps, 1)
        flock.close()

    def test_same_bits_as_without(self):
        """An idle flock changes nothing of what is trained."""
        a, b = net(), net()
        oa, ob = (torch.optim.Adam(m.parameters()) for m in (a, b))
        flock = attach(a, oa)
        train(a, oa, 40)
        train(b, ob, 40)
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters())))
        flock.close()

    def test_changes_are_noticed(self):
        for change, words in [(lambda m: m.double(), "float64"),
                              (lambda m: m[0].weight.requires_grad_(False), "frozen"),
                              (lambda m: setattr(m[0].weight, "data", torch.ones(2, 6)), "2, 6")]:
            m = net()
            flock = attach(m, torch.optim.SGD(m.parameters(), lr=0.1))
            self.assertIsNone(flock._changed())
            change(m)
            self.assertIn(words, flock._changed())
            flock.close()


class Apply(unittest.TestCase):
    def applied(self):
        m = net()
        flock = attach(m, torch.optim.SGD(m.parameters(), lr=0.1))
        m[0].weight.data = m[0].weight.data.t().contiguous().t()  # other strides
        before = [t.clone() for t in flock._tensors]
        flock._in = [torch.full_like(t, 0.125) for t in flock._tensors]
        places = [t.data_ptr() for t in flock._tensors]
        with torch.no_grad():
            flock._apply()
        self.assertEqual(places, [t.data_ptr() for t in flock._tensors])
        for t, b in zip(flock._tensors, before):
            self.assertTrue(torch.equal(t, b + 0.125))
        flock.close()

    def test_added(self):
        self.applied()

    def test_without_foreach(self):
        with mock.patch.object(torch, "_foreach_add_", create=True):
            del torch._foreach_add_
            self.applied()

    def test_interrupts_wait(self):
        done = []
        with self.assertRaises(KeyboardInterrupt):
            with inside._uninterrupted():
                os.kill(os.getpid(), signal.SIGINT)
                done.append(1)
        self.assertEqual(done, [1])
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


class Moments(unittest.TestCase):
    def travels(self, kind, **more):
        """A joiner's next steps are the donor's, to the last bit."""
        a, b = net(), net()
        oa, ob = (kind(m.parameters(), lr=0.01, **more) for m in (a, b))
        train(a, oa, 20)
        va, vb = tensors.Vectors(oa), tensors.Vectors(ob)
        ta, tb = ([t for _, _, t in tensors.collect(m)] for m in (a, b))
        views = [[torch.empty_like(t) for t in ta] for _ in range(va.vectors - 1)]
        steps = va.take(ta, views)
        with torch.no_grad():
            for x, y in zip(tb, ta):
                x.copy_(y)
        kept = vb.kept(tb)
        vb.give(vb.prepared(tb, views, steps))
        train(a, oa, 3, seed=2)
        train(b, ob, 3, seed=2)
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters())))
        vb.back(tb, kept)
        self.assertTrue(all(t not in ob.state for t in tb))

    def test_sgd(self):
        self.travels(torch.optim.SGD, momentum=0.9)

    def test_plain_sgd(self):
        self.travels(torch.optim.SGD)

    def test_adam(self):
        self.travels(torch.optim.Adam)

    def test_adamw(self):
        self.travels(torch.optim.AdamW)

    def test_others_do_not(self):
        v = tensors.Vectors(torch.optim.RMSprop(net().parameters()))
        self.assertFalse(v.travels)
        self.assertGreaterEqual(v.number, 32)


class Measured(unittest.TestCase):
    def test_path_and_norm(self):
        torch.manual_seed(3)
        m = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.ReLU(),
                                torch.nn.Linear(300, 50))
        o = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)
        ps = list(m.parameters())
        found = measure.Measure(ps)
        path, told = 0.0, None
        for step in range(1, 201):
            before = [p.detach().clone() for p in ps]
            loss = m(torch.randn(32, 200)).square().mean()
            o.zero_grad()
            loss.backward()
            o.step()
            path += math.sqrt(sum(float((p - b).double().square().sum())
                                  for p, b in zip(ps, before)))
            found._every = 1
            found.stepped(step)
            told = found.read(loss)
            found.before_step(step)
        norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in ps))
        self.assertLess(abs(told.moved / path - 1), 0.1)
        self.assertLess(abs(told.grad_norm / norm - 1), 1e-4)
        self.assertAlmostEqual(told.loss, float(loss), places=6)

    def test_without_foreach(self):
        t = torch.nn.Parameter(torch.zeros(3))
        t.grad = torch.tensor([3.0, 0.0, 4.0])
        with mock.patch.object(torch, "_foreach_norm", create=True):
            del torch._foreach_norm
            self.assertEqual(float(measure.Measure([t])._norm()), 5.0)


class Tap(unittest.TextTestResult):
    n = 0

    def _line(self, test, ok):
        Tap.n += 1
        print("%s %d - %s" % ("ok" if ok else "not ok", Tap.n, test.id().split(".", 1)[1]))

    def addSuccess(self, test):
        self._line(test, True)

    def addFailure(self, test, err):
        self._line(test, False)
        print("# " + self._exc_info_to_string(err, test).replace("\n", "\n# "))

    addError = addFailure


logging.disable(logging.CRITICAL)
suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
unittest.TextTestRunner(stream=open(os.devnull, "w"), resultclass=Tap).run(suite)
print("1..%d" % Tap.n)

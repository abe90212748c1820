#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The same as net_exchange.c by other libraries: two processes average a tensor, unencrypted.

    torch_gloo.py RANK FILE WORDS [gloo|torchft|hivemind]

Two of these, ranks 0 and 1, find each other through FILE. Each line on stdin is one round; each
answers `round BEGIN_NS END_NS CPU_S`, by the clock that all processes share.

gloo      PyTorch's all-reduce, then a scaling
torchft   the same through torchft's process group, which can be told to give up
hivemind  one step of its averager, the search for a partner included, with the shortest waits that
          work; its CPU time is that of other processes and not told
"""
import os
import resource
import sys
import time
from datetime import timedelta

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def gloo(rank, store, x):
    def average():
        dist.all_reduce(x)
        x.mul_(0.5)
    return average, x.copy_


def torchft(rank, store, x):
    from torchft.process_group import ProcessGroupGloo
    if rank == 0:
        torchft.server = dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
        store.set("port", str(torchft.server.port))
    group = ProcessGroupGloo(timeout=timedelta(seconds=60))
    group.configure(f"127.0.0.1:{int(store.get('port'))}/bench", "bench", rank, 2)

    def average():
        group.allreduce([x], dist.ReduceOp.SUM).wait()
        x.mul_(0.5)
    return average, x.copy_


def hivemind(rank, store, x):
    from hivemind import DHT
    from hivemind.averaging import DecentralizedAverager
    address = ["/ip4/127.0.0.1/tcp/0"]
    if rank == 0:
        dht = DHT(host_maddrs=address, start=True)
        store.set("peer", str(dht.get_visible_maddrs()[0]))
    else:
        dht = DHT(host_maddrs=address, initial_peers=[store.get("peer").decode()], start=True)
    averager = DecentralizedAverager(
        [x.clone()], dht, start=True, prefix="bench", target_group_size=2,
        min_matchmaking_time=1.0, request_timeout=0.5)

    def average():
        if averager.step(timeout=60) is None:
            sys.exit("hivemind found no group")
        with averager.get_tensors() as tensors:
            x.copy_(tensors[0])

    def fill(source):
        with averager.get_tensors() as tensors:
            tensors[0].copy_(source)
    return average, fill


def main():
    rank, path, words = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    way = {"gloo": gloo, "torchft": torchft, "hivemind": hivemind}[(sys.argv[4:] or ["gloo"])[0]]
    store = dist.FileStore(path, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(rank)
    begin_with = torch.rand(words) - 0.5
    torch.manual_seed(1 - rank)
    want = (begin_with + torch.rand(words) - 0.5) * 0.5
    x = begin_with.clone()
    average, fill = way(rank, store, x)
    print("ready", flush=True)
    for _ in sys.stdin:
        fill(begin_with)
        dist.barrier()
        cpu, begin = cpu_s(), time.monotonic_ns()
        average()
        end = time.monotonic_ns()
        used = "nan" if way is hivemind else cpu_s() - cpu
        print("round", begin, end, used, flush=True)
        if not torch.allclose(x, want, atol=1e-5):
            sys.exit("this is not the average")


if __name__ == "__main__":
    main()

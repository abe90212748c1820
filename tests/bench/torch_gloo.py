#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What net_exchange.c does, by PyTorch's gloo: all-reduce and scale, unencrypted.

    torch_gloo.py RANK FILE WORDS [torchft]

Two of these, ranks 0 and 1, find each other through FILE. Each line on stdin is one round; each
answers `round BEGIN_NS END_NS CPU_S`, by the clock that all processes share. With torchft the same
all-reduce goes through torchft's process group, which can be told to give up.
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


def main():
    rank, path, words = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    store = dist.FileStore(path, 2)
    if sys.argv[4:] == ["torchft"]:
        from torchft.process_group import ProcessGroupGloo
        server = dist.TCPStore("127.0.0.1", 0, 2, rank == 0, wait_for_workers=False) \
            if rank == 0 else None
        if server:
            store.set("port", str(server.port))
        port = int(store.get("port"))
        group = ProcessGroupGloo(timeout=timedelta(seconds=60))
        group.configure(f"127.0.0.1:{port}/bench", "bench", rank, 2)

        def average(x):
            group.allreduce([x], dist.ReduceOp.SUM).wait()
            x.mul_(0.5)

        def barrier():
            group.allreduce([torch.zeros(1)], dist.ReduceOp.SUM).wait()
    else:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        barrier = dist.barrier

        def average(x):
            dist.all_reduce(x)
            x.mul_(0.5)

    x = torch.rand(words) - 0.5 + rank
    both = x.clone()
    average(both)
    print("ready", flush=True)
    for _ in sys.stdin:
        y = x.clone()
        barrier()
        cpu, begin = cpu_s(), time.monotonic_ns()
        average(y)
        end = time.monotonic_ns()
        print("round", begin, end, cpu_s() - cpu, flush=True)
        if not torch.equal(y, both):
            sys.exit("the average is another than before")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""Network namespaces on a bridge, whose links can be slow or cut; wants root and iproute2.

Each host is a namespace with one link to the bridge, which stands in a namespace of its own; their
names have our process id in them, and leaving the `with` removes them.
"""
import contextlib
import os
import shutil
import subprocess

from bench_agents import Failed


def missing():
    """The reason why no namespaces can be made here, or None."""
    if os.geteuid() != 0:
        return "network namespaces want root"
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"{tool} (iproute2) is not installed"
    name = f"dunlin{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return "this machine makes no network namespaces"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {(done.stderr.strip() or 'failed')[:200]}")


class Links:
    def __init__(self, hosts):
        self.space = f"dunlin{os.getpid()}"
        self.names, self.hosts = [], hosts

    def __enter__(self):
        try:
            hub = self.add("hub")
            run("ip", "-n", hub, "link", "add", "switch", "type", "bridge")
            run("ip", "-n", hub, "link", "set", "switch", "up")
            for number, host in enumerate(self.hosts, 1):
                self.plug(hub, host, number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def add(self, host):
        name = f"{self.space}-{host}"
        run("ip", "netns", "add", name)
        self.names.append(name)
        return name

    def plug(self, hub, host, number):
        name = self.add(host)
        run("ip", "link", "add", host, "netns", hub, "type", "veth", "peer", "name", "eth",
            "netns", name)
        run("ip", "-n", hub, "link", "set", host, "master", "switch", "up")
        run("ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "link", "set", "eth", "up")

    def address(self, host):
        return f"10.77.0.{self.hosts.index(host) + 1}"

    def at(self, host):
        """What goes before a command that is to run there."""
        return ["ip", "netns", "exec", f"{self.space}-{host}"]

    def limit(self, host, bits_per_s, burst, limit):
        """Both directions of its link; burst and what may wait, in bytes."""
        for space, device in ((host, "eth"), ("hub", host)):
            run("tc", "-n", f"{self.space}-{space}", "qdisc", "replace", "dev", device, "root",
                "tbf", "rate", f"{bits_per_s}bit", "burst", str(burst), "limit", str(limit))

    def cut(self, host):
        """What is sent to it or by it is lost, and nobody is told."""
        run("ip", "-n", f"{self.space}-hub", "link", "set", host, "down")

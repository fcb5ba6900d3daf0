"""A cluster of unequal CPU devices made of one machine: one process per device. Each has its own CPU quota if the
kernel supports it (cgroup v1, cpu.cfs_quota_us); otherwise the runtime throttles it (zorse-run --throttle). The devices
communicate over loopback, or over a link with a limited rate (network namespaces and tbf).

    with Cluster({"a": 0.72, "b": 0.36}) as cluster:
        seconds = cluster.run(bundle, data, steps)
"""
import json
import os
import subprocess
import sys
import tempfile
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z
from jobs import Store

CGROUP = "/sys/fs/cgroup/cpu"


def write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


class Cluster:
    """
    :param shares: device -> share of a core
    :param quotas: None: where the kernel has them; False: throttle
    :param megabits: rate of the link of every device to the others; None: loopback
    """

    def __init__(self, shares, period=0.010, quotas=None, megabits=None):
        self.shares, self.period, self.megabits = shares, period, megabits
        self.devices = list(shares)
        self.group = os.path.join(CGROUP, f"zorse-{os.getpid()}")
        self.quotas = self._make_quotas() if quotas is not False else False
        if quotas and not self.quotas:
            raise z.Failure("this machine does not support CPU quotas (cgroup v1)")
        self.spaces, self.addresses = [], ["127.0.0.1"] * len(self.devices)
        self.processors = self._places()
        if megabits:
            try:
                self._make_links()
            except BaseException:
                self.__exit__()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        if self.quotas:
            for path in [self._path(d) for d in self.devices] + [self.group]:
                try:
                    os.rmdir(path)
                except OSError:
                    pass

    def describe(self):
        how = f"CPU quotas over {self.period * 1e3:g} ms" if self.quotas else "the runtime's throttle"
        links = f"links of {self.megabits:g} Mbit/s" if self.megabits else "loopback"
        return ", ".join(f"{d} {s:.0%}" for d, s in self.shares.items()) + f" of a core by {how}; {links}"

    def _path(self, device):
        return os.path.join(self.group, device)

    def _make_quotas(self):
        try:
            os.mkdir(self.group)
            write(os.path.join(self.group, "cpu.shares"), 262144)  # other processes on this machine must not use the CPU time that the quotas grant
            for device, share in self.shares.items():
                os.mkdir(self._path(device))
                write(os.path.join(self._path(device), "cpu.cfs_period_us"), round(self.period * 1e6))
                write(os.path.join(self._path(device), "cpu.cfs_quota_us"), max(1000, round(self.period * share * 1e6)))
            return True
        except OSError:
            return False

    def _places(self):
        """device -> the CPU that it is pinned to, each time the CPU with the most free capacity; none if they do not
        fit. Without pinning, the kernel migrates threads: two devices that together have more than one CPU meet on the
        same CPU, and the budget of a quota is on the CPU where a thread of the device ran last.
        """
        free = {p: 1.0 for p in sorted(os.sched_getaffinity(0))}
        places = {}
        for device in sorted(self.devices, key=lambda d: -self.shares[d]):
            places[device] = max(free, key=free.get)
            free[places[device]] -= self.shares[device]
        return places if self.quotas and min(free.values()) >= 0 else {}

    def settle(self, device):
        """The calling process becomes the device: under its quota, on its CPU."""
        if self.quotas:
            write(os.path.join(self._path(device), "cgroup.procs"), os.getpid())
        if device in self.processors:
            os.sched_setaffinity(0, {self.processors[device]})

    def _make_links(self):
        """A bridge in a separate namespace, one namespace per device, with both directions limited."""
        tag = f"z{os.getpid() % 100000}"
        hub = tag + "h"

        def must(*words):
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != 0:
                raise z.Failure(f"{' '.join(words)}: {done.stderr.strip()}")

        must("ip", "netns", "add", hub)
        self.spaces.append(hub)
        must("ip", "-n", hub, "link", "add", "name", "hub0", "type", "bridge")
        must("ip", "-n", hub, "link", "set", "dev", "hub0", "up")
        limit = ("root", "tbf", "rate", f"{self.megabits}mbit", "burst", "64k", "latency", "200ms")
        for i, device in enumerate(self.devices):
            space = f"{tag}{i}"
            must("ip", "netns", "add", space)
            self.spaces.append(space)
            self.addresses[i] = f"10.214.9.{i + 1}"
            must("ip", "link", "add", "name", "port0", "netns", space, "type", "veth", "peer", "name", f"p{i}", "netns", hub)
            must("ip", "-n", hub, "link", "set", "dev", f"p{i}", "master", "hub0", "up")
            must("ip", "-n", space, "address", "add", self.addresses[i] + "/24", "dev", "port0")
            must("ip", "-n", space, "link", "set", "dev", "port0", "up")
            must("ip", "-n", space, "link", "set", "dev", "lo", "up")
            must("tc", "-n", space, "qdisc", "add", "dev", "port0", *limit)
            must("tc", "-n", hub, "qdisc", "add", "dev", f"p{i}", *limit)

    def _start(self, device, words, environment=None, out=None, log=None, limited=True):
        """A process in the network of a device, with its quota."""
        if self.spaces:
            words = ["ip", "netns", "exec", self.spaces[1 + self.devices.index(device)]] + words
        join = (lambda: self.settle(device)) if limited else (lambda: write(os.path.join(self.group, "cgroup.procs"), os.getpid())) if self.quotas else None
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out or subprocess.DEVNULL, stderr=log or subprocess.DEVNULL, env=environment, preexec_fn=join)

    def throttle(self, devices):
        return [] if self.quotas else [f"--throttle={d}={self.shares[d]}" for d in devices]

    def _ranks(self, bundle, words, timeout=1800):
        """Runs a tool as a job: one process per device of the bundle. Raises with the message of the first process that fails."""
        with open(os.path.join(bundle, "manifest.json")) as f:
            devices = [d["name"] for d in json.load(f)["devices"]]
        ports = Store()  # reserved while it exists
        base = {k: v for k, v in os.environ.items() if not k.startswith("ZORSE_") or k == "ZORSE_GEMM"}
        base.update(ZORSE_JOB="cluster/" + uuid.uuid4().hex, ZORSE_SECRET=uuid.uuid4().hex, ZORSE_WORLD_SIZE=str(len(devices)), ZORSE_LOCAL_WORLD_SIZE=str(len(devices)),
                    ZORSE_STORE=str(ports).replace("127.0.0.1", self.addresses[self.devices.index(devices[0])]))
        with tempfile.TemporaryDirectory() as folder:
            ranks, failure = [], None
            for rank, device in enumerate(devices):
                log = open(os.path.join(folder, f"{rank}.err"), "w+")
                here = [os.path.join(z.BIN, words[0]), bundle, *map(str, words[1:]), "--local-addr", self.addresses[self.devices.index(device)], "--rdzv-timeout", "300"]
                places = {"ZORSE_RANK": str(rank), "ZORSE_LOCAL_RANK": str(rank)}
                if self.spaces:  # one host each
                    places.update(ZORSE_LOCAL_RANK="0", ZORSE_LOCAL_WORLD_SIZE="1")
                ranks.append((self._start(device, here, {**base, **places}, log=log), log, device))
            for process, log, device in ranks:
                try:
                    code = process.wait(timeout=timeout)
                except subprocess.TimeoutExpired:
                    code = None
                if code != 0 and not failure:
                    log.seek(0)
                    failure = f"device {device}: exit {code}: {log.read()[-2000:]}"
            for process, log, _ in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                log.close()
        if failure:
            raise z.Failure(failure)

    def profile(self, bundle, rows, seconds=60):
        """Runs zorse-profile: every device under its quota, all at the same time, and the links between them."""
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "profile.json")
            self._ranks(bundle, ["zorse-profile", "--batch-sizes", ",".join(map(str, rows)), "--max-seconds", seconds, "-o", output, "--quiet", *self.throttle(self.devices)])
            with open(output) as f:
                profile = json.load(f)
        return profile

    def run(self, bundle, data, steps, trace=None):
        """Executes a bundle. Returns the seconds of every step."""
        with tempfile.TemporaryDirectory() as folder:
            metrics = os.path.join(folder, "metrics.jsonl")
            with open(os.path.join(bundle, "manifest.json")) as f:
                devices = [d["name"] for d in json.load(f)["devices"]]
            self._ranks(bundle, ["zorse-run", "--data", data, "--max-steps", steps, "--metrics-file", metrics, "--quiet", "--heartbeat-timeout", 60, *self.throttle(devices)] +
                        (["--trace", trace] if trace else []))
            with open(metrics) as f:
                return [m["seconds"] for m in map(json.loads, f) if "loss" in m]

"""Gloo transports between two sites: network namespaces joined by a link with limited rate, two ranks in each; delays
are injected in the transport.

Results are bit-identical to local transports; shards cross the link once; the link is well utilized; the death of a
rank is reported across it. Needs the right to make network namespaces; without it the test reports this and succeeds.

    transport_namespaces.py [--megabits 200]
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness as z

RANK = os.path.join(z.BIN, "transport-rank")
SPACES = [f"zorse{os.getpid()}-{site}" for site in "ab"]
ADDRESSES = ["10.213.7.1", "10.213.7.2"]
SITES = [0, 0, 1, 1]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


def tc(*words):
    return subprocess.run(["tc", *words], capture_output=True, text=True)


def build(megabits):
    """Creates the two sites. Returns None, or the reason why it is not possible."""
    try:
        for done in [ip("netns", "add", SPACES[0]), ip("netns", "add", SPACES[1]),
                     ip("link", "add", "zrs", "netns", SPACES[0], "type", "veth", "peer", "name", "zrs", "netns", SPACES[1])]:
            if done.returncode != 0:
                return done.stderr.strip()
        for space, address in zip(SPACES, ADDRESSES):
            for done in [ip("-n", space, "address", "add", address + "/24", "dev", "zrs"), ip("-n", space, "link", "set", "zrs", "up"),
                         ip("-n", space, "link", "set", "lo", "up"),
                         tc("-n", space, "qdisc", "add", "dev", "zrs", "root", "tbf", "rate", f"{megabits}mbit", "burst", "64k", "latency", "100ms")]:
                if done.returncode != 0:
                    return done.stderr.strip()
    except FileNotFoundError as missing:
        return f"{missing.filename} is not installed"
    return None


def crossed():
    """Bytes sent by each site."""
    return [int(subprocess.run(["ip", "netns", "exec", s, "cat", "/sys/class/net/zrs/statistics/tx_bytes"], capture_output=True, text=True).stdout)
            for s in SPACES]


def start(mode, *words):
    folder = tempfile.mkdtemp(dir=top)
    return [subprocess.Popen(["ip", "netns", "exec", SPACES[site], RANK, mode, "--folder", folder, "--rank", str(rank), "--ranks", str(len(SITES)), "--local-addr",
                              ADDRESSES[site], *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank, site in enumerate(SITES)]


def finish(ranks):
    outs = []
    for rank, process in enumerate(ranks):
        out, err = process.communicate(timeout=120 * z.PATIENCE)
        if process.returncode != 0:
            raise z.Failure(f"rank {rank}: {err or out}")
        outs.append(out)
    return outs


def measured(mode, mib, *words):
    """Seconds of one operation, and the bytes that crossed the link in each direction."""
    repeat, before = 4, crossed()
    seconds = float(finish(start(mode, "--mib", mib, "--repeat", repeat, *words))[0])
    return seconds, [(after - b) / repeat for b, after in zip(before, crossed())]


def test():
    sites = ("--sites", ",".join(map(str, SITES)))
    for seed, extra in ((11, ()), (12, sites), (13, (*sites, "--contexts", 3)), (14, (*sites, "--delays", 15))):
        out = finish(start("random", "--seed", seed, "--operations", 24, "--count", 60000, "--max-steps", 2, *extra))
        print(f"random operations, seed {seed} {' '.join(map(str, extra))}: {out[0].strip()}")

    for seed, extra in ((1, ()), (101, sites), (201, (*sites, "--delays", 15))):
        out = finish(start("levels", "--seed", seed, "--operations", 40, *extra))
        print(f"random sums by levels, from seed {seed} {' '.join(map(str, extra))}: {out[0].strip()}")

    mib, half = 8, 4 << 20  # two of four shards are on each site
    for what, limit, words in (("the ranks do not know their sites", 2.2, ()), ("ranks know their sites", 1.12, sites)):
        seconds, bytes_ = measured("gather", mib, *words)
        shares = [b / half for b in bytes_]
        print(f"all-gather of {mib} MiB, {what}: {seconds * 1e3:.0f} ms, every shard crosses {shares[0]:.2f} and {shares[1]:.2f} times")
        if max(shares) > limit:
            raise z.Failure(f"expected at most {limit}")
    seconds, bytes_ = measured("reduce", mib, *sites)
    print(f"reduce-scatter of {mib} MiB: {seconds * 1e3:.0f} ms, {bytes_[0] / half:.2f} and {bytes_[1] / half:.2f} shards' bytes cross per shard")

    used = 0
    for contexts in (1, 4):
        seconds, _ = measured("transfer", mib, *sites, "--contexts", contexts)
        share = mib * 8 * 1.048576 / seconds / a.megabits
        print(f"transfer of {mib} MiB over {contexts} connections: {seconds * 1e3:.0f} ms, {share:.2f} of the link's rate")
        used = max(used, share)
    if used < 0.75 / z.PATIENCE:
        raise z.Failure("expected at least 0.75 of the link's rate")

    ranks = start("endless", *sites)
    time.sleep(1)
    ranks[3].send_signal(signal.SIGKILL)
    ranks[3].wait()
    killed = time.monotonic()
    for rank in (0, 1, 2):
        _, err = ranks[rank].communicate(timeout=20 * z.PATIENCE)
        if "rank 3 (cpu:3) is gone" not in err:
            raise z.Failure(f"rank {rank} says: {err}")
    print(f"a killed rank is named by all others within {(time.monotonic() - killed) * 1e3:.0f} ms")
    print(f"4 of 4 random lists and 120 sums by levels equal to the bit; {used:.2f} of a link of {a.megabits:g} Mbit/s used")


parser = argparse.ArgumentParser()
parser.add_argument("--megabits", type=float, default=200)
a = parser.parse_args()
with tempfile.TemporaryDirectory() as top:
    try:
        reason = build(a.megabits)
        if reason:
            print(f"skipped: no network namespaces with a shaped link here: {reason}")
            sys.exit(77)
        test()
    except z.Failure as failure:
        print("FAILED:", failure)
        sys.exit(1)
    finally:
        for space in SPACES:
            for pid in ip("netns", "pids", space).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", space)

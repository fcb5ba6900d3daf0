"""Profiles of a small model under CPU quotas of 80 and 40 %, set by control groups: times of unit functions relative to
those without a quota.

    profile_quota.py [--rows 1,4] [--seconds 40]

Needs root and the cpu controller (otherwise exit code 77), and an idle CPU.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

GROUPS = "/sys/fs/cgroup"
LIMIT = 0.10
PERIOD = 5000  # us


def write(path, value):
    with open(path, "w") as f:
        f.write(str(value))


class Quota:
    """A control group with a quota in percent of a CPU; it contains this process and its children while the object is entered."""

    def __init__(self, percent):
        second = os.path.exists(os.path.join(GROUPS, "cgroup.controllers"))
        self.parent = GROUPS if second else os.path.join(GROUPS, "cpu")
        self.group = os.path.join(self.parent, f"zorse-quota-{os.getpid()}-{percent}")
        quota = percent * PERIOD // 100
        os.mkdir(self.group)
        try:
            for name, value in ({"cpu.max": f"{quota} {PERIOD}"} if second else {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": quota}).items():
                write(os.path.join(self.group, name), value)
        except OSError:
            os.rmdir(self.group)
            raise

    def __enter__(self):
        write(os.path.join(self.group, "cgroup.procs"), os.getpid())

    def __exit__(self, *_):
        write(os.path.join(self.parent, "cgroup.procs"), os.getpid())
        os.rmdir(self.group)


def points(profile):
    """Seconds of the blocks' functions by class, size and kind."""
    classes = profile["devices"][0]["unit_classes"]
    return {(name, point["batch_size"], kind): point[kind]
            for name, profiles in classes.items() if name.startswith("block") for point in profiles[0]["measurements"] for kind in point if kind != "batch_size"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="1,4")
    parser.add_argument("--seconds", default="40")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle, cluster = os.path.join(folder, "gpt.zorse"), os.path.join(folder, "cluster.yaml")
        write(cluster, "nodes: [{name: here, devices: [{name: a, kind: cpu, flops_per_second: 20 GFLOP/s, memory: 1 GiB}]}]\n")
        z.compile(os.path.join(z.SMALL, "gpt-bytes.onnx"), bundle, cluster, 8, 128, training={})

        def profile():
            path = os.path.join(folder, "profile.json")
            z.call("zorse-profile", bundle, "--batch-sizes", a.rows, "--max-seconds", a.seconds, "-o", path, "--quiet")
            with open(path) as f:
                return json.load(f)

        free, worst = points(profile()), 0
        for percent in (80, 40):
            try:
                quota = Quota(percent)
            except OSError:
                print("SKIP: no control group can be made here (root and the cpu controller are needed)")
                sys.exit(77)
            with quota:
                limited = profile()
            if f"{percent / 100:g} processors by control group" not in limited["comment"]:
                sys.exit(f"the profile does not say what the quota is: {limited['comment']}")
            times = points(limited)
            ratio = statistics.median(times[key] / free[key] for key in free)
            worst = max(worst, abs(ratio * percent / 100 - 1))
            print(f"quota {percent} %: times {ratio:.2f} times those without one, expected {100 / percent:.2f} (median of {len(free)} points)")
    print(f"{'ok' if worst <= LIMIT else 'FAIL'}: at most {100 * worst:.1f} % from what the quota says (limit {100 * LIMIT:g} %)")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()

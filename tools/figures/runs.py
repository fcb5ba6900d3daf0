"""Runs the tools for figures: simulations, reports, memory maps. Simulated times do not depend on the machine."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "docs" / "figures"


class Missing(Exception):
    """A tool is not built."""


def read_json(name):
    return json.loads((SOURCES / name).read_text())


def run(tools, tool, *words):
    path = tools / tool
    if not os.access(path, os.X_OK):
        raise Missing(f"{path} is not built")
    done = subprocess.run([str(path), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} {' '.join(map(str, words))}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def model_options(figure, plan, cluster):
    return [ROOT / figure["model"], "--cluster", (SOURCES / cluster).resolve(), "--global-batch-size", read_json(plan)["global_batch_size"], "--seq-length", figure["seq_length"], "--plan", (SOURCES / plan).resolve()]


def simulate(figure, plan, cluster, tools):
    """The trace and the results of one simulated step of a plan, and the buffers of a device if the figure asks for them."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(tools, "zorse-compile", *model_options(figure, plan, cluster), "--simulate-only", "-o", folder / "m.zorse", *figure.get("options", []))
        run(tools, "zorse-run", folder / "m.zorse", "--simulate", "--simulate-steps", 1, "--trace", folder / "trace.json", "--json", folder / "simulation.json")
        found = json.loads((folder / "trace.json").read_text())["traceEvents"], json.loads((folder / "simulation.json").read_text())
        if figure["kind"] == "live-ranges":
            run(tools, "zorse-inspect", folder / "m.zorse", "--memory", figure["device"], "--svg", folder / "memory.svg")
            return *found, (folder / "memory.svg").read_text(), run(tools, "zorse-inspect", folder / "m.zorse", "--program", figure["device"])
        return found


def report(figure, tools, *options):
    """The JSON report of zorse-plan."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "report.json"
        run(tools, "zorse-plan", *options, "--json", out, "--quiet")
        return json.loads(out.read_text())


TASK = re.compile(r"([FBW])\(cell (\d+), units (\d+)-(\d+), samples (\d+)-(\d+)\)")


class Timeline:
    """Compute entries of one simulated step by device, from a trace."""

    def __init__(self, events, results, *_):
        self.names = [d["name"] for d in results["devices"]]
        self.end = results["first_step_seconds"]
        queue = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["args"]["name"] == "compute"}
        self.rows = [[] for _ in self.names]  # (begin, end, task or None, cell, samples, name)
        self.first_unit = {}  # of a cell, from its forward
        for e in events:
            if e["ph"] != "X" or (e["pid"], e["tid"]) not in queue or e["dur"] <= 0:
                continue
            found = TASK.match(e["name"])
            self.rows[e["pid"]].append((e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, found and found[1], found and int(found[2]), found and (int(found[5]), int(found[6])), e["name"]))
            if found and found[1] == "F":
                self.first_unit[int(found[2])] = int(found[3])
        self.busy = [sum(r[1] - r[0] for r in row) for row in self.rows]

    def bubble(self):
        return 1 - sum(self.busy) / len(self.busy) / self.end

    def gaps(self, device):
        """(begin, end) of idle time of a device."""
        at, found = 0, []
        for begin, end, *_ in sorted(self.rows[device]):
            if begin > at:
                found.append((at, begin))
            at = max(at, end)
        return found + [(at, self.end)] * (at < self.end)

    def in_flight(self):
        """Most micro-batches whose activations a device holds at the same time, in micro-batches of the whole stage: a chunk counts by its part of the device's forward time."""
        most = 0
        for row in self.rows:
            held = {}  # cell -> (begin, end, seconds of its forward)
            for begin, end, task, cell, _, _ in row:
                if task:
                    first, last, weight = held.get(cell, (begin, end, 0))
                    held[cell] = (min(first, begin), max(last, end), end - begin if task == "F" else weight)
            per_batch = sum(w for _, _, w in held.values()) / len({r[4] for r in row if r[2]})
            changes = sorted([(b, 1, w) for b, _, w in held.values()] + [(e, -1, w) for _, e, w in held.values()])
            now = peak = 0
            for _, sign, weight in changes:
                now += sign * weight
                peak = max(peak, now)
            most = max(most, peak / per_batch)
        return most

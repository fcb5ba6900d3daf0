#!/usr/bin/env python3
"""Writes the drawings of the documentation: SVG text, light and dark, from the sources in docs/figures.

    tools/docs_figures.py                   writes docs/figures/*.svg and the tables that come from the same simulations
    tools/docs_figures.py --check           writes into a temporary folder and compares; exit code 1 if a file differs
    tools/docs_figures.py --only NAME ...   only figures with these names
    tools/docs_figures.py --bin DIR         folder of the tools (default: $ZORSE_BIN, or build/release/bin)

docs/figures/figures.json lists the figures. Kinds:

    tiling      plan.json and cluster.yaml: units down, samples across, one color per device type
    timeline    a plan, compiled with --simulate-only and simulated with --trace: one row per device, idle time hatched
    memory      the counter "memory in use" of the same trace, one line per plan
    efficiency  the key "efficiency" of zorse-plan --json, as a waterfall
    diagram     boxes and arrows as the list has them

Kinds timeline, memory and efficiency run zorse-compile, zorse-run --simulate and zorse-plan. Simulated times do not depend on the machine.
Exit code 77: a figure needs a tool that is not built.
"""
import argparse
import concurrent.futures
import difflib
import html
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs" / "figures"
LIST = SOURCES / "figures.json"

STYLE = """svg{--fg:#1f2328;--soft:#59636e;--line:#c4ccd4;--panel:#f6f8fa;--f:#a8c7f5;--f2:#7aa6ea;--b:#a9dcb4;--b2:#74c287;--w:#f6d58e;--w2:#e5b654;--o:#c9cdd3;
--t0:#a8c7f5;--t1:#f6d58e;--t2:#a9dcb4;--t3:#e3b9e8;--t4:#f4b8a9;--t5:#b5dfe0;--bad:#d1242f;--hatch:#b9c1ca}
@media (prefers-color-scheme:dark){svg{--fg:#e6edf3;--soft:#9198a1;--line:#444c56;--panel:#1c2128;--f:#2d5796;--f2:#3f73bf;--b:#2b6a3c;--b2:#3a8a50;--w:#80611c;--w2:#a37d28;--o:#565d66;
--t0:#2d5796;--t1:#80611c;--t2:#2b6a3c;--t3:#6b3d72;--t4:#80402f;--t5:#2b6466;--bad:#ff7b72;--hatch:#4b535d}}
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--fg)}
.s{fill:var(--soft);font-size:11px}.u{font-size:11px}.h{font-size:13px;font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}.n{font-size:10px;text-anchor:middle}.c{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:11px}
.l{stroke:var(--line);fill:none}.a{stroke:var(--soft);fill:none;stroke-width:1.4}.d{stroke-dasharray:4 3}.x{stroke:var(--bad);fill:none;stroke-width:1.6}.box{fill:var(--panel);stroke:var(--line)}"""


class Missing(Exception):
    """A tool is not built."""


class Svg:
    def __init__(self, title, description=""):
        self.title, self.description, self.parts, self.width, self.height = title, description, [], 0, 0

    def grow(self, x, y):
        self.width, self.height = max(self.width, x), max(self.height, y)

    def rect(self, x, y, w, h, fill=None, cls=None, rx=0, tip=None, stroke=None):
        self.grow(x + w, y + h)
        style = ";".join([f"fill:{fill}"] * bool(fill) + [f"stroke:{stroke}"] * bool(stroke))
        attributes = (f' style="{style}"' if style else "") + (f' class="{cls}"' if cls else "") + (f' rx="{rx}"' if rx else "")
        shape = f'<rect x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}"{attributes}'
        self.parts.append(f"{shape}><title>{html.escape(tip)}</title></rect>" if tip else shape + "/>")

    def text(self, x, y, text, cls=None):
        classes = (cls or "").split()
        width = len(text) * (5.5 if "n" in classes else 6.2 if "s" in classes else 7.4 if "h" in classes else 6.8)  # an estimate
        self.grow(x + (0 if "e" in classes else width / 2 if {"m", "n"} & set(classes) else width), y + 4)
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"' + (f' class="{cls}"' if cls else "") + f">{html.escape(text)}</text>")

    def path(self, points, cls="l", arrow=False, style=None):
        for x, y in points:
            self.grow(x, y)
        shape = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path d="{shape}" class="{cls}"' + (' marker-end="url(#arrow)"' if arrow else "") + (f' style="{style}"' if style else "") + "/>")

    def write(self):
        w, h = math.ceil(self.width + 12), math.ceil(self.height + 10)
        hatch = '<pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" style="stroke:var(--hatch);stroke-width:2"/></pattern>'
        arrow = '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:var(--soft)"/></marker>'
        body = "\n".join(self.parts)
        defs = "".join(d for d, name in ((hatch, "url(#idle)"), (arrow, "url(#arrow)")) if name in body)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-labelledby="t d">\n<title id="t">{html.escape(self.title)}</title>\n'
                f'<desc id="d">{html.escape(self.description)}</desc>\n<style>{STYLE}</style>\n' + (f"<defs>{defs}</defs>\n" if defs else "") + body + "\n</svg>\n")


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def percent(value):
    return f"{100 * value:.0f} %"


def megabytes(value):
    return f"{value / 2**20:.1f} MiB"


def read_json(name):
    return json.loads((SOURCES / name).read_text())


# ---- tiling

def device_types(cluster):
    """Device name -> type of a cluster file whose devices are written in one line each ({ name: ..., ... })."""
    types = {}
    for line in (SOURCES / cluster).resolve().read_text().splitlines():
        found = re.search(r"-\s*\{(.*name:.*)\}", line.split(" #")[0])
        if not found:
            continue
        keys = dict((k.strip(), v.strip()) for k, v in (part.split(":", 1) for part in found[1].split(",")))
        kind = keys.get("type") or f"{keys.get('kind')} {float(keys.get('flops_per_second', 0)) / 1e9:g} GFLOP/s"
        count = int(keys.get("count", 1))
        for i in range(count):
            types[keys["name"] if count == 1 else f"{keys['name']}:{i}"] = kind
    return types


def check_cover(plan):
    """A plan of cells covers units × samples exactly once."""
    units = max(c["units"][1] for c in plan["cells"])
    seen = set()
    for cell in plan["cells"]:
        for u in range(*cell["units"]):
            for s in range(*cell["samples"]):
                if (u, s) in seen:
                    raise ValueError(f"unit {u} of sample {s} is in two cells")
                seen.add((u, s))
    if len(seen) != units * plan["global_batch_size"]:
        raise ValueError("cells do not cover all units of all samples")
    return units


def draw_tiling(svg, x, y, width, height, plan, types, title, kinds, short=None):
    units, batch = check_cover(plan), plan["global_batch_size"]
    svg.text(x, y - 8, title, "h")
    for cell in plan["cells"]:
        (u0, u1), (s0, s1), device = cell["units"], cell["samples"], cell["device"]
        cx, cy, cw, ch = x + width * s0 / batch, y + height * u0 / units, width * (s1 - s0) / batch, height * (u1 - u0) / units
        svg.rect(cx, cy, cw, ch, f"var(--t{kinds.index(types[device])})", tip=f"{device}: units {u0}-{u1}, samples {s0}-{s1}", stroke="var(--fg)")
        label = (short or {}).get(device, device)
        if cw >= 7 * len(label) and ch >= 13:
            svg.text(cx + cw / 2, cy + ch / 2 + 4, label, "n")
    for sample in range(0, batch + 1, batch // 4):
        svg.text(x + width * sample / batch, y + height + 14, str(sample), "s m")
    for unit in range(0, units + 1, max(1, units // 5)):
        svg.text(x - 5, y + height * unit / units + 4, str(unit), "s e")


def tiling(figure, _):
    svg = Svg(figure["title"], "Tilings of a training step: units downwards, samples to the right; each rectangle is one cell, one micro-batch of one device.")
    panels = figure["panels"]
    across, width, height = figure.get("across", 2), figure.get("width", 300), figure.get("height", 150)
    types = device_types(figure["cluster"])
    kinds = sorted(set(types.values()), key=list(types.values()).index)
    bottom = 0
    for i, panel in enumerate(panels):
        x, y = 40 + (i % across) * (width + 60), 34 + (i // across) * (height + 62)
        plan = read_json(panel["plan"])
        draw_tiling(svg, x, y, width, height, plan, types, panel["title"], kinds, figure.get("labels"))
        bottom = y + height
        if figure.get("owners"):
            draw_owners(svg, x + width + 60, y, 240, plan, types, kinds, figure)
    svg.text(40, bottom + 30, "samples of the step →   units ↓ (0: embedding, last: head and loss)", "s")
    x = 40
    for i, kind in enumerate(kinds):
        svg.rect(x, bottom + 40, 12, 12, f"var(--t{i})", stroke="var(--fg)")
        svg.text(x + 17, bottom + 50, kind, "s")
        x += 30 + 6.6 * len(kind)
    return svg.write()


def draw_owners(svg, x, y, width, plan, types, kinds, figure):
    svg.text(x, y - 8, "owners of the optimizer states", "h")
    for i, group in enumerate(plan["state"]["groups"]):
        top, at = y + 14 + 52 * i, x
        svg.text(x, top, f"group {group['group']}", "s")
        for owner in group["owners"]:
            w = width * owner["fraction"]
            svg.rect(at, top + 6, w, 22, f"var(--t{kinds.index(types[owner['device']])})", tip=f"{owner['device']}: {owner['fraction']:.0%}", stroke="var(--fg)")
            label = (figure.get("labels") or {}).get(owner["device"], owner["device"])
            if w >= 7 * len(label):
                svg.text(at + w / 2, top + 21, label, "n")
            at += w


# ---- simulations

def run(tools, tool, *words):
    path = tools / tool
    if not os.access(path, os.X_OK):
        raise Missing(f"{path} is not built")
    done = subprocess.run([str(path), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} {' '.join(map(str, words))}\n{done.stdout[-500:]}{done.stderr[-1500:]}")


def simulate(figure, plan, cluster, tools):
    """The trace and the results of one simulated step of a plan."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(tools, "zorse-compile", ROOT / figure["model"], "--cluster", (SOURCES / cluster).resolve(), "--global-batch-size", read_json(plan)["global_batch_size"],
            "--seq-length", figure["seq_length"], "--plan", SOURCES / plan, "--simulate-only", "-o", folder / "m.zorse", *figure.get("options", []))
        run(tools, "zorse-run", folder / "m.zorse", "--simulate", "--simulate-steps", 1, "--trace", folder / "trace.json", "--json", folder / "simulation.json")
        return json.loads((folder / "trace.json").read_text())["traceEvents"], json.loads((folder / "simulation.json").read_text())


TASK = re.compile(r"([FBW])\(cell (\d+), units (\d+)-(\d+), samples (\d+)-(\d+)\)")


class Timeline:
    """Compute instructions of one simulated step by device, from a trace."""

    def __init__(self, events, results):
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


def draw_timeline(svg, x, y, width, timeline, end, title, chunks=True):
    svg.text(x, y - 8, title, "h")
    height, gap = 22, 5
    for d, (name, row) in enumerate(zip(timeline.names, timeline.rows)):
        top = y + d * (height + gap)
        svg.text(x - 6, top + 15, name, "e")
        scale = width / end
        svg.rect(x, top, timeline.end * scale, height, "url(#idle)", stroke="var(--line)", tip=f"idle {percent(1 - timeline.busy[d] / timeline.end)}")
        begins = sorted({timeline.first_unit[r[3]] for r in row if r[2]})
        batches = sorted({r[4] for r in row if r[2]})
        for begin, finish, task, cell, samples, what in row:
            w = (finish - begin) * scale
            if w < 0.25:
                continue
            later = task and chunks and begins.index(timeline.first_unit[cell]) % 2 == 1
            svg.rect(x + begin * scale, top, w, height, f"var(--{task.lower() if task else 'o'}{'2' if later else ''})", stroke="var(--panel)" if w > 3 else None, tip=f"{what}: {begin * 1e3:.1f}-{finish * 1e3:.1f} ms")
            if task and w >= 9:
                svg.text(x + (begin + finish) / 2 * scale, top + 15, str(batches.index(samples)), "n")
        svg.text(x + end * scale + 8, top + 15, f"{percent(timeline.busy[d] / timeline.end)} busy", "s")
    return y + len(timeline.rows) * (height + gap)


def timeline(figure, simulations):
    names = {"F": "forward", "B": "backward", "W": "weight gradients (W)"}
    drawn = [(panel, Timeline(*simulations[panel["plan"]])) for panel in figure["panels"]]
    end = max([t.end for _, t in drawn] + [figure.get("end", 0)])
    svg = Svg(figure["title"], "Timelines of one simulated training step, one row per device. Digits are micro-batches; hatched time is idle.")
    x, width, y = 46, 660, 30
    for panel, t in drawn:
        flight = t.in_flight()
        text = f"{panel['title']}: {t.end * 1e3:.0f} ms, {panel.get('word', 'bubble')} {percent(t.bubble())}"
        y = draw_timeline(svg, x, y, width, t, end, text + (f", activations of {flight:g} micro-batches" if panel.get("in_flight", True) else "")) + 26
    legend = y - 14
    at = x
    tasks = [t for t in "FBW" if any(r[2] == t for _, line in drawn for row in line.rows for r in row)]
    split = "W" in tasks
    for task in tasks:
        svg.rect(at, legend, 12, 12, f"var(--{task.lower()})", stroke="var(--line)")
        name = "input gradients (B)" if split and task == "B" and figure.get("only_split") else names[task]
        svg.text(at + 17, legend + 10, name, "s")
        at += 34 + 6.2 * len(name)
    if any(len({line.first_unit[r[3]] for r in row if r[2]}) > 1 for _, line in drawn for row in line.rows):
        svg.rect(at, legend, 12, 12, "var(--f2)", stroke="var(--line)")
        svg.text(at + 17, legend + 10, "second model chunk of the device", "s")
        at += 220
    svg.rect(at, legend, 12, 12, "url(#idle)", stroke="var(--line)")
    svg.text(at + 17, legend + 10, "idle", "s")
    return svg.write()


def memory(figure, simulations):
    svg = Svg(figure["title"], "Memory of one device over a simulated step, one line per plan.")
    lines = []
    for line in figure["lines"]:
        events, results = simulations[line["plan"]]
        pid = [d["name"] for d in results["devices"]].index(figure["device"])
        points = [(e["ts"] / 1e6, e["args"]["arena 0"]) for e in events if e["ph"] == "C" and e["name"].startswith("memory in use") and e["pid"] == pid]
        lines.append((line["title"], points, results["first_step_seconds"]))
    end, top = max(l[2] for l in lines), max(b for l in lines for _, b in l[1])
    state = figure.get("state_bytes") or min(b for l in lines for _, b in l[1])
    x, y, width, height = 76, 34, 560, 220
    svg.text(x, y - 12, figure["title"], "h")
    step = 10 ** math.floor(math.log10(top / 2**20 / 2)) * 2**20
    step *= next(k for k in (1, 2, 5, 10) if top / (k * step) <= 6)
    for i in range(int(top / step) + 1):
        svg.path([(x, y + height - height * i * step / top), (x + width, y + height - height * i * step / top)])
        svg.text(x - 6, y + height - height * i * step / top + 4, f"{i * step / 2**20:g} MiB", "s e")
    svg.rect(x, y + height - height * state / top, width, height * state / top, "var(--panel)", tip="state")
    svg.text(x + 6, y + height - 5, "in use during the whole step: state, accumulated gradients", "s")
    for i, (title, points, last) in enumerate(lines):
        path, before = [], None
        for at, value in points:
            if before is not None:
                path.append((x + width * at / end, y + height - height * before / top))
            path.append((x + width * at / end, y + height - height * value / top))
            before = value
        path.append((x + width * last / end, y + height - height * before / top))
        color = ("--f2", "--w2", "--b2", "--bad")[i]
        svg.path(path, "a", style=f"stroke:var({color});stroke-width:1.8")
        svg.rect(x + width + 14, y + 34 * i, 12, 12, f"var({color})")
        svg.text(x + width + 32, y + 34 * i + 10, title)
        svg.text(x + width + 32, y + 34 * i + 24, f"peak {megabytes(max(b for _, b in points))}, step {last * 1e3:.0f} ms", "s")
    svg.text(x, y + height + 16, "0", "s m")
    svg.text(x + width, y + height + 16, f"{end * 1e3:.0f} ms", "s e")
    svg.text(x + width / 2, y + height + 16, "one training step", "s m")
    return svg.write()


def efficiency(figure, reports):
    report = reports[figure["name"]]
    factors = ["idle", "kernel", "balance", "recompute", "bubble", "exposed"]
    values = report["efficiency"]
    svg = Svg(figure["title"], "Efficiency as a product of six factors.")
    x, y, width, height = 46, 42, 560, 190
    low = math.floor(values["eta"] * 10 - 0.5) / 10 if values["eta"] > 0.3 else 0
    scale = lambda v: y + height * (1 - (v - low) / (1 - low))
    svg.text(x, y - 22, f"{figure['title']}: {values['bound_seconds'] * 1e3:.1f} ms of the bound / {report['step_seconds'] * 1e3:.1f} ms = {values['eta']:.3f}", "h")
    ticks = round((1 - low) * 10)
    for i in range(ticks + 1):
        v = low + i / 10
        svg.path([(x, scale(v)), (x + width, scale(v))])
        svg.text(x - 6, scale(v) + 4, f"{v:.1f}", "s e")
    columns = len(factors) + 2
    w = width / columns
    def bar(i, top, bottom, fill, name, text):
        svg.rect(x + i * w + 6, scale(top), w - 12, max(scale(bottom) - scale(top), 1.5), fill, stroke="var(--line)")
        svg.text(x + (i + 0.5) * w, y + height + 16, name, "s m")
        svg.text(x + (i + 0.5) * w, scale(top) - 4, text, "n")
    bar(0, 1, low, "var(--f)", "bound", "1")
    now = 1.0
    for i, factor in enumerate(factors, 1):
        bar(i, now, now * values[factor], "var(--w)", factor, f"× {values[factor]:.3f}")
        now *= values[factor]
    bar(columns - 1, now, low, "var(--b)", "η", f"{now:.3f}")
    return svg.write()


# ---- diagrams

def diagram(figure, _):
    svg = Svg(figure["title"], figure.get("description", ""))
    boxes = {}
    for box in figure["boxes"]:
        x, y, w, h = box["at"]
        boxes[box.get("id")] = box["at"]
        svg.rect(x, y, w, h, f"var({box['fill']})" if "fill" in box else None, cls=None if "fill" in box else "box", rx=5, stroke="var(--line)")
        lines = box["text"].split("\n")
        for i, line in enumerate(lines):
            svg.text(x + w / 2, y + h / 2 + 4 + 15 * (i - (len(lines) - 1) / 2), line, "m" if i == 0 else "u m" if "fill" in box else "s m")
    for line in figure.get("lines", []):
        points = []
        for p in line["points"]:
            if isinstance(p, str):  # "box.side" or "box.side+offset"
                name, side, offset = re.fullmatch(r"(\w+)\.(left|right|top|bottom)([+-]\d+)?", p).groups()
                x, y, w, h = boxes[name]
                o = int(offset or 0)
                p = {"left": (x, y + h / 2 + o), "right": (x + w, y + h / 2 + o), "top": (x + w / 2 + o, y), "bottom": (x + w / 2 + o, y + h)}[side]
            points.append(p)
        svg.path(points, line.get("class", "a"), arrow=line.get("arrow", True))
    for label in figure.get("labels", []):
        svg.text(*label["at"], label["text"], label.get("class", "s"))
    return svg.write()


KINDS = {"tiling": tiling, "timeline": timeline, "memory": memory, "efficiency": efficiency, "diagram": diagram}


def plans_of(figure):
    """(plan, cluster) of every simulation of a figure."""
    return [(p["plan"], p.get("cluster", figure["cluster"])) for p in figure.get("panels", figure.get("lines", []))] if figure["kind"] in ("timeline", "memory") else []


def make(figures, tools):
    """Name of every file -> its text; and the simulations by figure."""
    jobs, reports = {}, {}
    with concurrent.futures.ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        for figure in figures:
            for plan, cluster in plans_of(figure):
                jobs[figure["name"], plan] = pool.submit(simulate, figure, plan, cluster, tools)
        simulated = {key: job.result() for key, job in jobs.items()}
    for figure in figures:
        if figure["kind"] == "efficiency":
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "report.json"
                run(tools, "zorse-plan", ROOT / figure["model"], "--cluster", (SOURCES / figure["cluster"]).resolve(), "--global-batch-size", read_json(figure["plan"])["global_batch_size"], "--seq-length", figure["seq_length"],
                    "--plan", SOURCES / figure["plan"], "--overlap-comm", "--json", out, "--quiet")
                reports[figure["name"]] = json.loads(out.read_text())
    files = {}
    for figure in figures:
        own = {plan: result for (name, plan), result in simulated.items() if name == figure["name"]}
        files[f"docs/figures/{figure['name']}.svg"] = KINDS[figure["kind"]](figure, reports if figure["kind"] == "efficiency" else own)
    return files, simulated


def tables(figures, simulated):
    """Pages whose tables come from simulations: text between '<!-- timelines -->' and '<!-- end timelines -->'."""
    pages = {}
    for figure in figures:
        if "table" not in figure:
            continue
        rows = ["| schedule | step | bubble | activations of |", "|---|---|---|---|"]
        for name, panel in [(f["name"], p) for f in figures if f.get("page") == figure["table"] and f["kind"] == "timeline" for p in f["panels"]]:
            t = Timeline(*simulated[name, panel["plan"]])
            flight = f"{t.in_flight():g}"
            rows.append(f"| {panel['title']} | {t.end * 1e3:.0f} ms | {percent(t.bubble())} | {flight} micro-batches |")
        text = (ROOT / figure["table"]).read_text()
        new, count = re.subn(r"(<!-- timelines -->\n).*?(<!-- end timelines -->)", lambda m: m[1] + "\n".join(rows) + "\n" + m[2], text, flags=re.S)
        if count == 0:
            raise RuntimeError(f"{figure['table']} has no '<!-- timelines -->'")
        pages[figure["table"]] = new
    return pages


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path(os.environ.get("ZORSE_BIN", ROOT / "build" / "release" / "bin")))
    options = parser.parse_args()
    figures = json.loads(LIST.read_text())
    names = [f["name"] for f in figures]
    unknown = sorted(set(options.only or []) - set(names))
    if unknown:
        print(f"docs_figures.py: no figure is named {', '.join(unknown)}; figures: {', '.join(names)}", file=sys.stderr)
        return 2
    chosen = [f for f in figures if not options.only or f["name"] in options.only]
    try:
        files, simulated = make(chosen, options.bin)
        if not options.only:
            files.update(tables(figures, simulated))
    except Missing as missing:
        print(f"docs_figures.py: {missing}; build the release preset, or name the tools' folder with --bin", file=sys.stderr)
        return 77
    bad = 0
    for name, text in files.items():
        path = ROOT / name
        before = path.read_text() if path.exists() else ""
        if before == text:
            continue
        if options.check:
            bad += 1
            difference = list(difflib.unified_diff(before.splitlines(), text.splitlines(), name, name + " (new)", lineterm="", n=0))
            print("\n".join(line[:200] for line in difference[:8]))
            print(f"FAIL {name} differs from its source: run tools/docs_figures.py")
        else:
            path.write_text(text)
            print(f"wrote {name}")
    if options.check and not options.only:
        for path in sorted(SOURCES.glob("*.svg")):
            if path.stem not in names:
                bad += 1
                print(f"FAIL {path.relative_to(ROOT)}: docs/figures/figures.json does not list it")
    print(f"{len(files) - bad} of {len(files)} files are as their sources" if options.check else f"{len(files)} files")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

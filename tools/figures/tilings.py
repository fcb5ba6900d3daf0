"""Tilings of a step: units down, samples across, one color per device type; owners of the state."""
import re

from figures.runs import SOURCES, read_json
from figures.svg import Svg, legend


def device_types(cluster):
    """Device name -> type of a cluster file whose devices are written in one line each ({ name: ..., ... })."""
    types = {}
    for line in (SOURCES / cluster).resolve().read_text().splitlines():
        found = re.search(r"-\s*\{(.*name:.*)\}", line.split(" #")[0])
        if not found:
            continue
        keys = dict((k.strip(), v.strip()) for k, v in (part.split(":", 1) for part in found[1].split(",")))
        kind = keys.get("type") or f"{keys.get('kind')} {float(re.match(r'[0-9.e]+', keys['flops_per_second'])[0]) * (1e9 if 'GFLOP' in keys['flops_per_second'] else 1) / 1e9:g} GFLOP/s"
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
        svg.rect(cx, cy, cw, ch, f"t{kinds.index(types[device])}", cls="j", tip=f"{device}: units {u0}-{u1}, samples {s0}-{s1}")
        label = (short or {}).get(device, device)
        if cw >= 7 * len(label) + 2 and ch >= 14:
            svg.text(cx + cw / 2, cy + ch / 2 + 4, label, "n")
    for sample in range(0, batch + 1, batch // 4):
        svg.text(x + width * sample / batch, y + height + 15, str(sample), "s m")
    for unit in range(0, units + 1, max(1, units // 5)):
        svg.text(x - 5, y + height * unit / units + 4, str(unit), "s e")


def tiling(figure, _):
    svg = Svg(figure["title"], "Tilings of a training step: units downwards, samples to the right; each rectangle is one cell, one micro-batch of one device.")
    across, width, height = figure.get("across", 2), figure.get("width", 290), figure.get("height", 150)
    types = figure.get("types") or device_types(figure["cluster"])
    kinds = sorted(set(types.values()), key=list(types.values()).index)
    bottom = 0
    for i, panel in enumerate(figure["panels"]):
        x, y = 34 + (i % across) * (width + 56), 34 + (i // across) * (height + 64)
        plan = read_json(panel["plan"])
        draw_tiling(svg, x, y, width, height, plan, types, panel["title"], kinds, figure.get("labels"))
        bottom = y + height
        if figure.get("owners"):
            draw_owners(svg, x + width + 60, y, 240, plan, types, kinds, figure)
    svg.text(34, bottom + 34, "samples of the step →   units ↓ (0: embedding, last: head and loss)", "s")
    legend(svg, 34, bottom + 44, [(f"t{i}", kind) for i, kind in enumerate(kinds)])
    return svg.write()


def draw_owners(svg, x, y, width, plan, types, kinds, figure):
    svg.text(x, y - 8, "owners of the optimizer states", "h")
    for i, group in enumerate(plan["state"]["groups"]):
        top, at = y + 14 + 52 * i, x
        svg.text(x, top, f"group {group['group']}", "s")
        for owner in group["owners"]:
            w = width * owner["fraction"]
            svg.rect(at, top + 6, w, 22, f"t{kinds.index(types[owner['device']])}", cls="j", tip=f"{owner['device']}: {owner['fraction']:.0%}")
            label = (figure.get("labels") or {}).get(owner["device"], owner["device"])
            if w >= 7 * len(label):
                svg.text(at + w / 2, top + 21, label, "n")
            at += w

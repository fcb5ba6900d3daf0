"""Memory over a step: the sum per plan, and the live ranges of the buffers of one device."""
import math
import re

from figures.runs import Timeline
from figures.svg import Svg, legend, megabytes


def memory(figure, simulations):
    svg = Svg(figure["title"], "Memory of one device over a simulated step, one line per plan.")
    lines = []
    for line in figure["lines"]:
        events, results, *_ = simulations[line["plan"]]
        pid = [d["name"] for d in results["devices"]].index(figure["device"])
        points = [(e["ts"] / 1e6, e["args"]["arena 0"]) for e in events if e["ph"] == "C" and e["name"].startswith("memory in use") and e["pid"] == pid]
        lines.append((line["title"], points, results["first_step_seconds"]))
    end, top = max(l[2] for l in lines), max(b for l in lines for _, b in l[1])
    state = figure.get("state_bytes") or min(b for l in lines for _, b in l[1])
    x, y, width, height = 60, 34, 440, 210
    svg.text(8, y - 14, figure["title"], "h")
    step = 10 ** math.floor(math.log10(top / 2**20 / 2)) * 2**20
    step *= next(k for k in (1, 2, 5, 10) if top / (k * step) <= 6)
    for i in range(int(top / step) + 1):
        svg.path([(x, y + height - height * i * step / top), (x + width, y + height - height * i * step / top)])
        svg.text(x - 6, y + height - height * i * step / top + 4, f"{i * step / 2**20:g} MiB", "s e")
    svg.rect(x, y + height - height * state / top, width, height * state / top, "box", tip="state")
    svg.text(x + 6, y + height - 6, "in use during the whole step: state, accumulated gradients", "s")
    for i, (title, points, last) in enumerate(lines):
        path, before = [], None
        for at, value in points:
            if before is not None:
                path.append((x + width * at / end, y + height - height * before / top))
            path.append((x + width * at / end, y + height - height * value / top))
            before = value
        path.append((x + width * last / end, y + height - height * before / top))
        color = ("f2", "w2", "b2", "bad")[i]
        svg.path(path, "a", style=f"stroke:var(--{color});stroke-width:1.8")
        svg.rect(x + width + 14, y + 40 * i, 13, 13, color)
        svg.text(x + width + 34, y + 40 * i + 11, title)
        svg.text(x + width + 34, y + 40 * i + 27, f"peak {megabytes(max(b for _, b in points))}, {last * 1e3:.0f} ms", "s")
    svg.text(x, y + height + 16, "0", "s m")
    svg.text(x + width, y + height + 16, f"{end * 1e3:.0f} ms", "s e")
    svg.text(x + width / 2, y + height + 16, "one training step", "s m")
    return svg.write()


BUFFER = re.compile(r"<title>([a-z ]+) (\d+) \[(\d+):(\d+)\], (\d+) bytes at (\d+), instructions (\d+) to (\d+)</title>")
KINDS = {"saved": ("w", "saved tensors"), "activation": ("f", "activations"), "activation gradient": ("b", "their gradients"), "workspace": ("o", "workspace")}
STATE = {"parameters", "moments"}
CONSTANT = ("t3", "state, accumulated gradients")


def live_ranges(figure, simulations):
    """Every buffer of a device: when it is live (left to right) and which addresses it has (upwards)."""
    events, results, *texts = simulations[figure["plan"]]
    timeline = Timeline(events, results)
    device = timeline.names.index(figure["device"])
    lines = [line for line in texts[1].splitlines() if re.match(r" *exec\.(?!program|call)\w+ \d+ ", line)]
    times = []
    for line in lines:  # an instruction without a time takes none
        found = re.search(r"time \[([0-9.e-]+), ([0-9.e-]+)\]", line)
        times.append(tuple(map(float, found.groups())) if found else (times[-1][1] if times else 0.0,) * 2)
    buffers = {(kind, int(a), int(b), int(size), int(at), int(first), int(last)) for kind, _, a, b, size, at, first, last in BUFFER.findall(texts[0])}
    end = timeline.end
    top = max(at + size for _, _, _, size, at, _, _ in buffers)
    x, y, width, height = 60, 34, 630, 250
    svg = Svg(figure["title"], "Buffers of one device over a simulated step: live ranges from left to right, addresses upwards.")
    svg.text(8, 20, figure["title"], "h")
    scale = lambda t: x + width * min(t, end) / end
    shown = set()
    for kind, a, b, size, at, first, last in sorted(buffers):
        begin, finish = (times[first][0], times[last][1]) if kind not in STATE else (0, end)
        fill, name = KINDS.get(kind, CONSTANT)
        if height * size / top < 0.7:
            continue
        shown.add((fill, name))
        w = max(scale(finish) - scale(begin), 1)
        svg.rect(scale(begin), y + height - height * (at + size) / top, w, height * size / top, fill, cls="g" if w > 3 else None,
                 tip=f"{kind}{f' of samples {a}-{b}' if b else ''}, {size / 1024:.0f} KiB, {begin * 1e3:.1f}-{finish * 1e3:.1f} ms")
    for i in range(int(top / 2**20) + 1):
        svg.text(x - 6, y + height - height * i * 2**20 / top + 4, f"{i} MiB", "s e")
    svg.path([(x, y), (x, y + height), (x + width, y + height)], "a")
    row = y + height + 8
    svg.rect(x, row, width, 20, "i")
    for begin, finish, task, _, samples, what in timeline.rows[device]:
        w = (finish - begin) * width / end
        if w > 0.5:
            svg.rect(scale(begin), row, w, 20, task.lower() if task else "o", cls="g" if w > 3 else None)
            if task and w > 16:
                svg.text(scale((begin + finish) / 2), row + 14, task, "n")
    svg.text(x, row + 36, "0", "s m")
    svg.text(x + width, row + 36, f"{end * 1e3:.0f} ms", "s e")
    svg.text(x + width / 2, row + 36, figure["caption"], "s m")
    order = [*KINDS.values(), CONSTANT]
    legend(svg, x - 52, row + 48, sorted(shown, key=order.index))
    return svg.write()

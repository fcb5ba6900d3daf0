"""Bars and curves."""
import json
import math

from figures.runs import SOURCES
from figures.svg import Svg, legend, text_width


def efficiency(figure, report):
    factors = ["idle", "kernel", "balance", "recompute", "bubble", "exposed"]
    values = report["efficiency"]
    svg = Svg(figure["title"], "Efficiency as a product of six factors.")
    x, y, width, height = 40, 48, 640, 190
    low = math.floor(values["eta"] * 10 - 0.5) / 10 if values["eta"] > 0.3 else 0
    scale = lambda v: y + height * (1 - (v - low) / (1 - low))
    svg.text(8, y - 28, f"{figure['title']}: {values['bound_seconds'] * 1e3:.1f} ms of the bound / {report['step_seconds'] * 1e3:.1f} ms = {values['eta']:.3f}", "h")
    ticks = round((1 - low) * 10)
    for i in range(ticks + 1):
        v = low + i / 10
        svg.path([(x, scale(v)), (x + width, scale(v))])
        svg.text(x - 6, scale(v) + 4, f"{v:.1f}", "s e")
    columns = len(factors) + 2
    w = width / columns

    def bar(i, top, bottom, fill, name, text):
        svg.rect(x + i * w + 6, scale(top), w - 12, max(scale(bottom) - scale(top), 1.5), fill)
        svg.text(x + (i + 0.5) * w, y + height + 17, name, "s m")
        svg.label(x + (i + 0.5) * w, scale(top) - 5, text, "n")

    bar(0, 1, low, "f", "bound", "1")
    now = 1.0
    for i, factor in enumerate(factors, 1):
        bar(i, now, now * values[factor], "w", factor, f"× {values[factor]:.3f}")
        now *= values[factor]
    bar(columns - 1, now, low, "b", "η", f"{now:.3f}")
    return svg.write()


PURPOSES = {"state": "t3", "gathered": "t5", "gradients": "w", "activations": "f", "workspace": "o"}


def memory_bars(figure, reports):
    """Memory of a device by purpose, one bar per plan, with the predicted step time."""
    svg = Svg(figure["title"], "Memory of one device by purpose, one bar per plan.")
    rows = [(row, reports[row["title"]]) for row in figure["rows"]]
    device = lambda report: next(d["memory"] for d in report["devices"] if d["name"] == figure["device"])
    left = 16 + max(text_width(row["title"]) for row, _ in rows)
    texts = 138
    scale = (690 - left - texts) / max(device(report)["total"] for _, report in rows)
    svg.text(8, 20, figure["title"], "h")
    bottom = 44 + 32 * len(rows)
    limit = left + figure["limit_bytes"] * scale
    for i, (row, report) in enumerate(rows):
        top, x, memory = 40 + 32 * i, left, device(report)
        svg.text(left - 8, top + 16, row["title"], "e")
        for purpose, fill in PURPOSES.items():
            w = memory[purpose] * scale
            if w > 0.3:
                svg.rect(x, top, w, 23, fill, cls="g" if w > 3 else None, tip=f"{purpose}: {memory[purpose] / 2**30:.2f} GiB")
            x += w
        text = f"{memory['total'] / 2**30:.1f} GiB, {report['step_seconds']:.1f} s"
        if abs(x - limit) > 1:
            svg.path([(limit, top - 4), (limit, top + 28)], "x d")
        svg.label(x + 9 + text_width(text, 12) / 2, top + 16, text)
    svg.text(limit, bottom + 13, figure["limit"], "s r m")
    legend(svg, 14, bottom + 24, [(fill, purpose) for purpose, fill in PURPOSES.items() if any(device(r)[purpose] * scale > 1 for _, r in rows)])
    return svg.write()


def rate_bars(figure, reports):
    """Predicted throughput, one bar per report of zorse-plan; "sum" adds earlier rows."""
    svg = Svg(figure["title"], "Predicted throughput, one bar per choice of devices.")
    rates = {}
    for row in figure["rows"]:
        rates[row["title"]] = sum(rates[name] for name in row["sum"]) if "sum" in row else reports[row["title"]]["tokens_per_second"]
    left = 16 + max(text_width(title) for title in rates)
    scale = (690 - left - 110) / max(rates.values())
    svg.text(8, 20, figure["title"], "h")
    for i, row in enumerate(figure["rows"]):
        top, rate = 36 + 31 * i, rates[row["title"]]
        svg.text(left - 8, top + 16, row["title"], "e")
        svg.rect(left, top, rate * scale, 23, row.get("fill", "f"))
        svg.text(left + rate * scale + 6, top + 16, f"{float(f'{rate:.3g}'):,.0f} tokens/s", "s")
    return svg.write()


def curves(figure, _):
    """Losses of runs from metrics files, which are measured once and committed."""
    svg = Svg(figure["title"], "Loss per training step.")
    x, y, width, height = 40, 40, 640, 190
    lines = []
    for line in figure["lines"]:
        rows = [json.loads(text) for text in (SOURCES / line["metrics"]).read_text().splitlines() if text.strip()]
        lines.append((line, [(r["step"], r["loss"]) for r in rows if "loss" in r]))
    last = max(s for _, points in lines for s, _ in points)
    low, high = math.floor(min(v for _, p in lines for _, v in p)), math.ceil(max(v for _, p in lines for _, v in p))
    at = lambda s, v: (x + width * s / last, y + height * (1 - (v - low) / (high - low)))
    svg.text(8, 20, figure["title"], "h")
    for v in range(low, high + 1):
        svg.path([at(0, v), at(last, v)])
        svg.text(x - 6, at(0, v)[1] + 4, str(v), "s e")
    for s in range(0, last + 1, figure.get("tick", 50)):
        svg.text(at(s, low)[0], y + height + 16, str(s), "s m")
    svg.text(x + width / 2, y + height + 32, "training step", "s m")
    for mark in figure.get("marks", []):
        px = at(mark["step"], low)[0]
        svg.path([(px, y), (px, y + height)], "a d")
        svg.text(px + 5, y + 14, mark["text"], "s")
    for line, points in lines:
        style = f"stroke:var(--{line['fill']});stroke-width:{line.get('thick', 1.8)}"
        svg.path([at(*p) for p in points], "a", style=style)
    legend(svg, x, y + height + 42, [(line["fill"], line["title"]) for line, _ in lines if "title" in line])
    return svg.write()

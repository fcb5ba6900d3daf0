"""Timelines of a simulated step: one row per device, idle time hatched."""
from figures.runs import Timeline
from figures.svg import Svg, legend, percent, text_width

LEFT, SCALE, ROW, GAP = 54, 566, 23, 5


def draw_timeline(svg, x, y, width, timeline, end, title, word, chunks=True):
    svg.text(8, y - 9, title, "h")
    for d, (name, row) in enumerate(zip(timeline.names, timeline.rows)):
        top = y + d * (ROW + GAP)
        svg.text(x - 6, top + 16, name, "e")
        scale = width / end
        svg.rect(x, top, timeline.end * scale, ROW, "i", tip=f"idle {percent(1 - timeline.busy[d] / timeline.end)}")
        begins = sorted({timeline.first_unit[r[3]] for r in row if r[2]})
        batches = sorted({r[4] for r in row if r[2]})
        for begin, finish, task, cell, samples, what in row:
            w = (finish - begin) * scale
            if w < 0.25:
                continue
            later = task and chunks and begins.index(timeline.first_unit[cell]) % 2 == 1
            samples_text = f" of samples {samples[0]}-{samples[1]}" if task else ""
            svg.rect(x + begin * scale, top, w, ROW, (task.lower() if task else "o") + ("2" if later else ""), cls="g" if w > 3 else None, tip=f"{task}{samples_text}, {begin * 1e3:.1f}-{finish * 1e3:.1f} ms" if task else what)
            number = str(batches.index(samples)) if task else ""
            if task and w >= 8 * len(number) + 1:
                svg.text(x + (begin + finish) / 2 * scale, top + 16, number, "n")
        for begin, finish in timeline.gaps(d):
            if (finish - begin) * scale > text_width(word, 12) + 14:
                svg.label(x + (begin + finish) / 2 * scale, top + 16, word)
        svg.text(x + end * scale + 6, top + 16, f"{percent(timeline.busy[d] / timeline.end)} busy", "s")
    return y + len(timeline.rows) * (ROW + GAP)


def timeline(figure, simulations):
    names = {"F": "forward", "B": "backward", "W": "weight gradients (W)"}
    drawn = [(panel, Timeline(*simulations[panel["plan"]])) for panel in figure["panels"]]
    end = max([t.end for _, t in drawn] + [figure.get("end", 0)])
    svg = Svg(figure["title"], "Timelines of one simulated training step, one row per device. Digits are micro-batches; hatched time is idle.")
    y = 30
    for panel, t in drawn:
        word = panel.get("word", "bubble")
        text = f"{panel['title']}: {t.end * 1e3:.{1 if t.end < 0.1 else 0}f} ms, {word} {percent(t.bubble())}"
        text += f", activations of {t.in_flight():g} micro-batches" if panel.get("in_flight", True) else ""
        y = draw_timeline(svg, LEFT, y, SCALE, t, end, text, word) + 28
    tasks = [t for t in "FBW" if any(r[2] == t for _, line in drawn for row in line.rows for r in row)]
    name = lambda t: "input gradients (B)" if t == "B" and "W" in tasks and figure.get("only_split") else names[t]
    entries = [(t.lower(), name(t)) for t in tasks]
    if any(len({line.first_unit[r[3]] for r in row if r[2]}) > 1 for _, line in drawn for row in line.rows):
        entries.append(("f2", "second model chunk"))
    entries += [("o", "update")] * any(not r[2] and (r[1] - r[0]) * SCALE / end >= 1 for _, line in drawn for row in line.rows for r in row) + [("i", "idle")]
    legend(svg, LEFT, y - 16, entries)
    return svg.write()

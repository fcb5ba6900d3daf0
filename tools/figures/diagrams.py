"""Diagrams that the list of figures describes: boxes and arrows, sequences of messages, decisions, dependencies."""
import re

from figures.runs import ROOT
from figures.svg import Svg, legend, text_width


def end_of(point, boxes):
    """A point, or "box.side" with an offset: "box.left+8"."""
    if not isinstance(point, str):
        return point
    name, side, offset = re.fullmatch(r"(\w+)\.(left|right|top|bottom)([+-]\d+)?", point).groups()
    x, y, w, h = boxes[name]
    o = int(offset or 0)
    return {"left": (x, y + h / 2 + o), "right": (x + w, y + h / 2 + o), "top": (x + w / 2 + o, y), "bottom": (x + w / 2 + o, y + h)}[side]


def diagram(figure, _):
    """Boxes with lines. A line from box to box that is neither level nor upright gets a corner in the middle."""
    svg = Svg(figure["title"], figure.get("description", ""))
    boxes = {}
    for area in figure.get("areas", []):
        x, y, w, h = area["at"]
        svg.rect(x, y, w, h, area.get("fill"), cls="l d" if "fill" not in area else "k", rx=6)
        svg.text(x + 8, y + 17, area["text"], "s")
    for box in figure["boxes"]:
        x, y, w, h = box["at"]
        boxes[box.get("id")] = box["at"]
        svg.box(x, y, w, h, box["text"].split("\n"), box.get("fill", "box").removeprefix("--"), first=box.get("first", ""))
    for line in figure.get("lines", []):
        points = [end_of(p, boxes) for p in line["points"]]
        if len(points) == 2 and all(isinstance(p, str) for p in line["points"]):
            (x0, y0), (x1, y1) = points
            if x0 != x1 and y0 != y1:
                level = line["points"][0].split(".")[1][:4] in ("left", "righ")
                points = [(x0, y0), ((x0 + x1) / 2, y0), ((x0 + x1) / 2, y1), (x1, y1)] if level else [(x0, y0), (x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
        svg.path(points, line.get("class", "a"), arrow=line.get("arrow", True))
        if "text" in line:
            (x0, y0), (x1, y1) = points[len(points) // 2 - 1], points[len(points) // 2]
            svg.label((x0 + x1) / 2 + line.get("dx", 0), (y0 + y1) / 2 + 4 + line.get("dy", 0), line["text"])
    for label in figure.get("labels", []):
        svg.text(*label["at"], label["text"], label.get("class", "s"))
    if "legend" in figure:
        legend(svg, *figure["legend"]["at"], figure["legend"]["entries"])
    return svg.write()


def sequence(figure, _):
    """Messages between participants, downwards in time: [from, to, text], [at, text] for an action, or a string for a heading."""
    svg = Svg(figure["title"], figure.get("description", ""))
    names = figure["participants"]
    margin = figure.get("margin", 10 + 340 / len(names))
    center = {name: margin + (700 - 2 * margin) * i / (len(names) - 1) for i, name in enumerate(names)}
    y = 66
    rows = []
    for step in figure["steps"]:
        rows.append((y, step))
        y += 30 if isinstance(step, str) else 36
    for name in names:
        svg.path([(center[name], 44), (center[name], y - 8)], "l")
        w = text_width(name) + 24
        svg.box(center[name] - w / 2, 14, w, 30, [name])
    for y, step in rows:
        if isinstance(step, str):
            svg.rect(10, y - 14, 680, 20, "box", cls=None, rx=3)
            svg.text(18, y + 1, step, "s")
        elif len(step) == 2:
            at, text = step
            w = text_width(text, 12) + 16
            svg.box(center[at] - w / 2, y - 14, w, 24, [(text.removeprefix("! "), "u")], fill="t4" if text.startswith("! ") else "t1")
        else:
            start, end, text = step
            svg.path([(center[start], y + 5), (center[end], y + 5)], "x d" if text.startswith("✕") else "a", arrow=not text.startswith("✕"))
            svg.label((center[start] + center[end]) / 2, y, text, "u m")
    return svg.write()


def wrap(text, width, size=13):
    lines = [""]
    for word in text.split():
        if lines[-1] and text_width(lines[-1] + " " + word, size) > width:
            lines.append("")
        lines[-1] = (lines[-1] + " " + word).strip()
    return lines


def decisions(figure, _):
    """Questions downwards; the answer "yes" leads to the right, to what to do."""
    svg = Svg(figure["title"], figure.get("description", ""))
    left, middle = figure.get("widths", [290, 334])
    x, y = 10, 10
    if "start" in figure:
        svg.box(x + left / 2 - 80, y, 160, 28, [figure["start"]], "o")
        y += 28
    for i, step in enumerate(figure["steps"]):
        question, answer = wrap(step[0], left - 24), wrap(step[1], middle - 24, 12)
        h = max(22 + 16 * len(question), 22 + 16 * len(answer), 40)
        if y > 10:
            svg.path([(x + left / 2, y), (x + left / 2, y + 22)], "a", arrow=True)
            if i:
                svg.text(x + left / 2 + 8, y + 15, step[3] if len(step) > 3 else "no", "s")
            y += 22
        last = i == len(figure["steps"]) - 1 and figure.get("open")
        svg.box(x, y, left, h, [(line, "") for line in question], "t0" if not last else "box")
        svg.path([(x + left, y + h / 2), (690 - middle, y + h / 2)], "a", arrow=True)
        svg.text(x + left + 6, y + h / 2 - 5, step[2] if len(step) > 2 else "yes", "s")
        svg.box(690 - middle, y, middle, h, [(line, "u") for line in answer], "t2")
        y += h
    return svg.write()


def dependencies(figure, _):
    """Which library links which, from the CMake files: a row uses the columns with a dot. Ordered so that all dots are on one side of the diagonal."""
    folders, uses = {}, {}
    for file in sorted((ROOT / "lib").rglob("CMakeLists.txt")):
        folder = "/".join(file.parent.relative_to(ROOT).parts[:2])
        for name, body in re.findall(r"\bzorse_(?:mlir_)?library\(\s*(\w+)([^)]*)\)", re.sub(r"#.*", "", file.read_text())):
            folders[name] = folder
            uses.setdefault(folder, set()).update(re.findall(r"\w[\w:]*", body.split("LINK", 1)[1].split("DEPENDS")[0]) if "LINK" in body else [])
    uses = {folder: ({folders[n] for n in names if n in folders} | {"lib/Base"}) - {folder} for folder, names in uses.items()}  # zorse_library links it to all
    order = []
    while len(order) < len(uses):
        ready = sorted(f for f in uses if f not in order and uses[f] <= set(order))
        if not ready:
            raise ValueError(f"cycle: {sorted(set(uses) - set(order))}")
        order += ready
    svg = Svg(figure["title"], figure.get("description", ""))
    size, x = 20, 14 + max(text_width(f) for f in order)
    y = 14
    for i, folder in enumerate(order):
        svg.text(x - 8, y + size * i + 15, folder, "e")
        for j in range(i):
            svg.rect(x + size * j, y + size * i, size, size, "t0" if order[j] in uses[folder] else None, cls="k" if order[j] in uses[folder] else "l",
                     tip=f"{folder} uses {order[j]}" if order[j] in uses[folder] else None)
        svg.rect(x + size * i, y + size * i, size, size, "o")
        if i < len(order) - 1:
            svg.text(x + size * (i + 1) + 6, y + size * i + 15, folder.removeprefix("lib/"), "s")
    return svg.write()


KINDS = {"diagram": diagram, "sequence": sequence, "decisions": decisions, "dependencies": dependencies}

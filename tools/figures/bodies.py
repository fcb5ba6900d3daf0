"""Launches of a body and the slots that they read and write, from zorse-opt --zorse-compile-functions."""
import pathlib
import re
import tempfile

from figures.runs import ROOT, run
from figures.svg import Svg, legend, text_width

MODES = {"read": "f", "write": "b", "accumulate": "w"}


def compile_bodies(figure, tools):
    """The text of all bodies of the model."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.mlir"
        path.write_text(run(tools, "zorse-import", ROOT / figure["model"], "--seq-length", figure["seq_length"]))
        return run(tools, "zorse-opt", path, "--zorse-train-pipeline", "--zorse-compile-functions", "-o", pathlib.Path(folder) / "out.mlir")


def launches_of(text, body):
    """Slots with their modes, and (name, {slot: mode}) of every launch. A slot that is written is read by launches after the first one that has it."""
    lines = re.search(rf"^body @{re.escape(body)}:.*\n((?:  .*\n)*)", text, re.M)[1].splitlines()
    slots = dict(re.match(r"  slot (\w+): (\w+)", line).groups() for line in lines if line.startswith("  slot "))
    launches, written = [], set()
    for line in lines:
        if line.startswith("  slot "):
            continue
        kernel = re.match(r"  kernel \d+ (\w+)\((.*)\) points", line)
        name, operands = (kernel[1], kernel[2]) if kernel else ("matrix product", line.split(" m ")[0])
        used = {}
        for slot in (s for s in re.findall(r"\w+", operands) if s in slots):
            used[slot] = "read" if slots[slot] == "write" and slot in written else slots[slot]
        written |= set(used)
        launches.append((name, used))
    return slots, launches


def body(figure, texts):
    svg = Svg(figure["title"], "Launches of two bodies in their order; columns are slots.")
    y = 20
    for name in figure["bodies"]:
        slots, launches = launches_of(texts[""], name)
        left = 18 + max(text_width(launch, 12) for launch, _ in launches)
        left = max(left, figure.get("left", 0))
        w = (692 - left) / len(slots)
        svg.text(8, y, "@" + name, "h")
        for i, slot in enumerate(slots):
            for k, word in enumerate(slot.split("_")):
                svg.text(left + w * (i + 0.5), y + 20 + 14 * k, word, "n")
        y += 58
        for launch, used in launches:
            svg.text(left - 8, y + 17, launch, "s e")
            for i, slot in enumerate(slots):
                mode = used.get(slot)
                svg.rect(left + w * i + 1, y, w - 2, 25, MODES.get(mode), cls="k" if mode else "l")
                if mode:
                    svg.text(left + w * (i + 0.5), y + 17, {"accumulate": "add"}.get(mode, mode), "n")
            y += 28
        y += 30
    legend(svg, 8, y - 18, [("f", "read"), ("b", "written"), ("w", "added to")])
    return svg.write()

"""Launches of a compiled function and the arguments that they read and write, from zorse-opt --zorse-compile-functions."""
import pathlib
import re
import tempfile

from figures.runs import ROOT, run
from figures.svg import Svg, legend, text_width

MODES = {"read": "f", "write": "b", "accumulate": "w"}


def compile_functions(figure, tools):
    """The text of all compiled functions of the model."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.mlir"
        path.write_text(run(tools, "zorse-import", ROOT / figure["model"], "--seq-length", figure["seq_length"]))
        return run(tools, "zorse-opt", path, "--zorse-train-pipeline", "--zorse-compile-functions", "-o", pathlib.Path(folder) / "out.mlir")


def launches_of(text, function):
    """Arguments with their modes, and (name, {argument: mode}) of every launch. An argument that is written is read by launches after the first one that has it."""
    lines = re.search(rf"^function @{re.escape(function)}:.*\n((?:  .*\n)*)", text, re.M)[1].splitlines()
    arguments = dict(re.match(r"  argument (\w+): (\w+)", line).groups() for line in lines if line.startswith("  argument "))
    launches, written = [], set()
    for line in lines:
        if line.startswith("  argument "):
            continue
        kernel = re.match(r"  kernel \d+ (\w+)\((.*)\) iterations", line)
        name, operands = (kernel[1], kernel[2]) if kernel else ("matmul", line.split(" m ")[0])
        used = {}
        for argument in (s for s in re.findall(r"\w+", operands) if s in arguments):
            used[argument] = "read" if arguments[argument] == "write" and argument in written else arguments[argument]
        written |= set(used)
        launches.append((name, used))
    return arguments, launches


def launches(figure, texts):
    svg = Svg(figure["title"], "Launches of two functions in their order; columns are arguments.")
    y = 20
    for name in figure["functions"]:
        arguments, made = launches_of(texts[""], name)
        left = 18 + max(text_width(launch, 12) for launch, _ in made)
        left = max(left, figure.get("left", 0))
        w = (692 - left) / len(arguments)
        svg.text(8, y, "@" + name, "h")
        for i, argument in enumerate(arguments):
            for k, word in enumerate(argument.split("_")):
                svg.text(left + w * (i + 0.5), y + 20 + 14 * k, word, "n")
        y += 58
        for launch, used in made:
            svg.text(left - 8, y + 17, launch, "s e")
            for i, argument in enumerate(arguments):
                mode = used.get(argument)
                svg.rect(left + w * i + 1, y, w - 2, 25, MODES.get(mode), cls="k" if mode else "l")
                if mode:
                    svg.text(left + w * (i + 0.5), y + 17, {"accumulate": "add"}.get(mode, mode), "n")
            y += 28
        y += 30
    legend(svg, 8, y - 18, [("f", "read"), ("b", "written"), ("w", "added to")])
    return svg.write()

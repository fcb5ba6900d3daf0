"""Types of the values of one transformer block in low precision, from the roundings in the graph IR."""
import pathlib
import re
import tempfile

from figures.runs import ROOT, run
from figures.svg import Svg, legend

VIEWS = {"slice", "reshape", "transpose", "broadcast"}
SHOWN = {"gather": "embed", "layer_norm": "norm", "attention": "attn", "gelu": "GELU", "matmul": "x · W", "addf": "add", "cross_entropy": "loss"}
OPERATION = re.compile(r"^ *(%[\w]+)(?::\d+)? = (?:zorse|arith|math)\.(\w+) (.*)$", re.M)


def operations(text):
    """(name, type of the first activation operand, type of the result) of every operation on activations; a bias belongs to its product."""
    types, rounded, uses = {}, {}, {}
    found = [(result, name, re.findall(r"%\w+", rest.split(" : ")[0])) for result, name, rest in OPERATION.findall(text)]
    for result, name, operands in found:
        if name == "round":
            rounded[operands[0]] = result
        for operand in operands:
            uses.setdefault(operand, []).append((result, name))
    of_parameter, listed, bias = set(), [], {}
    for result, name, operands in found:
        if all(o.startswith("%arg") or o in of_parameter for o in operands) and name != "gather":
            of_parameter.add(result)
        if name == "round":
            types[result] = "bf16"
        elif name in VIEWS:
            types[result] = types.get(operands[0], "f32")
        elif name == "addf" and any(o in bias for o in operands) and any(o in of_parameter for o in operands):
            listed[bias[next(o for o in operands if o in bias)]][2] = "bf16" if result in rounded else "f32"
        elif name in SHOWN:
            if name == "matmul":
                bias[result] = len(listed)
            activations = [o for o in operands if o not in of_parameter and not o.startswith("%arg")]
            inputs = "ids" if name == "gather" else " ".join(dict.fromkeys(sorted(types.get(o, "f32") for o in activations)))
            listed.append([SHOWN[name], inputs, "bf16" if result in rounded else "f32"])
    return listed


def lower(figure, tools):
    """The graph IR of the model, with roundings, for every panel."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.mlir"
        path.write_text(run(tools, "zorse-import", ROOT / figure["model"], "--seq-length", figure["seq_length"]))
        return [run(tools, "zorse-opt", path, "--zorse-train-pipeline=to=recognized", f"--zorse-insert-rounds={panel['rounds']}") for panel in figure["panels"]]


def casts(figure, texts):
    """One column per operation of the first block, the last norm, the head and the loss: what it reads and what it writes."""
    svg = Svg(figure["title"], "Types of the operands and results of the operations of a transformer, with and without a residual connection in f32.")
    fills = {"bf16": "t0", "f32": "t1", "ids": "o"}
    y, left = 20, 62
    for panel, text in zip(figure["panels"], texts[""]):
        listed = operations(text)
        first, last = next(i for i, o in enumerate(listed) if o[0] == "norm"), max(i for i, o in enumerate(listed) if o[0] == "norm")
        block = listed[:first] + listed[first:][:next(i for i, o in enumerate(listed[first + 1:], 1) if o[0] == "norm" and [x[0] for x in listed[first:first + i]].count("add") == 2)]
        columns = block + [["…", "", ""]] + listed[last:]
        w = (694 - left) / len(columns)
        svg.text(8, y, panel["title"], "h")
        for name, top in (("reads", y + 28), ("writes", y + 56)):
            svg.text(left - 8, top + 17, name, "s e")
        for i, (name, inputs, output) in enumerate(columns):
            svg.text(left + w * (i + 0.5), y + 20, name, "n")
            for kinds, top in ((inputs.split(), y + 28), (output.split(), y + 56)):
                for k, kind in enumerate(kinds):
                    h = 25 / len(kinds)
                    svg.rect(left + w * i + 1, top + h * k, w - 2, h, fills[kind], rx=2)
                    if len(kinds) == 1:
                        svg.text(left + w * (i + 0.5), top + 17, kind, "n")
        y += 112
    legend(svg, left, y - 14, [("t0", "bf16"), ("t1", "f32"), ("o", "ids")])
    return svg.write()

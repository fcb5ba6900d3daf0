"""Gradients of ONNX's own node cases against differences of the loss, in double precision (needs the packages onnx and numpy: tools/python-env.sh).

    python test/unit/import/node_gradients.py build/release/bin/evaluate-onnx [--keep FOLDER] [--list] [--least N] [--save FILE] [PATTERN]

Every operand of floats that may depend on a parameter is one, slightly moved off round numbers, where many operators bend; the loss is a sum of the results
with weights of their own. An element counts where the loss is smooth around it. A case whose operands of floats all have to be constants (scales, bounds)
has no gradient and is listed with what the importer says.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from node_cases import NEWEST, OLDEST, RANDOM, ROWS, arrays, collect, isRead, weights_like

warnings.filterwarnings("ignore")
LIMIT = 1e-5  # relative, of an element that is smooth


def wrap(case, operands, results, trained, moved):
    """The model whose loss sums the results, with operands `trained` as its parameters."""
    graph = onnx.GraphProto()
    graph.name = case.name
    facts = {}
    for position, info in enumerate(case.model.graph.input):
        a = operands[info.name]
        if info.name in trained:
            if moved:  # towards 0: no operand leaves the domain of a root, a logarithm or an arc
                a = (a * (1 - np.random.default_rng(position).uniform(0.01, 0.05, a.shape))).astype(a.dtype)
            facts[info.name] = {"shape": list(a.shape), "trained": True}
        graph.initializer.append(numpy_helper.from_array(a.copy(), info.name))
    graph.input.append(helper.make_tensor_value_info("z_rows", TensorProto.FLOAT, [ROWS, 1]))
    graph.node.extend(case.model.graph.node)
    graph.initializer.extend(case.model.graph.initializer)
    terms = []

    def node(op, inputs, **attributes):
        name = f"z_{len(graph.node)}"
        graph.node.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(value):
        name = f"z_c{len(graph.initializer)}"
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    for seed, (name, a) in enumerate(results.items()):
        if a.size == 0 or a.dtype.kind != "f":
            continue
        value = node("Cast", [name], to=TensorProto.FLOAT) if a.dtype != np.float32 else name
        value = node("Mul", [value, constant(weights_like(a.shape, seed))])
        whole = node("Reshape", [node("ReduceSum", [value], keepdims=0), constant(np.array([1, 1], np.int64))])
        terms.append(node("ReduceSum", [node("Mul", ["z_rows", whole])], keepdims=0))
    loss = terms[0]
    for term in terms[1:]:
        loss = node("Add", [loss, term])
    graph.output.append(helper.make_tensor_value_info(loss, TensorProto.FLOAT, []))
    opset = max(s.version for s in case.model.opset_import if s.domain in ("", "ai.onnx"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", min(max(opset, OLDEST), NEWEST["opset"]))], functions=case.model.functions,
                              ir_version=min(case.model.ir_version, NEWEST["ir"]))
    helper.set_model_props(model, {"zorse.facts": json.dumps({"version": 1, "parameters": facts})})
    return model


def compared(lines):
    """(elements that are smooth, elements that are not, the worst relative error, where)"""
    smooth, bent, worst, where = 0, 0, 0.0, ""
    for line in lines:
        words, _, differences = line.partition(" : ")
        _, name, *gradient = words.split()
        for place, difference in zip(*[iter(differences.split())] * 2):
            difference, found = float(difference), float(gradient[int(place)]) if gradient else 0.0
            if math.isnan(difference):
                bent += 1
                continue
            smooth += 1
            error = abs(found - difference) / max(abs(difference), 1.0)
            if not error <= worst:
                worst, where = error if not math.isnan(error) else math.inf, f"{name}[{place}]: {found:.9g}, expected {difference:.9g}"
    return smooth, bent, worst, where


def attempt(case, operands, results, tool, folder):
    """(outcome, remark): matches, wrong, crashed, undefined, refused or bent."""
    floats = [name for name, a in operands.items() if a.dtype in (np.float32, np.float64) and a.size and a.ndim]
    said = ""
    tried = [floats] + [list(c) for n in range(len(floats) - 1, 0, -1) for c in itertools.combinations(floats, n)]
    for trained in tried[:16]:
        for moved in (True, False):
            model = wrap(case, operands, results, trained, moved)
            path = os.path.join(folder, f"{case.name}.onnx")
            with open(path, "wb") as f:
                f.write(model.SerializeToString())
            rows = os.path.join(folder, f"{case.name}.rows.bin")
            np.linspace(0.5, 1.5, ROWS).tofile(rows)
            done = subprocess.run([tool, path, str(ROWS), "--f64", "--differences", f"z_rows={rows}"], capture_output=True, text=True)
            if done.returncode < 0 or done.returncode > 1:
                return "crashed", f"exit code {done.returncode}: {done.stderr[-300:]}"
            lines = [line for line in done.stdout.splitlines() if line.startswith("gradient ")]
            if done.returncode or not lines:
                errors = [line for line in done.stderr.splitlines() if "error:" in line]
                said = said or (errors[0].replace(folder + "/", "") if errors else "has no gradient")
                break
            smooth, bent, worst, where = compared(lines)
            if smooth == 0 and moved:
                continue  # outside the domain, perhaps
            if smooth == 0:
                said = said or "the loss is smooth nowhere"
                break
            if math.isinf(worst) and "_expanded" in case.name and "attention" in case.name:
                # A softmax of a row that is masked everywhere is NaN, which the expansion replaces behind it: its derivative is NaN times 0, in PyTorch, too.
                return "undefined", where
            if not worst <= LIMIT:
                return "wrong", where
            return "matches", f"{smooth} elements, {bent} not smooth, worst error {worst:.1e}"
    return ("bent" if "smooth nowhere" in said else "refused"), said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--keep")
    parser.add_argument("--list", action="store_true", help="every case with its outcome")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=int, default=0, help="fail where fewer match")
    parser.add_argument("--save", metavar="FILE", help="outcomes as JSON: tools/operators_page.py makes a page of them")
    given = parser.parse_args()
    outcomes = {}
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)

        def run(case):
            opset = max([s.version for s in case.model.opset_import if s.domain in ("", "ai.onnx")] or [0])
            found = arrays(case) if isRead(case.model, opset) and not any(s.domain not in ("", "ai.onnx") for s in case.model.opset_import) else None
            if found is None or any(n.op_type in RANDOM for n in case.model.graph.node):
                return case, None
            operands, results = found
            if not any(a.dtype in (np.float32, np.float64) and a.size and a.ndim for a in operands.values()) or not any(a.dtype.kind == "f" and a.size for a in results.values()):
                return case, None
            if not all(np.isfinite(a).all() for a in [*operands.values(), *results.values()] if a.dtype.kind == "f"):
                return case, ("nonfinite", "has operands or results that are not finite")
            return case, attempt(case, operands, results, given.tool, folder)

        for case, outcome in pool.map(run, [c for c in collect() if fnmatch.fnmatch(c.name, given.pattern)]):
            if outcome:
                outcomes[case.name] = outcome, sorted({n.op_type for n in case.model.graph.node})
    counts = collections.Counter(o for (o, _), _ in outcomes.values())
    for name, ((outcome, said), _) in sorted(outcomes.items()):
        if given.list or outcome in ("wrong", "crashed", "bent", "undefined"):
            print(f"{outcome:9} {name} {said[:250]}")
    why = collections.Counter(re.sub(r"^.*?(node '[^']*' \(|operators? (is|are) not supported: )", "", said)[:90] for (o, said), _ in outcomes.values() if o == "refused")
    for reason, count in why.most_common(0 if given.list else 80):
        print(f"{count:5} {reason}")
    if given.save:
        with open(given.save, "w") as f:
            json.dump({name: {"outcome": o, "remark": said, "operators": ops} for name, ((o, said), ops) in sorted(outcomes.items())}, f, indent=1)
    print(f"{counts['matches']} of {len(outcomes)} cases with floats have gradients that match differences to {LIMIT:g}; {counts['refused']} are refused, {counts['bent']} are smooth nowhere, "
          f"{counts['nonfinite']} are not finite, {counts['undefined']} pass through NaN as they are written, {counts['wrong']} are wrong, {counts['crashed']} end the tool")
    return 1 if counts["wrong"] or counts["crashed"] or counts["matches"] < given.least else 0


if __name__ == "__main__":
    sys.exit(main())

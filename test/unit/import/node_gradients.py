"""Compares gradients of ONNX's own node cases with finite differences of the loss, in double precision.

Needs the packages onnx and numpy (tools/python-env.sh).

    python test/unit/import/node_gradients.py build/release/bin/evaluate-onnx [--keep FOLDER] [--list] [--least N] [--save FILE] [PATTERN]

Every float operand that may depend on a parameter is a parameter, moved slightly away from round numbers, at which many operators are not smooth. The loss
is a sum of the results with different weights. For operators that require samples (attention, losses), operands are inputs with a parameter added. Only
elements around which the loss is smooth count. A case with only float operands that must be constants (scales, bounds) has no gradient and is listed with
the importer's message.
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
LIMIT = 1e-5  # relative error of an element around which the loss is smooth


class Wrapped:
    """A case's graph that grows into a model with a loss."""

    def __init__(self, case):
        self.case, self.graph, self.facts, self.terms = case, onnx.GraphProto(), {}, []
        self.graph.name = case.name

    def constant(self, value, name=None):
        name = name or f"z_c{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def parameter(self, name, value):
        self.facts[name] = {"shape": list(value.shape), "trained": True}
        return self.constant(value, name)

    def node(self, op, inputs, output=None, **attributes):
        name = output or f"z_{len(self.graph.node)}"
        self.graph.node.append(helper.make_node(op, inputs, [name], name=f"z_{len(self.graph.node)}", **attributes))
        return name

    def input(self, name, kind, shape):
        self.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def operator(self):
        self.graph.node.extend(self.case.model.graph.node)
        self.graph.initializer.extend(self.case.model.graph.initializer)

    def weighed(self, name, a, seed, shape):
        value = self.node("Cast", [name], to=TensorProto.FLOAT) if a.dtype != np.float32 else name
        return self.node("Mul", [value, self.constant(weights_like(shape, seed))])

    def model(self):
        loss = self.terms[0]
        for term in self.terms[1:]:
            loss = self.node("Add", [loss, term])
        self.graph.output.append(helper.make_tensor_value_info(loss, TensorProto.FLOAT, []))
        case = self.case.model
        opset = max(s.version for s in case.opset_import if s.domain in ("", "ai.onnx"))
        model = helper.make_model(self.graph, opset_imports=[helper.make_opsetid("", min(max(opset, OLDEST), NEWEST["opset"]))], functions=case.functions,
                                  ir_version=min(case.ir_version, NEWEST["ir"]))
        helper.set_model_props(model, {"zorse.metadata": json.dumps({"version": 1, "parameters": self.facts})})
        return model


def wrap(case, operands, results, trained, moved):
    """Returns a model with the sum of the results as loss and the operands `trained` as parameters, and its inputs."""
    made = Wrapped(case)
    for position, info in enumerate(case.model.graph.input):
        a = operands[info.name]
        if info.name not in trained:
            made.constant(a.copy(), info.name)
            continue
        if moved:  # towards 0, so that operands stay in the domain of roots, logarithms and arc functions
            a = (a * (1 - np.random.default_rng(position).uniform(0.01, 0.05, a.shape))).astype(a.dtype)
        made.parameter(info.name, a.copy())
    made.input("z_rows", TensorProto.FLOAT, [ROWS, 1])
    made.operator()
    for seed, (name, a) in enumerate(results.items()):
        if a.size == 0 or a.dtype.kind != "f":
            continue
        whole = made.node("Reshape", [made.node("ReduceSum", [made.weighed(name, a, seed, a.shape)], keepdims=0), made.constant(np.array([1, 1], np.int64))])
        made.terms.append(made.node("ReduceSum", [made.node("Mul", ["z_rows", whole])], keepdims=0))
    return made.model(), {"z_rows": np.linspace(0.5, 1.5, ROWS)}


def wrap_samples(case, operands, results):
    """The form for operators that require samples, or None if the case has no such form.

    Operands with the same number of rows as the first are inputs. A parameter that all samples share is added to float ones.
    """
    first = next((a for a in operands.values() if a.ndim and a.dtype.kind == "f" and a.size), None)
    if first is None or first.shape[0] < 2:
        return None
    rows, made, fed = first.shape[0], Wrapped(case), {}
    for position, info in enumerate(case.model.graph.input):
        a, kind = operands[info.name], info.type.tensor_type.elem_type
        if not a.ndim or a.shape[0] != rows or a.dtype == np.float16:
            made.parameter(info.name, a.copy()) if a.dtype == np.float32 and a.size and a.ndim else made.constant(a.copy(), info.name)
        elif a.dtype.kind == "f":
            moved = made.parameter("z_p_" + info.name, np.random.default_rng(position).uniform(0.01, 0.05, (1, *a.shape[1:])).astype(a.dtype))
            made.node("Add", [made.input("z_in_" + info.name, kind, a.shape), moved], info.name)
            fed["z_in_" + info.name] = a
        else:
            fed[made.input(info.name, kind, a.shape)] = a
    made.operator()
    for seed, (name, a) in enumerate(results.items()):
        if a.size == 0 or a.dtype.kind != "f":
            continue
        if not a.ndim:
            made.terms.append(name)  # the result is a loss
        elif a.shape[0] == rows:
            made.terms.append(made.node("ReduceSum", [made.weighed(name, a, seed, a.shape[1:])], keepdims=0))
        else:
            return None
    return (made.model(), fed) if made.terms and made.facts else None


def compared(lines):
    """(number of smooth elements, number of other elements, worst relative error, its position)"""
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


def measured(model, inputs, name, tool, folder):
    """(outcome, remark) of one model."""
    operators = {n.op_type for n in [*model.graph.node, *(n for f in model.functions for n in f.node)]}
    path = os.path.join(folder, f"{name}.onnx")
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    words = []
    for number, (key, a) in enumerate(inputs.items()):
        words.append(f"{key}={os.path.join(folder, f'{name}.{number}.bin')}")
        a.astype(np.float64 if a.dtype.kind == "f" else np.int64).tofile(words[-1].split("=", 1)[1])
    done = subprocess.run([tool, path, str(len(next(iter(inputs.values())))), "--f64", "--differences", *words], capture_output=True, text=True)
    if done.returncode < 0 or done.returncode > 1:
        return "crashed", f"exit code {done.returncode}: {done.stderr[-300:]}"
    lines = [line for line in done.stdout.splitlines() if line.startswith("gradient ")]
    if done.returncode or not lines:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        return "refused", errors[0].replace(folder + "/", "") if errors else "has no gradient"
    smooth, bent, worst, where = compared(lines)
    if smooth == 0:
        return "bent", "the loss is smooth nowhere"
    if ": nan," in where and {"Where", "Softmax"} <= operators:
        # The softmax of a fully masked row is NaN, and a later Where replaces it. The derivative is NaN times 0, also in PyTorch.
        return "undefined", where
    return ("matches" if worst <= LIMIT else "wrong"), f"{smooth} elements, {bent} not smooth, worst error {worst:.1e}" if worst <= LIMIT else where


def attempt(case, operands, results, tool, folder):
    """(outcome, remark): matches, wrong, crashed, undefined, refused or bent."""
    floats = [name for name, a in operands.items() if a.dtype in (np.float32, np.float64) and a.size and a.ndim]
    first = None
    tried = [floats] + [list(c) for n in range(len(floats) - 1, 0, -1) for c in itertools.combinations(floats, n)]
    for trained in tried[:16]:
        for moved in (True, False):
            found = measured(*wrap(case, operands, results, trained, moved), case.name, tool, folder)
            if found[0] not in ("refused", "bent"):
                return found
            first = first or found
            if found[0] == "refused":
                break  # smooth nowhere: possibly outside the domain
    samples = wrap_samples(case, operands, results)
    found = measured(*samples, case.name, tool, folder) if samples else first
    return found if found[0] not in ("refused", "bent") else first


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

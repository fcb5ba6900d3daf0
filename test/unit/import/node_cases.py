"""Counts how many of ONNX's own node cases the importer supports, and checks that the results agree with ONNX.

Needs the packages onnx and numpy (tools/python-env.sh).

    python test/unit/import/node_cases.py build/release/bin/evaluate-onnx [--keep FOLDER] [--list] [--least N] [PATTERN]

A case is one node with operands and results. It is wrapped in a model with a loss in three ways, and counts as imported if one of them is imported:

- constants: all operands are constants, which tests constant folding;
- parameters: float operands that are not scalars are constants times a parameter, so there is no batch dimension and
  every result has a gradient;
- samples: operands with the same dimension 0 as the first float operand are inputs, and this is the batch dimension;
  the others are constants.

The loss is a sum of the results, each multiplied by different weights, so that a permuted result is detected. It is
compared with the loss of ONNX's results. Cases are not wrapped if their operands are not numbers (strings, sequences,
optional values) or have types that inputs cannot have, or if the importer does not read their operator set.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

warnings.filterwarnings("ignore")
TYPES = {np.dtype(t) for t in (np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_)}
ROWS = 2  # rows of the input in the form with parameters
OLDEST, NEWEST = 13, {"opset": 26, "ir": 13}  # operator sets that the importer reads
RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def collect():
    from onnx.backend.test.case.node import collect_testcases
    return collect_testcases(None)


def arrays(case):
    """[(operands, results)] as numpy arrays, None where they are omitted; or None if they are not all tensors of numbers."""
    graph = case.model.graph
    inputs, outputs = case.data_sets[0]
    found = []
    for values, infos in ((inputs, graph.input), (outputs, graph.output)):
        if len(values) != len(infos):
            return None
        part = {}
        for value, info in zip(values, infos):
            if not info.type.HasField("tensor_type"):
                return None
            value = numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
            if not isinstance(value, (np.ndarray, np.generic)) or np.asarray(value).dtype not in TYPES:
                return None
            part[info.name] = np.asarray(value)
        found.append(part)
    return found


def weights_like(shape, seed):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


FORMS = ("constants", "parameters", "samples")


def wrap(case, operands, results, form):
    """(model, data of inputs, the rows' sums), or None if the case has no such form."""
    graph = onnx.GraphProto()
    graph.name = case.name
    rows = ROWS
    fed, scaled = {}, {}
    samples = form == "samples"
    if samples:
        first = next((a for a in operands.values() if a.ndim and a.dtype.kind == "f" and a.size), None)
        if first is None:
            return None
        rows = first.shape[0]
        ops = {node.op_type for node in case.model.graph.node}
        indexes = bool(ops & {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "OneHot", "NegativeLogLikelihoodLoss",
                              "SoftmaxCrossEntropyLoss", "Where", "TensorScatter"}) or "_sce_" in case.name or "nllloss" in case.name
        for position, (name, a) in enumerate(operands.items()):
            if a.ndim and a.shape[0] == rows and a.dtype != np.float16 and (a.dtype.kind == "f" or (a.dtype == np.bool_) or (indexes and a.ndim > 0 and position > 0)):
                fed[name] = a
        if rows < 2 or any(not a.ndim or a.shape[0] != rows for a in results.values()):
            return None
    for info in case.model.graph.input:
        if info.name in fed:
            graph.input.append(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, fed[info.name].shape))
        else:
            a = operands[info.name]
            scaled[info.name] = form == "parameters" and a.ndim > 0 and a.dtype == np.float32 and a.size > 0
            graph.initializer.append(numpy_helper.from_array(a.copy(), "z_of_" + info.name if scaled[info.name] else info.name))
            if scaled[info.name]:
                graph.node.append(helper.make_node("Mul", ["z_of_" + info.name, "z_trained"], [info.name], name="z_" + info.name))
    if form == "parameters" and not any(scaled.values()):
        return None
    if not samples:
        graph.input.append(helper.make_tensor_value_info("z_rows", TensorProto.FLOAT, [rows, 1]))
        fed["z_rows"] = np.ones((rows, 1), np.float32)
    graph.node.extend(case.model.graph.node)
    graph.initializer.extend(case.model.graph.initializer)
    graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "z_trained"))
    terms, sums = [], np.zeros(rows)

    def node(op, inputs, **attributes):
        name = f"z_{len(graph.node)}"
        graph.node.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(value):
        name = f"z_c{len(graph.initializer)}"
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    for seed, (name, a) in enumerate(results.items()):
        if a.size == 0:
            continue
        weights = weights_like(a.shape[1:] if samples else a.shape, seed)
        value = node("Cast", [name], to=TensorProto.FLOAT) if a.dtype != np.float32 else name
        finite = np.where(np.isfinite(a.astype(np.float64)), a.astype(np.float64), 0)
        if not np.isfinite(a.astype(np.float64)).all():
            return None
        value = node("Mul", [value, constant(weights)])
        product = finite * weights.astype(np.float64)
        if samples:
            sums += product.reshape(rows, -1).sum(1)
            flat = node("Reshape", [value, constant(np.array([rows, -1], np.int64))])
            terms.append(node("ReduceSum", [node("Mul", [flat, "z_trained"])], keepdims=0))
        else:
            sums += product.sum()
            whole = node("Reshape", [node("ReduceSum", [value], keepdims=0), constant(np.array([1, 1], np.int64))])
            terms.append(node("ReduceSum", [node("Mul", [node("Mul", ["z_rows", "z_trained"]), whole])], keepdims=0))
    if not terms:
        return None
    loss = terms[0]
    for term in terms[1:]:
        loss = node("Add", [loss, term])
    graph.output.append(helper.make_tensor_value_info(loss, TensorProto.FLOAT, []))
    opset = max(s.version for s in case.model.opset_import if s.domain in ("", "ai.onnx"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", min(max(opset, OLDEST), NEWEST["opset"]))], functions=case.model.functions,
                              ir_version=min(case.model.ir_version, NEWEST["ir"]))
    helper.set_model_props(model, {"zorse.metadata": '{"version":1,"parameters":{"z_trained":{"shape":[1],"trained":true}}}'})
    return model, fed, sums


def attempt(case, operands, results, form, tool, folder):
    """('imported' | 'refused' | 'wrong' | 'crashed', message), or None"""
    wrapped = wrap(case, operands, results, form)
    if wrapped is None:
        return None
    model, fed, sums = wrapped
    path = os.path.join(folder, f"{case.name}.{form}.onnx")
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    words = [tool, path, str(len(sums)), "--infer-trainable", "--f64"]
    for name, a in fed.items():
        file = os.path.join(folder, f"{case.name}.{form}.{re.sub('[^A-Za-z0-9]', '_', name)}.bin")
        a.astype(np.float64 if a.dtype.kind == "f" else np.int64).tofile(file)
        words.append(f"{name}={file}")
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode < 0 or done.returncode > 1:
        return "crashed", f"exit code {done.returncode}: {done.stderr[-300:]}"
    if "loss " not in done.stdout:
        errors = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()[-1:]
        return "refused", (errors[0] if errors else "").replace(folder, "")
    found = float(re.search(r"^loss (\S+)$", done.stdout, re.M)[1])
    scale = max(1e-6, np.abs(sums).sum())
    if any(n.op_type in RANDOM for n in case.model.graph.node):
        return "imported", ""
    error = abs(found - sums.sum()) / scale
    loosest = max([case.rtol or 1e-3] + [1e-2 for a in list(operands.values()) + list(results.values()) if a.dtype == np.float16])
    return ("imported", "") if error <= loosest else ("wrong", f"loss {found}, expected {sums.sum()}")


def isRead(model, opset):
    """Whether an operator set that the importer reads has its operators with the same operands and attributes.

    Later operator sets often add only element types.
    """
    same = min(max(opset, OLDEST), NEWEST["opset"])
    def form(node, version):
        try:
            schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        except onnx.defs.SchemaError:
            return None
        return sorted(schema.attributes), len(schema.inputs), len(schema.outputs)
    return same == opset or all(form(n, same) is not None and form(n, same) == form(n, opset) for n in model.graph.node)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--keep")
    parser.add_argument("--list", action="store_true", help="every case with its outcome")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=int, default=0, help="fail where fewer import")
    parser.add_argument("--save", metavar="FILE", help="outcomes as JSON: tools/operators_page.py makes a page of them")
    given = parser.parse_args()
    outcomes, unwrapped = {}, 0
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        folder = given.keep or temporary
        os.makedirs(folder, exist_ok=True)

        def run(case):
            opset = max([s.version for s in case.model.opset_import if s.domain in ("", "ai.onnx")] or [0])
            found = arrays(case) if isRead(case.model, opset) and not any(s.domain not in ("", "ai.onnx") for s in case.model.opset_import) else None
            return case, [] if found is None else [o for o in (attempt(case, *found, form, given.tool, folder) for form in FORMS) if o]

        for case, tried in pool.map(run, [c for c in collect() if fnmatch.fnmatch(c.name, given.pattern)]):
            if not tried:
                unwrapped += 1
                continue
            # A wrong or crashed form is never hidden by the other form.
            outcomes[case.name] = min(reversed(tried), key=lambda o: ["crashed", "wrong", "imported", "refused"].index(o[0])), {n.op_type for n in case.model.graph.node}
    counts = collections.Counter(o[0] for o, _ in outcomes.values())
    why = collections.Counter(re.sub(r"^.*?(node '[^']*' \(|operators? (is|are) not supported: )", "", o[1])[:60] for o, _ in outcomes.values() if o[0] == "refused")
    for name, (outcome, _) in sorted(outcomes.items()):
        if given.list or outcome[0] in ("wrong", "crashed"):
            print(f"{outcome[0]:9} {name} {outcome[1][:300]}")
    for reason, count in why.most_common(0 if given.list else 60):
        print(f"{count:5} {reason}")
    if given.save:
        with open(given.save, "w") as f:
            json.dump({name: {"outcome": o, "remark": said, "operators": sorted(ops)} for name, ((o, said), ops) in sorted(outcomes.items())}, f, indent=1)
    print(f"{len(outcomes)} cases can be wrapped ({unwrapped} cannot): {counts['imported']} import, {counts['refused']} are refused, {counts['wrong']} give another loss, "
          f"{counts['crashed']} end the importer")
    return 1 if counts["wrong"] or counts["crashed"] or counts["imported"] < given.least else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes reference-cases.txt: operators on small arrays, with the results of the onnx package's reference implementation (numpy).

    python make_reference_cases.py > reference-cases.txt

A line: operator; attributes name=value; inputs and, after =, outputs as type[shape] elements (f: float64, i: int64, b: bool, -: omitted)."""
import sys
import numpy
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

random = numpy.random.default_rng(5)
f = lambda *shape: numpy.round(random.uniform(-2, 2, shape), 2)
p = lambda *shape: numpy.round(random.uniform(0.1, 1.9, shape), 2)
i = lambda *values: numpy.array(values, numpy.int64)
b = lambda *shape: random.uniform(size=shape) < 0.5
x, y, ints = f(2, 3), f(3), numpy.array([[5, -3, 0], [2, 7, -8]], numpy.int64)

CASES = [(op, {}, [f(2, 1, 3), f(2, 1)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")]
CASES += [(op, {}, [ints, i(3, -2, 4)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Mod")]
CASES += [("Mod", {"fmod": 1}, [x, p(3)]), ("Pow", {}, [p(2, 3), y]), ("Pow", {}, [x, i(2)]), ("And", {}, [b(2, 3), b(3)]), ("Or", {}, [b(2, 3), b(3)]), ("Xor", {}, [b(2, 3), b(3)]),
          ("Not", {}, [b(4)]), ("Where", {}, [b(2, 1), f(3), f(2, 3)]), ("Clip", {}, [x, numpy.array(-0.5), numpy.array(1.0)]), ("Clip", {}, [ints, None, numpy.array(3)]),
          ("Cast", {"to": 7}, [x]), ("Cast", {"to": 9}, [ints]), ("Cast", {"to": 11}, [ints]), ("CastLike", {}, [ints, y]), ("Abs", {}, [ints]), ("Neg", {}, [x]), ("Sign", {}, [x]),
          ("IsNaN", {}, [numpy.array([1.0, numpy.nan])]), ("Identity", {}, [x]), ("Dropout", {}, [x]), ("Mean", {}, [x, f(2, 3)])]
CASES += [(op, {}, [p(4)]) for op in ("Exp", "Log", "Sqrt", "Sin", "Cos", "Tanh", "Erf", "Floor", "Ceil", "Round", "Reciprocal", "Sinh", "Cosh", "Atan", "Asinh")]
CASES += [(op, {}, [f(5)]) for op in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Mish", "ThresholdedRelu", "Shrink", "Gelu")]
CASES += [("Gelu", {"approximate": "tanh"}, [f(4)]), ("PRelu", {}, [f(2, 3), f(3)])]
CASES += [("Shape", {}, [f(2, 3, 4)]), ("Shape", {"start": 1, "end": -1}, [f(2, 3, 4)]), ("Size", {}, [f(2, 3)]), ("Reshape", {}, [f(2, 6), i(0, -1, 2)]), ("Flatten", {"axis": 2}, [f(2, 1, 3)]),
          ("Squeeze", {}, [f(1, 3, 1), i(0)]), ("Squeeze", {}, [f(1, 3, 1)]), ("Unsqueeze", {}, [x, i(0, -1)]), ("Expand", {}, [f(3, 1), i(2, 1, 2)]), ("ConstantOfShape", {}, [i(2, 3)]),
          ("Range", {}, [numpy.array(2), numpy.array(9), numpy.array(3)]), ("Range", {}, [numpy.array(1.0), numpy.array(-1.0), numpy.array(-0.5)]), ("EyeLike", {"k": 1}, [f(2, 3)])]
CASES += [("Transpose", {"perm": [2, 0, 1]}, [f(1, 2, 3)]), ("Transpose", {}, [f(2, 3)]), ("Concat", {"axis": -1}, [f(2, 1), f(2, 3)]), ("Split", {"axis": 1}, [f(2, 5), i(2, 3)]),
          ("Split", {"num_outputs": 2}, [f(3, 2)]), ("Slice", {}, [f(4, 5), i(1, -1), i(9, -9), i(0, 1), i(2, -2)]), ("Slice", {}, [f(5), i(-3), i(2**63 - 1)]),
          ("Pad", {}, [f(2, 2), i(0, 1, 1, 0), numpy.array(7.0)]), ("Pad", {"mode": "reflect"}, [f(4), i(2, 1)]), ("Pad", {"mode": "edge"}, [f(3), i(1, 2)]),
          ("Tile", {}, [f(2, 1), i(2, 3)]),
          ("Trilu", {}, [f(3, 3)]), ("Trilu", {"upper": 0}, [f(3, 4), numpy.array(1)])]
CASES += [("Gather", {"axis": 1}, [f(2, 4), i(3, -1, 0)]), ("Gather", {}, [f(3, 2), numpy.array([[0, 2], [1, 1]])]), ("GatherElements", {"axis": 1}, [f(2, 3), numpy.array([[2, 0], [1, -1]])]),
          ("GatherND", {}, [f(2, 3, 2), numpy.array([[0, 1], [1, -1]])]), ("GatherND", {"batch_dims": 1}, [f(2, 3), numpy.array([[1], [2]])]),
          ("ScatterElements", {"axis": 1}, [f(1, 5), numpy.array([[1, 3]]), f(1, 2)]), ("ScatterElements", {"reduction": "add"}, [f(3), i(0, 0), f(2)]),
          ("ScatterND", {}, [f(4), numpy.array([[3], [1]]), f(2)]), ("OneHot", {"axis": 0}, [i(0, 2, -1), numpy.array(3), f(2)]), ("OneHot", {}, [i(1, 0), numpy.array(2), i(0, 5)]),
          ("TopK", {"axis": 1}, [f(2, 4), i(2)]), ("TopK", {"largest": 0}, [f(4), i(3)]), ("ArgMax", {"axis": 1}, [f(2, 4)]), ("ArgMin", {"axis": 0, "keepdims": 0}, [f(3, 2)])]
for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"):
    CASES += [(op, {}, [p(2, 3)]), (op, {"keepdims": 0}, [p(2, 3, 2), i(0, -1)])]
CASES += [("ReduceSum", {"keepdims": 0}, [ints, i(1)]), ("ReduceSum", {"noop_with_empty_axes": 1}, [y]), ("ReduceMax", {"keepdims": 0}, [ints])]
CASES += [("Softmax", {"axis": 1}, [f(2, 3)]), ("LogSoftmax", {"axis": 0}, [f(3, 2)]), ("Hardmax", {}, [f(2, 3)]), ("CumSum", {}, [f(2, 3), numpy.array(1)]),
          ("CumSum", {"exclusive": 1, "reverse": 1}, [f(4), numpy.array(0)]), ("LpNormalization", {}, [f(2, 3)])]
CASES += [("LayerNormalization", {"axis": -1}, [f(2, 4), f(4), f(4)]), ("LayerNormalization", {"axis": 1, "epsilon": 0.1}, [f(1, 2, 2), f(2, 2)]), ("RMSNormalization", {}, [f(2, 4), f(4)]),
          ("InstanceNormalization", {}, [f(1, 2, 3), f(2), f(2)]), ("GroupNormalization", {"num_groups": 2}, [f(1, 4, 2), f(4), f(4)]),
          ("BatchNormalization", {}, [f(2, 2, 2), f(2), f(2), f(2), p(2)])]
CASES += [("MatMul", {}, [f(2, 3), f(3, 2)]), ("MatMul", {}, [f(2, 1, 2, 3), f(3, 3, 1)]), ("MatMul", {}, [f(3), f(2, 3, 2)]), ("MatMul", {}, [f(2, 3), f(3)]), ("MatMul", {}, [f(3), f(3)]),
          ("Gemm", {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, [f(3, 2), f(2, 3), f(2)]), ("Einsum", {"equation": "bij,bjk->bik"}, [f(2, 2, 3), f(2, 3, 1)]),
          ("Einsum", {"equation": "...i,i->..."}, [f(2, 2, 3), f(3)]), ("Einsum", {"equation": "ij->ji"}, [f(2, 3)]),
          ("Einsum", {"equation": "ii"}, [f(3, 3)]), ("Einsum", {"equation": "ij,kj"}, [f(2, 3), f(2, 3)]),
          ("Conv", {"pads": [1, 0, 0, 1], "strides": [2, 1]}, [f(1, 2, 3, 3), f(2, 2, 2, 2), f(2)]), ("Conv", {"group": 2, "dilations": [2]}, [f(1, 2, 5), f(2, 1, 2)])]
for reduction in ("mean", "sum", "none"):
    CASES += [("SoftmaxCrossEntropyLoss", {"reduction": reduction, "ignore_index": -100}, [f(3, 4), i(1, -100, 3)]),
              ("SoftmaxCrossEntropyLoss", {"reduction": reduction}, [f(2, 3, 2), numpy.array([[0, 2], [1, 1]]), p(3)]),
              ("NegativeLogLikelihoodLoss", {"reduction": reduction, "ignore_index": 1}, [f(3, 2), i(0, 1, 0), p(2)])]
CASES += [("Einsum", {"equation": "Bij,Bjk->Bik"}, [f(2, 2, 3), f(2, 3, 1)]), ("Einsum", {"equation": "...A,A->..."}, [f(2, 2, 3), f(3)]), ("Einsum", {"equation": "bA,Ac"}, [f(2, 3), f(3, 2)]),
          ("Einsum", {"equation": "B...,...->B..."}, [f(2, 3), f(3)])]
# The number of samples is that of channels, because the reference implementation of LRN computes no further channels.
CASES += [("LRN", {"size": 3}, [f(3, 3, 1, 2)]), ("LRN", {"size": 4, "alpha": 0.5, "beta": 0.5, "bias": 2.0}, [f(5, 5, 1, 1)])]


def text(a):
    if a is None:
        return "-"
    kind = {"f": "f", "i": "i", "b": "b"}[a.dtype.kind]
    return kind + "[" + ",".join(map(str, a.shape)) + "] " + " ".join(repr(float(v)) if kind == "f" else str(int(v)) for v in a.ravel())


for op, attributes, inputs in CASES:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    outputs = ["y0", "y1"] if op in ("Split", "TopK") else ["y0"]
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, inputs) if n]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attributes)], "g", info, [helper.make_tensor_value_info(n, 11, None) for n in outputs])
    session = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))
    try:
        results = session.run(None, {n: a for n, a in zip(names, inputs) if n})
    except Exception as error:  # not supported by the reference implementation
        print(f"{op} {attributes}: {error}", file=sys.stderr)
        continue
    words = " ".join(f"{k}=" + (",".join(map(str, v)) if isinstance(v, list) else str(v)) for k, v in attributes.items())
    print(f"{op}; {words}; " + " | ".join(map(text, inputs)) + " = " + " | ".join(text(numpy.asarray(r)) for r in results))

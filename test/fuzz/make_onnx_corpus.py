"""Writes the ONNX part of the seed corpus (make_corpus.py writes the rest): one small model per family of operators.

Needs the onnx package.

    make_onnx_corpus.py
"""
import os

import onnx
from onnx import helper, numpy_helper, parser
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = '<ir_version: 8, opset_import: ["" : %d]>\n'

# Every model takes x [n, 4, 8] (and labels [n, 4] if it uses them) and returns one loss.
GRAPHS = {
    "elementwise": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, float c = {0.5}> { a = Add(x, w) b = Mul(a, c) d = Tanh(b) e = Sub(d, x) f = Div(e, w) "
                        "g = Pow(f, c) h = Sqrt(g) i = Max(h, x, w) j = Neg(i) k = Exp(j) l = Erf(k) loss = ReduceMean(l) }"),
    "compare": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, float z = {0}> { a = Greater(x, w) b = Not(a) c = Equal(x, w) d = Or(b, c) e = Where(d, x, w) "
                    "f = Cast<to=9>(x) g = And(f, d) h = Cast<to=1>(g) i = Clip(h, z) j = Mul(i, w) k = IsNaN(j) l = Where(k, w, j) loss = ReduceMean(l) }"),
    "views": (18, "g (float[n,4,8] x) => (float loss) <int64[3] s = {0,8,4}, int64[1] one = {1}, int64[1] two = {2}, int64[1] six = {6}, int64[2] parts = {3,5}, float[8] w = {1,2,3,4,5,6,7,8}> { "
                  "y = Mul(x, w) a = Transpose<perm=[0,2,1]>(y) b = Reshape(y, s) c = Add(a, b) d = Slice(c, one, six, one) e = Unsqueeze(d, one) f = Squeeze(e, one) g, h = Split<axis=2>(y, parts) "
                  "i = Concat<axis=2>(h, g) j = Flatten<axis=2>(i) k = Slice(i, one, two, two) l = ReduceSum<keepdims=0>(k, two) m = ReduceMean<keepdims=0>(f) loss = ReduceMean(l) }"),
    "constants": (18, "g (float[n,4,8] x) => (float loss) <int64 zero = {0}, int64 four = {4}, int64 one = {1}, int64[2] shape = {4,8}, float[8] w = {1,2,3,4,5,6,7,8}> { r = Range(zero, four, one) "
                      "f = Cast<to=1>(r) a = ConstantOfShape<value=float[1]{2.0}>(shape) b = Expand(w, shape) c = Trilu<upper=0>(b) d = CumSum(c, zero) t = Shape(x) u = Gather(t, one) "
                      "v = Cast<to=1>(u) e = Mul(a, d) g = Add(x, e) h = Mul(g, v) i = Mul(h, w) size = Size(w) j = Cast<to=1>(size) k = Div(i, j) loss = ReduceMean(k) }"),
    "linear": (18, "g (float[n,4,8] x) => (float loss) <float[8,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[2] b = {1,2}, int64[2] s = {-1,8}> { a = MatMul(x, w) c = Add(a, b) r = Reshape(x, s) "
                   "d = Gemm<alpha=0.5,transB=0>(r, w, b) e = Relu(d) f = Sigmoid(c) g = ReduceMean(e) h = ReduceMean(f) loss = Add(g, h) }"),
    "norms": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, float[8] b = {1,2,3,4,5,6,7,8}> { y = LayerNormalization<epsilon=0.00001>(x, w, b) z = Softmax<axis=-1>(y) "
                  "l = LogSoftmax<axis=-1>(y) m = Mul(z, l) loss = ReduceMean(m) }"),
    "norms23": (23, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}> { y = RMSNormalization(x, w) z = Gelu<approximate=\"tanh\">(y) loss = ReduceMean(z) }"),
    "attention": (23, "g (float[n,4,8] x) => (float loss) <float[8,8] w = {" + ",".join("1" for _ in range(64)) + "}> { q = MatMul(x, w) o = Attention<is_causal=1,q_num_heads=2,kv_num_heads=2>(q, x, x) "
                      "loss = ReduceMean(o) }"),
    "loss": (18, "g (int64[n,4] ids, int64[n,4] labels) => (float loss) <float[10,6] table = {" + ",".join("0.1" for _ in range(60)) + "}, int64[2] s = {-1,6}, int64[1] flat = {-1}> { "
                 "e = Gather(table, ids) r = Reshape(e, s) l = Reshape(labels, flat) loss = SoftmaxCrossEntropyLoss<ignore_index=-100>(r, l) }"),
    "index": (18, "g (float[n,4,8] x, int64[n,4] ids) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, int64[1] minus = {-1}, int64[1] two = {2}> { y = Mul(x, w) a = Unsqueeze(ids, minus) "
                  "b = GatherElements<axis=2>(y, a) c = Squeeze(b, minus) loss = ReduceMean(c) }"),
    "sequence": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, int64 one = {1}> { y = Mul(x, w) s = SplitToSequence<axis=1>(y) a = SequenceAt(s, one) t = SequenceConstruct(a, a) "
                     "c = ConcatFromSequence<axis=1>(t) loss = ReduceMean(c) }"),
    "dropout": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, float p = {0.5}, bool train = {1}> { y = Mul(x, w) d, m = Dropout(y, p, train) z = Identity(d) loss = ReduceMean(z) }"),
    "masks": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, float p = {0.5}> { y = Mul(x, w) r = RandomUniformLike<low=0.0,high=1.0>(y) s = Add(r, p) f = Floor(s) u = RandomUniformLike(y) "
                  "b = Less(u, p) c = Cast<to=1>(b) e = Mul(y, f) g = Mul(e, c) h = Div(g, p) loss = ReduceMean(h) }"),
    "pad": (18, "g (float[n,4,8] x) => (float loss) <float[8] w = {1,2,3,4,5,6,7,8}, int64[6] pads = {0,0,0,0,1,2}, int64[3] times = {1,2,1}> { y = Mul(x, w) p = Pad(y, pads) t = Tile(p, times) "
                "loss = ReduceMean(t) }"),
    "conv": (18, "g (float[n,1,4,4] x) => (float loss) <float[3,1,2,2] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}> { y = Conv<kernel_shape=[2,2],strides=[2,2]>(x, w, b) loss = ReduceMean(y) }"),
}


def save(name, model):
    for reader in ("onnx", "import"):
        folder = os.path.join(HERE, "corpus", reader)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(model.SerializeToString())


def main():
    for name, (opset, text) in GRAPHS.items():
        save(name, parser.parse_model(HEAD % opset + text))
    # Features that the text form cannot express: a function called twice, a branch, external data.
    w = numpy_helper.from_array(np.ones(8, np.float32), "w")
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4, 8])
    loss = helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    inner = helper.make_function("own", "Half", ["a", "b"], ["c"], [helper.make_node("Mul", ["a", "b"], ["t"]), helper.make_node("Clip", ["t"], ["c"])], sets[:1], ["bound"])
    outer = helper.make_function("own", "Whole", ["a", "b"], ["c"], [helper.make_node("Half", ["a", "b"], ["t"], domain="own", bound=1.0),
                                                                     helper.make_node("Half", ["t", "b"], ["c"], domain="own")], sets)
    graph = helper.make_graph([helper.make_node("Whole", ["x", "w"], ["y"], domain="own"), helper.make_node("ReduceMean", ["y"], ["loss"])], "g", [x], [loss], [w])
    save("functions", helper.make_model(graph, opset_imports=sets, functions=[inner, outer], ir_version=8))
    branch = [helper.make_graph([helper.make_node(op, ["x", "w"], ["o"])], op, [], [helper.make_tensor_value_info("o", 1, None)]) for op in ("Add", "Mul")]
    graph = helper.make_graph([helper.make_node("If", ["yes"], ["y"], then_branch=branch[0], else_branch=branch[1]), helper.make_node("ReduceMean", ["y"], ["loss"])], "g", [x], [loss],
                              [w, numpy_helper.from_array(np.array(True), "yes")])
    save("branch", helper.make_model(graph, opset_imports=sets[:1], ir_version=8))
    outside = onnx.TensorProto(name="w", data_type=1, dims=[8], data_location=1)
    for key, value in (("location", "d"), ("offset", "16"), ("length", "32")):
        outside.external_data.add(key=key, value=value)
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("ReduceMean", ["y"], ["loss"])], "g", [x], [loss], [outside])
    save("external", helper.make_model(graph, opset_imports=sets[:1], ir_version=8))


if __name__ == "__main__":
    main()

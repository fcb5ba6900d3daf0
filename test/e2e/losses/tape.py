"""Values that numpy computes in double precision and that also write ONNX nodes and compute their gradients.

A loss is Python that calls these values as it would call PyTorch's. There is a tape for every batch size; all tapes
must write the same nodes, so that the nodes do not depend on the number of samples. If ONNX has several forms of an
operation (a size by Shape and Gather, or by Shape and Slice; a sum of booleans as integers or as floats), the tape's
random numbers choose one.
"""
import random

import numpy as np

import onnx_file as onnx

KINDS = {"f": onnx.DOUBLE, "i": onnx.INT64, "b": onnx.BOOL}


def summed_to(g, shape):
    """The gradient of a value that was broadcast."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape)))) if g.ndim > len(shape) else g
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    return g.sum(axis=axes, keepdims=True) if axes else g


class Tape:
    def __init__(self, seed=0):
        self.nodes, self.initializers, self.inputs, self.values, self.random = [], [], [], [], random.Random(seed)

    def value(self, name, data, parents=()):
        v = Value(self, name, np.asarray(data), [(p, f) for p, f in parents if p.needs])
        self.values.append(v)
        return v

    def node(self, op, inputs, data, gradients=(), **attributes):
        """A node with one result. `gradients`: for each input that may have a gradient, a function of the result's
        gradient; in the order of `inputs`."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.node(op, [i.name if i is not None else "" for i in inputs], [name], **attributes))
        return self.value(name, data, zip([i for i in inputs if i is not None], gradients))

    def constant(self, data):
        data = np.asarray(data)
        data = data.astype(np.float64) if data.dtype.kind == "f" else data.astype(np.int64) if data.dtype.kind in "iu" else data
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.constant(name, data.shape, data.ravel().tolist(), KINDS[data.dtype.kind]))
        return self.value(name, data)

    def parameter(self, name, data):
        self.initializers.append(onnx.tensor(name, data.shape, data.ravel().tolist(), onnx.DOUBLE))
        v = self.value(name, data)
        v.needs = True
        return v

    def input(self, name, data):
        self.inputs.append(onnx.value(name, ["batch", *data.shape[1:]], KINDS[data.dtype.kind]))
        return self.value(name, data)

    def lift(self, x, like=None):
        """A Python number or array as a value of the type of `like`."""
        if isinstance(x, Value):
            return x
        if like is not None and like.data.dtype.kind == "f":
            x = np.asarray(x, np.float64)
        return self.constant(x)

    def model(self, loss):
        scalar = self.node("Identity", [loss], loss.data, [lambda g: g]) if loss.data.ndim == 0 else loss
        return onnx.model(self.nodes, self.initializers, self.inputs, [onnx.value(scalar.name, ["batch"] * loss.data.ndim, onnx.DOUBLE)], opset=18)

    def gradients(self, loss, parameters):
        at = {id(loss): np.ones(loss.data.shape)}
        for v in reversed(self.values):
            g = at.get(id(v))
            if g is None:
                continue
            for parent, f in v.parents:
                made = summed_to(np.asarray(f(g)), parent.data.shape)
                at[id(parent)] = at[id(parent)] + made if id(parent) in at else made
        return {name: at.get(id(p), np.zeros_like(p.data)) for name, p in parameters.items()}


class Value:
    def __init__(self, tape, name, data, parents):
        self.tape, self.name, self.data, self.parents, self.needs = tape, name, data, parents, bool(parents)

    # --- numbers of samples and positions
    def size(self, axis):
        shape = np.asarray(self.data.shape, np.int64)
        style = self.tape.random.randrange(3)
        axis %= len(shape)
        if style == 0:
            return self.tape.node("Gather", [self.tape.node("Shape", [self], shape), self.tape.constant(axis)], shape[axis], axis=0)
        if style == 1:
            return self.tape.node("Squeeze", [self.tape.node("Shape", [self], shape[axis:axis + 1], start=axis, end=axis + 1)], shape[axis])
        at = [self.tape.constant([k]) for k in (axis, axis + 1, 0)]
        part = self.tape.node("Slice", [self.tape.node("Shape", [self], shape), *at], shape[axis:axis + 1])
        return self.tape.node("Reshape", [part, self.tape.constant(np.zeros(0, np.int64))], shape[axis])

    @property
    def shape(self):
        return Shape(self)

    def numel(self):
        if self.tape.random.random() < 0.5:
            return self.tape.node("Size", [self], np.int64(self.data.size))
        return self.tape.node("ReduceProd", [self.tape.node("Shape", [self], np.asarray(self.data.shape))], np.int64(self.data.size), keepdims=0)

    # --- elementwise
    def double(self):
        if self.data.dtype.kind == "f":
            return self
        return self.tape.node("Cast", [self], self.data.astype(np.float64), to=onnx.DOUBLE)

    float = double

    def both(self, other):
        """Both operands in one type. Booleans and integers become floats if the other operand is a float."""
        a, b = self, self.tape.lift(other, self)
        if not isinstance(other, Value) and isinstance(other, float):
            a = a.double()
        if a.data.dtype != b.data.dtype:
            a, b = a.double(), b.double()
        return (a.double(), b.double()) if a.data.dtype.kind == "b" else (a, b)

    def binary(self, op, other, f, ga, gb, flip=False):
        a, b = self.both(other)
        a, b = (b, a) if flip else (a, b)
        return self.tape.node(op, [a, b], f(a.data, b.data), [lambda g: ga(g, a.data, b.data), lambda g: gb(g, a.data, b.data)])

    def __add__(self, other):
        return self.binary("Add", other, np.add, lambda g, a, b: g + 0 * a, lambda g, a, b: g + 0 * b)

    __radd__ = __add__

    def __sub__(self, other, flip=False):
        return self.binary("Sub", other, np.subtract, lambda g, a, b: g + 0 * a, lambda g, a, b: -g + 0 * b, flip)

    def __rsub__(self, other):
        return self.__sub__(other, True)

    def __mul__(self, other, flip=False):
        return self.binary("Mul", other, np.multiply, lambda g, a, b: g * b, lambda g, a, b: g * a, flip)

    def __rmul__(self, other):
        return self.__mul__(other, True)

    def __truediv__(self, other, flip=False):
        a, b = (self.double(), self.tape.lift(other, self.double()).double())
        return a.binary("Div", b, np.divide, lambda g, a, b: g / b, lambda g, a, b: -g * a / (b * b), flip)

    def __rtruediv__(self, other):
        return self.__truediv__(other, True)

    def __floordiv__(self, other):
        other = self.tape.lift(other)
        return self.tape.node("Div", [self, other], self.data // other.data)  # non-negative integers

    def __mod__(self, other):
        other = self.tape.lift(other)
        return self.tape.node("Mod", [self, other], self.data % other.data)

    def __pow__(self, k):
        a = self.double()
        if k == 0.5 and self.tape.random.random() < 0.5:
            return a.sqrt()
        if k == 2 and self.tape.random.random() < 0.5:
            return a * a
        power = self.tape.constant(float(k))
        return self.tape.node("Pow", [a, power], a.data ** k, [lambda g: g * k * a.data ** (k - 1)])

    def __neg__(self):
        return self.unary("Neg", np.negative, lambda g, a, f: -g)

    def unary(self, op, f, ga):
        a = self.double()
        out = f(a.data)
        return self.tape.node(op, [a], out, [lambda g: ga(g, a.data, out)])

    def exp(self):
        return self.unary("Exp", np.exp, lambda g, a, f: g * f)

    def log(self):
        return self.unary("Log", np.log, lambda g, a, f: g / a)

    def sqrt(self):
        return self.unary("Sqrt", np.sqrt, lambda g, a, f: g / (2 * f))

    def tanh(self):
        return self.unary("Tanh", np.tanh, lambda g, a, f: g * (1 - f * f))

    def abs(self):
        return self.unary("Abs", np.abs, lambda g, a, f: g * np.sign(a))

    def relu(self):
        return self.unary("Relu", lambda a: np.maximum(a, 0), lambda g, a, f: g * (a > 0))

    def sigmoid(self):
        return self.unary("Sigmoid", lambda a: 1 / (1 + np.exp(-a)), lambda g, a, f: g * f * (1 - f))

    def reciprocal(self):
        return self.unary("Reciprocal", lambda a: 1 / a, lambda g, a, f: -g * f * f)

    def pow(self, k):
        return self ** k

    def clamp(self, min=None, max=None):
        out = self
        if min is not None:
            out = out.extreme("Max", min)
        return out if max is None else out.extreme("Min", max)

    def extreme(self, op, other):
        best = np.maximum if op == "Max" else np.minimum
        return self.binary(op, other, best, lambda g, a, b: g * (best(a, b) == a), lambda g, a, b: g * (best(a, b) != a))

    # --- comparisons
    def compared(self, op, other, f):
        other = self.tape.lift(other, self)
        return self.tape.node(op, [self, other], f(self.data, other.data))

    def __eq__(self, other):
        return self.compared("Equal", other, np.equal)

    def __ne__(self, other):
        equal = self.compared("Equal", other, np.equal)
        return self.tape.node("Not", [equal], ~equal.data)

    def __gt__(self, other):
        return self.compared("Greater", other, np.greater)

    def __ge__(self, other):
        return self.compared("GreaterOrEqual", other, np.greater_equal)

    def __lt__(self, other):
        return self.compared("Less", other, np.less)

    __hash__ = object.__hash__

    # --- reductions
    def reduced(self, op, f, ga, axes, keepdim):
        a = self
        if a.data.dtype.kind == "b":  # ONNX sums only numbers
            a = a.double() if self.tape.random.random() < 0.5 else self.tape.node("Cast", [a], a.data.astype(np.int64), to=onnx.INT64)
        axes = tuple(range(a.data.ndim)) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
        axes = tuple(k % a.data.ndim for k in axes)
        inputs = [a, self.tape.constant(np.asarray(axes))] if len(axes) < a.data.ndim or self.tape.random.random() < 0.5 else [a]
        kept = f(a.data, axis=axes, keepdims=True)
        out = kept if keepdim else kept.squeeze(axes)
        return self.tape.node(op, inputs, out, [lambda g: ga(g.reshape(kept.shape), a.data, kept)], keepdims=int(keepdim))

    def sum(self, axes=None, keepdim=False):
        return self.reduced("ReduceSum", np.sum, lambda g, a, f: np.broadcast_to(g, a.shape), axes, keepdim)

    def mean(self, axes=None, keepdim=False):
        return self.double().reduced("ReduceMean", np.mean, lambda g, a, f: np.broadcast_to(g, a.shape) * (g.size / a.size), axes, keepdim)

    def max(self, axes=None, keepdim=False):
        return self.reduced("ReduceMax", np.max, lambda g, a, f: g * (a == f), axes, keepdim)

    def min(self, axes=None, keepdim=False):
        return self.reduced("ReduceMin", np.min, lambda g, a, f: g * (a == f), axes, keepdim)

    def std(self):
        return (((self - self.mean()) ** 2).sum() / (self.numel() - 1)).sqrt()

    def norm(self):
        return (self ** 2).sum().sqrt()

    # --- views
    def view(self, *shape):
        """Lengths are numbers, values, or one -1."""
        known = [int(n.data) if isinstance(n, Value) else n for n in shape]
        out = self.data.reshape(known)
        if any(isinstance(n, Value) for n in shape):
            lengths = [n if isinstance(n, Value) else self.tape.constant(n) for n in shape]
            parts = [self.tape.node("Reshape", [n, self.tape.constant([1])], n.data.reshape(1)) for n in lengths]
            target = self.tape.node("Concat", parts, np.asarray(known), axis=0)
        else:
            target = self.tape.constant(known)
        return self.tape.node("Reshape", [self, target], out, [lambda g: g.reshape(self.data.shape)])

    reshape = view

    def flatten(self, first=0, last=-1):
        """The leading axes, or all."""
        last %= self.data.ndim
        rest = self.data.shape[last + 1:]
        if first == 0 and self.tape.random.random() < 0.5 and 0 < last:
            rows = self.size(0)
            for k in range(1, last + 1):
                rows = rows * self.size(k)
            return self.view(rows, *rest)
        lead = [self.size(0)] if first > 0 else []
        return self.view(*lead, *self.data.shape[1:first], -1, *rest)

    def transpose(self, i, j):
        order = list(range(self.data.ndim))
        order[i], order[j] = order[j], order[i]
        return self.tape.node("Transpose", [self], self.data.transpose(order), [lambda g: g.transpose(order)], perm=order)

    def __getitem__(self, index):
        """Slices of a constant range with step 1, numbers, None and ... of the axes after the samples."""
        index = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in [i for i in index if i is Ellipsis]:
            at = next(k for k, i in enumerate(index) if i is Ellipsis)
            index[at:at + 1] = [slice(None)] * (self.data.ndim - sum(i is not None for i in index) + 1)
        out, axis = self, 0
        for i in index:
            if i is None:
                out = out.unsqueeze(axis)
                axis += 1
            elif isinstance(i, int):
                out = out.picked(i, axis)
            else:
                out = out if i == slice(None) else out.sliced(i, axis)
                axis += 1
        return out

    def unsqueeze(self, axis):
        return self.tape.node("Unsqueeze", [self, self.tape.constant([axis])], np.expand_dims(self.data, axis), [lambda g: g.squeeze(axis)])

    def picked(self, i, axis):
        return self.tape.node("Gather", [self, self.tape.constant(i)], np.take(self.data, i, axis), [lambda g: self.scattered(g, i, axis)], axis=axis)

    def sliced(self, s, axis):
        at = [self.tape.constant([k]) for k in (s.start or 0, np.iinfo(np.int64).max if s.stop is None else s.stop, axis)]
        return self.tape.node("Slice", [self, *at], self.data[(slice(None),) * axis + (s,)], [lambda g: self.scattered(g, s, axis)])

    def scattered(self, g, where, axis):
        out = np.zeros(self.data.shape)
        out[(slice(None),) * axis + (where,)] = g
        return out

    def __matmul__(self, other):
        return self.matmul(other)

    def matmul(self, other):
        a, b = self.data, other.data
        gradients = [lambda g: g @ np.swapaxes(b, -1, -2), lambda g: summed_to(np.swapaxes(a, -1, -2) @ g, b.shape)]
        return self.tape.node("MatMul", [self, other], a @ b, gradients)


class Shape:
    """The shape of a value: every length is a value of the graph, so that positions and classes are also read from the
    graph."""

    def __init__(self, value):
        self.value = value

    def __getitem__(self, axis):
        return self.value.size(axis)

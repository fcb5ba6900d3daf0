"""Writes ONNX files without the onnx package: the part of the format that odd test graphs need."""
import struct

FLOAT, INT64, BOOL, DOUBLE = 1, 7, 9, 11


def varint(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    if isinstance(value, int):
        return text(5, text(1, name) + number(3, value) + number(20, 2))
    if isinstance(value, list):
        return text(5, text(1, name) + b"".join(number(8, v) for v in value) + number(20, 7))
    return text(5, text(1, name) + text(4, value) + number(20, 3))


def node(op, inputs, outputs, name=None, **attributes):
    return text(1, b"".join(text(1, i) for i in inputs) + b"".join(text(2, o) for o in outputs) + text(3, name or outputs[0]) + text(4, op)
                + b"".join(attribute(k, v) for k, v in attributes.items()))


def tensor(name, shape, values, kind=FLOAT):
    raw = struct.pack(f"<{len(values)}{ {FLOAT: 'f', INT64: 'q', BOOL: '?', DOUBLE: 'd'}[kind]}", *values)
    return b"".join(number(1, d) for d in shape) + number(2, kind) + text(8, name) + text(9, raw)


def constant(name, shape, values, kind=FLOAT):
    """A Constant node. Unlike an initializer, it is never interpreted as a parameter."""
    value = text(5, text(1, "value") + text(5, tensor("", shape, values, kind)) + number(20, 4))
    return text(1, text(2, name) + text(3, name) + text(4, "Constant") + value)


def external(name, shape, location, kind=FLOAT):
    entry = text(13, text(1, "location") + text(2, location))
    return b"".join(number(1, d) for d in shape) + number(2, kind) + text(8, name) + entry + number(14, 1)


def value(name, shape, kind=FLOAT):
    dims = b"".join(text(1, number(1, d) if isinstance(d, int) else text(2, d)) for d in shape)
    return text(1, name) + text(2, text(1, number(1, kind) + text(2, dims)))


def model(nodes, initializers, inputs, outputs, opset=18):
    graph = b"".join(nodes) + text(2, "g") + b"".join(text(5, i) for i in initializers) + b"".join(text(11, i) for i in inputs) + b"".join(text(12, o) for o in outputs)
    return number(1, 8) + text(7, graph) + text(8, text(1, "") + number(2, opset))


def regression(middle=(), before="x", after="h", weight=(4, 4), more=(), weights=None):
    """loss = mean((h w - y)^2): `middle` are nodes that compute `after` from `before`."""
    zeros = [0.01 * i for i in range(weight[0] * weight[1])]
    nodes = [*middle, node("MatMul", [after, "w"], ["p"]), node("Sub", ["p", "y"], ["d"]), node("Mul", ["d", "d"], ["s"]), node("ReduceMean", ["s"], ["loss"], keepdims=0)]
    return model(nodes, [weights or tensor("w", weight, zeros), *more], [value("x", ["N", 4]), value("y", ["N", weight[1]])], [value("loss", [])])

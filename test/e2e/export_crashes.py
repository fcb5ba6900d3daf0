"""Native code that crashes inside of PyTorch's exporter ends the exporter's process, and not the user's Python: the error names the operator and the line that calls it
(exit code 77 without PyTorch).
"""
import ctypes
import os
import sys
import tempfile
import time

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
ensure_torch()
import torch  # noqa: E402
import zorse  # noqa: E402
from zorse import _export_process, torch_export  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self, activation):
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.activation = torch.nn.Linear(4, 4), activation

    def forward(self, x, y):
        return ((self.activation(self.layer(x)) - y) ** 2).mean()


@torch.library.custom_op("zorse_test::bad", mutates_args=())
def bad(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@bad.register_fake
def shape_of_bad(x):
    ctypes.string_at(0)  # a native crash that only exporters reach
    return torch.empty_like(x)


bad.register_autograd(lambda context, gradient: gradient)


def bad_python(x):
    if torch.compiler.is_exporting():
        os.kill(os.getpid(), 6)  # abort(), as a failed check in C++
    return x.relu()


def called(x):
    return torch.ops.zorse_test.bad(x)


def export(activation, path):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    zorse.export(Model(activation), path, inputs={"x": x, "y": x})


def message_of(activation, path):
    try:
        export(activation, path)
    except zorse.ZorseError as error:
        return str(error)
    return "no error"


def crashes(folder):
    path = os.path.join(folder, "m.onnx")
    message = message_of(called, path)
    wanted = ("crashed (signal SIGSEGV)", "operator bad", "export_crashes.py, line ")
    yield z.check(f"a segmentation fault: {message}", sum(word not in message for word in wanted), 0)
    message, line = message_of(bad_python, path), bad_python.__code__.co_firstlineno + 2
    yield z.check(f"an abort: {message}", sum(word not in message for word in ("crashed (signal SIGABRT)", f"export_crashes.py, line {line}")), 0)
    yield z.check("nothing is written", len(os.listdir(folder)), 0)


def exports_afterwards(folder):
    """After crashes, and with threads of PyTorch that a forked process does not have."""
    torch.set_num_threads(2)
    large = torch.randn(512, 512)
    for _ in range(3):
        (large @ large).sum()
    path = os.path.join(folder, "m.onnx")
    export(torch.tanh, path)
    yield z.check("an export afterwards", 0 if os.path.getsize(path) > 0 else 1, 0)
    error = message_of(lambda x: x.nonzero().to(x.dtype), path)
    yield z.check(f"an error of the exporter: {error}", 0 if "cannot export" in error or "does not train" in error or "cannot take" in error else 1, 0)


def stalls(folder):
    """A forked process that waits for a lock that is never released is ended, and the export happens in this process."""
    path, parent, write, stalled = os.path.join(folder, "m.onnx"), os.getpid(), torch_export.write_graph, _export_process.STALLED

    def waiting(*arguments):
        if os.getpid() != parent:
            time.sleep(600)
        return write(*arguments)

    torch_export.write_graph, _export_process.STALLED = waiting, 2.0
    try:
        export(torch.tanh, path)
    finally:
        torch_export.write_graph, _export_process.STALLED = write, stalled
    yield z.check("an exporter that is stuck", 0 if os.path.getsize(path) > 0 else 1, 0)


def main():
    results = []
    for case in (crashes, exports_afterwards, stalls):
        with tempfile.TemporaryDirectory() as folder:
            results += list(case(folder))
    z.finish(results)


if __name__ == "__main__":
    main()

"""The process in which PyTorch's exporters run. A crash of native code ends that process, and not the user's Python.

It is forked, because modules cannot be sent to another process in general. Its memory is shared until it is written to.
"""
import contextlib
import faulthandler
import gc
import importlib
import mmap
import os
import pickle
import re
import select
import signal
import sysconfig
import tempfile
import time
import warnings

import torch

from ._tools import ZorseError

STALLED = 30.0  # seconds without any computation after which the process is ended: a lock of another thread was taken while it was forked
_CURRENT = 512  # bytes
_current = None  #: memory shared with the parent: what the exporter executes


@contextlib.contextmanager
def executing(operator):
    """Inside, the exporter executes this function or operator. A crash is reported with its name."""
    if _current is None:
        yield
        return
    before = bytes(_current[:])
    text = str(getattr(operator, "__name__", operator)).encode()[:_CURRENT - 1]
    _current[:len(text) + 1] = text + b"\0"
    yield
    _current[:] = before  # not after an exception, which says where it was raised


def can_fork(module):
    """Whether the module can be exported in a forked process: GPUs cannot be used there."""
    tensors = [*module.parameters(), *module.buffers()]
    return hasattr(os, "fork") and not torch.cuda.is_initialized() and all(t.device.type in ("cpu", "meta") for t in tensors)


def isolated(module, path, work):
    """Returns work(), computed in a separate process, or in this one if that is impossible. Results must be picklable; changes of objects are lost.

    Raises the ZorseError that work() raises, or one that names the operator that has crashed.
    """
    if not can_fork(module):
        return work()
    _preload()
    with tempfile.TemporaryFile() as said, mmap.mmap(-1, _CURRENT) as current:
        read, write = os.pipe()
        try:
            child = _fork(work, read, write, said, current)
        except OSError:  # no memory for another process
            os.close(read)
            os.close(write)
            return work()
        os.close(write)
        answer, code = _answer(child, read)
        if answer is not None:
            kind, value = pickle.loads(answer)
            if kind == "result":
                return value
            raise _as_error(value)
        if code is None:  # stalled
            return work()
        said.seek(0)
        raise _crash(path, code, bytes(current[:]).split(b"\0")[0].decode("utf-8", "replace"), said.read().decode("utf-8", "replace"))


def _preload():
    """Loads what PyTorch's exporter loads when it is used. The next export does not load it again."""
    for name in ("torch.onnx._internal.exporter._core", "torch.onnx._internal.exporter._registration", "torch._functorch.aot_autograd", "torch._inductor.config", "networkx", "sympy.combinatorics", "onnxscript.function_libs.torch_lib.ops",
                 "onnxscript.rewriter.onnx_fusions"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _fork(work, read, write, said, current):
    gc.freeze()  # collections of the child would write to all of the shared memory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks with several threads
            child = os.fork()
    finally:
        gc.unfreeze()
    if child == 0:
        code = 1
        try:
            os.close(read)
            code = _run(work, write, said, current)
        finally:
            os._exit(code)  # without cleaning up what belongs to the parent
    return child


def _run(work, write, said, current):
    """The forked process."""
    global _current
    _current = current
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(said, all_threads=False)
    torch.set_num_threads(1)  # OpenMP's threads do not exist here
    run_node = torch.fx.Interpreter.run_node

    def run_named(self, node):
        with executing(node.target):
            return run_node(self, node)

    torch.fx.Interpreter.run_node = run_named
    try:
        answer = ("result", work())
    except ZorseError as error:
        answer = ("error", (str(error), getattr(error, "details", None)))
    with os.fdopen(write, "wb") as pipe:
        pickle.dump(answer, pipe)
    return 0


def _as_error(value):
    text, details = value
    error = ZorseError(text)
    if details is not None:
        error.details = details
    return error


def _answer(child, read):
    """Returns (what the process wrote, None), (None, its exit code), or (None, None) if it did not compute for STALLED seconds."""
    parts, computed, since = [], -1.0, time.monotonic()
    try:
        while True:
            if select.select([read], [], [], 1.0)[0]:
                part = os.read(read, 1 << 20)
                if not part:
                    break
                parts.append(part)
                continue
            now = _seconds_of(child)
            if now != computed:
                computed, since = now, time.monotonic()
            elif time.monotonic() - since > STALLED:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                child = None
                return None, None
    except BaseException:
        if child is not None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            child = None
        raise
    finally:
        os.close(read)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (b"".join(parts), None) if parts and code == 0 else (None, code)


def _seconds_of(process):
    """Seconds that a process has computed, and the bytes that it has written."""
    try:
        with open(f"/proc/{process}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        with open(f"/proc/{process}/io") as f:
            written = re.search(r"wchar: (\d+)", f.read())
    except OSError:
        return -1.0
    return int(fields[11]) + int(fields[12]) + (int(written[1]) if written else 0)


def _crash(path, code, operator, traceback):
    """The error for a process that has ended without an answer."""
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', traceback)
    others = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, os.path.dirname(__file__), "<")
    own = next((frame for frame in frames if not frame[0].startswith(others)), None)
    ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    error = ZorseError(f"{path}: PyTorch's exporter crashed ({ended})" + (f" in the operator {operator}" if operator else "") + (f", called in {own[0]}, line {own[1]}" if own else "") +
                       ". Write it with other operators of PyTorch, or leave its module out of the training")
    error.details = traceback
    return error

"""zorse.export refuses a module if its file would train differently, and names the submodule that differs (exit code 77
without PyTorch).

    export_check.py [--quick] [KIND...]      --quick: one exporter per kind, TorchScript if it supports the module

The kinds are in export_kinds.py. The export must leave the module unchanged, whatever its result.
"""
import contextlib
import copy
import io
import os
import random
import sys
import tempfile
import time
import warnings

import numpy as np

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))


def state(module):
    """The state that an export must not change."""
    import torch

    tensors = {n: t.detach().clone() for n, t in [*module.named_parameters(), *module.named_buffers()]}
    hooks = [[len(getattr(m, key)) for key in vars(m) if key.endswith("_hooks")] for m in module.modules()]
    plain = [{k: copy.copy(v) for k, v in vars(m).items() if isinstance(v, (int, float, str, bool))} for m in module.modules()]
    gradients = [p.grad is None for p in module.parameters()]
    types = [t.dtype for t in tensors.values()]
    return tensors, (hooks, plain, gradients, types, random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist())


def same(a, b):
    return a[1] == b[1] and all((a[0][n] == b[0][n]).all() for n in a[0]) and a[0].keys() == b[0].keys()


class Table:
    def __init__(self, folder):
        self.path, self.results, self.planted, self.named, self.alarms, self.seconds = os.path.join(folder, "m.onnx"), [], 0, 0, [], 0.0

    def holds(self, what, good):
        if not good:
            print(f"FAIL {what}", flush=True)
        self.results.append(bool(good))

    def exported(self, module, **more):
        """The result of the export: "equal", or its refusal."""
        import zorse
        from export_kinds import LENGTH, VOCABULARY

        begin = time.monotonic()
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                zorse.export(module, self.path, sequence=LENGTH, vocabulary=VOCABULARY, **more)
            told = [str(w.message) for w in said if "not compared" in str(w.message)]
            return told[0] if told else "equal"
        except zorse.ZorseError as error:
            return str(error)
        finally:
            self.seconds += time.monotonic() - begin

    def judge(self, label, found, says):
        if says == "equal":
            if found != "equal":
                self.alarms.append(label)
            self.holds(f"{label}: expected no refusal, found: {found}", found == "equal")
            return
        self.planted += 1
        good = all(word in found for word in says)
        self.named += good
        self.holds(f"{label}: expected {says}, found: {found}", good)

    def kind(self, name, exporters):
        from export_kinds import KINDS, made

        kind = KINDS[name]
        for dynamo in [e for e in kind.get("exporters", (True, False)) if e in exporters] or kind.get("exporters", (True,))[:1]:
            label, module = f"{name} by {'dynamo' if dynamo else 'TorchScript'}", made(name)
            before = state(module)
            with open(self.path, "w") as old:
                old.write("old")
            self.judge(label, self.exported(module, dynamo=dynamo), kind["says"])
            self.holds(f"{label}: the module is as it was", same(before, state(module)))
            with open(self.path, "rb") as left:
                self.holds(f"{label}: a refused export leaves the old file, and nothing else", (left.read() == b"old") == (kind["says"] != "equal") and os.listdir(os.path.dirname(self.path)) == [os.path.basename(self.path)])
        if "fixed" in kind:
            found = self.exported(made(name, kind["fixed"]))
            self.holds(f"{name}: the fix is exported: {found}", found == "equal")

    def foreign(self, name, says):
        """A file written by PyTorch's exporter without zorse.export."""
        import torch
        import zorse
        from export_kinds import LENGTH, VOCABULARY, made
        from zorse._check import compare
        from zorse.metadata import write_metadata

        module = made(name).eval()
        ids = torch.randint(0, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))
        inputs = {"input_ids": ids, "labels": ids.clone()}
        batch, length = torch.export.Dim("batch", min=1, max=1024), torch.export.Dim("sequence", min=2, max=1024)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(module, tuple(inputs.values()), self.path, input_names=list(inputs), output_names=["loss"], opset_version=20, dynamo=True, optimize=False,
                              dynamic_shapes=({0: batch, 1: length},) * 2)
        write_metadata(module, self.path, tuple(inputs.values()))
        try:
            compare(module, self.path, inputs, length=LENGTH)
            found = "equal"
        except zorse.ZorseError as error:
            found = str(error)
        self.judge(f"{name} exported in evaluation mode", found, says)


def processes(table):
    """The process that evaluates files is kept for the next export for a limited time, replaced if it has died, and not
    shared with a forked process."""
    from zorse import _file_process

    def pid():
        with _file_process.file_process() as process:
            said = process.ask(task="none")
            return process._process.pid if "failed" in said else said

    first, second = pid(), pid()
    table.holds("a process waits for the next export", first == second)
    os.kill(second, 9)
    _file_process._waiting[-1]._process.wait()
    third = pid()
    table.holds("one that was killed is replaced", third not in (first, None))
    with _file_process.file_process() as a, _file_process.file_process() as b:
        table.holds("two concurrent exports have separate processes", a is not b)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(not p.taken() for p in _file_process._waiting) else 1)
    table.holds("a forked process has none of its parent's", os.waitpid(child, 0)[1] == 0)
    waiting = list(_file_process._waiting)
    _file_process.SECONDS = 0.1
    last = pid()
    time.sleep(1)
    table.holds("a process ends that waits too long", last not in {p._process.pid for p in _file_process._waiting} and len(_file_process._waiting) == len(waiting) - 1)
    for p in waiting:
        if p in _file_process._waiting and p.taken():
            _file_process._waiting.remove(p)
            p.close()
    _file_process.SECONDS = 60.0


def main():
    ensure_torch()
    import logging

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    from export_kinds import FOREIGN, KINDS

    quick = "--quick" in sys.argv
    names = [n for n in sys.argv[1:] if not n.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        table = Table(folder)
        if not names:
            processes(table)
        for name in names or KINDS:
            table.kind(name, (False,) if quick else (True, False))
        for name, says in list(FOREIGN.items())[:3 if quick else None]:
            if not names or name in names:
                table.foreign(name, says)
    print(f"{table.seconds:.0f} s of exports; false alarms: {', '.join(table.alarms) or 'none'}")
    z.finish(table.results, f"{table.named} of {table.planted} planted losses refused by name, {len(table.alarms)} false alarms")


if __name__ == "__main__":
    main()

"""Inputs that are not regular files: FIFOs, folders, devices, sockets, links to other places. Every call ends
immediately, with exit code 1 and an error that names the path. No call waits for a writer of a FIFO, and no file of
another user is read.

    odd_files.py [--kinds fifo,folder,device,socket]
"""
import argparse
import os
import shutil
import socket
import subprocess
import tempfile
import time

import harness as z
import onnx_file as onnx

SECONDS = 10 * z.PATIENCE
GPT = os.path.join(z.SMALL, "gpt-fixed-1.onnx")
DATA = os.path.join(z.SMALL, "gpt.tokens.bin")


class Odd:
    def __init__(self, folder, kinds):
        self.folder, self.kinds, self.results, self.count = folder, kinds, [], 0
        self.cluster = z.cluster(folder, ["a"])
        self.plan = z.plan(folder, "one", 8, ["a"], [(0, 8, 0, 8, "a")])
        self.bundle = os.path.join(folder, "good.zorse")
        self.small = self.write("small.onnx", onnx.regression(weights=onnx.external("w", (4, 4), "small.data"), after="x"))
        self.write("small.data", bytes(64))
        z.call("zorse-compile", self.small, "--cluster", self.cluster, "--global-batch-size", 4, "--quiet", "-o", self.bundle, "--train", "w")

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def put(self, path, kind):
        """Creates a special file at a path."""
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            os.mkdir(path)
        elif kind == "device":
            os.symlink("/dev/zero", path)
        else:
            here = os.getcwd()
            os.chdir(os.path.dirname(path))  # socket paths must be short
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.bind(os.path.basename(path))
            finally:
                os.chdir(here)
        return path

    def expect(self, name, path, words, says=None):
        """The call ends with exit code 1 and names the path."""
        begin = time.monotonic()
        words = [os.path.join(z.BIN, words[0])] + [str(w) for w in words[1:]]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
            code, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            code, said = "waits", ""
        line = next((l for l in said.splitlines() if "error" in l.lower()), "")
        good = code == 1 and (says or os.path.basename(path)) in said and "error" in said.lower()
        if not good or self.count % 25 == 0:
            print(f"{'ok  ' if good else 'FAIL'} {name}: {code}, {time.monotonic() - begin:.1f} s, {line[:200]}", flush=True)
        self.count += 1
        self.results.append(good)

    def each(self, name, words, path=None, kinds=None):
        """`words` has None in place of the special file's path; or `path` is one that the call finds itself."""
        for kind in kinds or self.kinds:
            odd = self.put(path or os.path.join(self.folder, f"odd-{kind}"), kind)
            self.expect(f"{name}, {kind}", odd, [odd if w is None else w for w in words])


def compilers(c):
    out = os.path.join(c.folder, "out.zorse")
    compile = ["zorse-compile", c.small, "--cluster", c.cluster, "--global-batch-size", 4, "--quiet", "-o", out, "--train", "w"]
    for option in ("--plan", "--profile", "--config"):
        c.each(f"compile {option}", compile + [option, None])
    c.each("compile: the cluster", ["zorse-compile", c.small, "--cluster", None, "--global-batch-size", 4, "--quiet", "-o", out])
    c.each("compile: the model", ["zorse-compile", None, "--cluster", c.cluster, "--global-batch-size", 4, "--quiet", "-o", out])
    data = os.path.join(c.folder, "small.data")
    c.each("compile: external data", compile, path=data)
    os.path.isdir(data) and shutil.rmtree(data)
    plan = ["zorse-plan", "--cluster", c.cluster, "--global-batch-size", 4, "--quiet"]
    for suffix in (".onnx", ".json", ".pb"):
        for kind in c.kinds:
            if (suffix, kind) != (".pb", "folder"):  # a bundle's folder is a model
                odd = c.put(os.path.join(c.folder, "odd-model" + suffix), kind)
                c.expect(f"plan: the model{suffix}, {kind}", odd, plan + [odd])
    for option in ("--plan", "--profile", "--config"):
        c.each(f"plan {option}", plan + ["--model-shape", "llama-7b", "--seq-length", 64, option, None])
    c.each("plan: the cluster", ["zorse-plan", "--model-shape", "llama-7b", "--seq-length", 64, "--global-batch-size", 4, "--cluster", None])
    c.each("import: the model", ["zorse-import", None])


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names)


def bundles(c):
    """Every file of a bundle."""
    data = "x=" + c.write("x.npy", npy(8)) + ",y=" + c.write("y.npy", npy(8))
    run = ["zorse-run", None, "--data", data, "--max-steps", 1, "--quiet"]
    for name in files_of(c.bundle):
        for kind in c.kinds:
            copy = os.path.join(c.folder, "copy.zorse")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(c.bundle, copy)
            odd = c.put(os.path.join(copy, name), kind)
            for tool, words in (("run", [copy if w is None else w for w in run]), ("inspect", ["zorse-inspect", copy, "--functions"]), ("simulate", ["zorse-run", copy, "--simulate"])):
                read = tool == "run" or (tool == "inspect" and name.split("/")[0] in ("manifest.json", "plan.json", "summary.pb", "functions.pb"))
                if read:
                    c.expect(f"{tool}: {name}, {kind}", odd, words)
    good = [c.bundle if w is None else w for w in run]
    for option in ("--load-weights", "--cluster", "--config"):
        c.each(f"run {option}", good + [option, None], kinds=[k for k in c.kinds if (option, k) != ("--load-weights", "folder")])
    for option in ("--data", "--eval-data"):
        for kind in c.kinds:
            odd = c.put(os.path.join(c.folder, f"odd-{kind}.npy"), kind)
            words = ["zorse-run", c.bundle, "--data", data, "--max-steps", 1, "--quiet"]
            words = words[:3] + [f"x={odd}," + data.split(",")[1]] + words[4:] if option == "--data" else words + ["--eval-data", f"x={odd}," + data.split(",")[1]]
            c.expect(f"run {option}, {kind}", odd, words)
    hub = os.path.join(c.folder, "hub")
    os.makedirs(hub, exist_ok=True)
    for name in ("model.safetensors", "model.safetensors.index.json"):
        c.each(f"run --load-weights: {name}", good + ["--load-weights", hub], path=os.path.join(hub, name))
        odd = os.path.join(hub, name)
        shutil.rmtree(odd) if os.path.isdir(odd) and not os.path.islink(odd) else os.remove(odd)
    snapshots(c, good, data)


def snapshots(c, good, data):
    kept = os.path.join(c.folder, "snapshots")
    z.call(*[w for w in good if w != "--quiet"], "--checkpoint-dir", kept)
    step = next(name for name in os.listdir(kept) if name.startswith("step"))
    for name in sorted(os.listdir(os.path.join(kept, step))):
        for kind in c.kinds:
            copy = os.path.join(c.folder, "kept")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(kept, copy)
            odd = c.put(os.path.join(copy, step, name), kind)
            c.expect(f"export: {name}, {kind}", odd, ["zorse-export", os.path.join(copy, step), "-o", os.path.join(c.folder, "exported.safetensors")], says=step)
            c.expect(f"evaluate: {name}, {kind}", odd, ["zorse-run", c.bundle, "--eval-only", "--eval-data", data, "--checkpoint-dir", copy], says="kept")


def links(c):
    """External data behind a link: next to the model, or in a cache of links, but nowhere else."""
    outside = os.path.join(c.folder, "outside")
    os.makedirs(outside, exist_ok=True)
    secret = c.write("outside/secret", bytes(64))
    data = os.path.join(c.folder, "small.data")
    compile = ["zorse-compile", None, "--cluster", c.cluster, "--global-batch-size", 4, "--quiet", "-o", os.path.join(c.folder, "linked.zorse"), "--train", "w"]
    own = os.path.join(c.folder, "own")
    os.makedirs(os.path.join(own, "below"), exist_ok=True)
    shutil.copy(c.small, os.path.join(own, "small.onnx"))
    inside = os.path.join(own, "small.data")

    def linked(target, model=os.path.join(own, "small.onnx"), link=inside):
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(target, link)
        return [model if w is None else w for w in compile]

    c.expect("external data: a link out of the folder", inside, linked(secret), says="outside the model's folder")
    c.expect("external data: a link to a system's file", inside, linked("/etc/passwd"), says="outside the model's folder")
    c.expect("external data: a relative link out of the folder", inside, linked("../outside/secret"), says="outside the model's folder")
    os.symlink(outside, os.path.join(own, "sub"))
    away = os.path.join(own, "away.onnx")
    with open(away, "wb") as f:
        f.write(onnx.regression(weights=onnx.external("w", (4, 4), "sub/secret"), after="x"))
    c.expect("external data: in a folder that is a link", away, [away if w is None else w for w in compile], says="outside the model's folder")
    with open(os.path.join(own, "below", "bytes"), "wb") as f:
        f.write(bytes(64))
    cache = os.path.join(c.folder, "cache")  # the layout of the hub's cache: both files are links to blobs
    os.makedirs(os.path.join(cache, "blobs"), exist_ok=True)
    os.makedirs(os.path.join(cache, "snapshot"), exist_ok=True)
    shutil.copy(c.small, os.path.join(cache, "blobs", "one"))
    with open(os.path.join(cache, "blobs", "two"), "wb") as f:
        f.write(bytes(64))
    os.symlink("../blobs/one", os.path.join(cache, "snapshot", "small.onnx"))
    for name, words in (("next to the model", linked("below/bytes")),
                        ("in a cache of the hub", linked("../blobs/two", os.path.join(cache, "snapshot", "small.onnx"), os.path.join(cache, "snapshot", "small.data")))):
        code, _, said = z.call(*words, ok=False)
        print(f"{'ok  ' if code == 0 else 'FAIL'} external data: a link {name}: exit code {code}, {said[-200:]}")
        c.results.append(code == 0)
    del data


def npy(rows, columns=4):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(4 * rows * columns)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="fifo,folder,device,socket")
    kinds = parser.parse_args().kinds.split(",")
    with tempfile.TemporaryDirectory() as folder:
        c = Odd(folder, kinds)
        compilers(c)
        bundles(c)
        links(c)
        z.finish(c.results, f"{' and '.join(kinds)} in the place of every file that a tool reads, and links out of a model's folder: exit code 1 and the path")


if __name__ == "__main__":
    main()

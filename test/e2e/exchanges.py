"""Files that another process exchanges between check and use (TOCTOU): no other code runs, and no other content gets
into a bundle.

    exchanges.py [swaps [COUNT]] [folders [COUNT]]     default: 50 of each

    swaps      zorse-run --expect-digest=DIGEST while another program repeatedly swaps the bundle with one that has
               other machine code. Each run gives the correct losses or ends with an error. The other code writes a file
               when it is loaded; it never runs.
    folders    zorse-compile under umask 002 with a group-shared TMPDIR, in which another user of the group
               looks for the compiler's files, writes into them and replaces folders by its own. Every bundle is
               identical to one compiled without the attack. If the test cannot become another user, the same user
               attacks, who has more rights.
"""
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import harness as z

MODEL = os.path.join(z.SMALL, "mlp-tiny.onnx")
DATA = os.path.join(z.SMALL, "mlp-tiny.tokens.bin")
OTHER = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void run() { close(open("%s", O_CREAT | O_WRONLY, 0600)); }
"""
SWAPPER = """
import os, random, shutil, sys, time
good, other, path, seed = sys.argv[1:]
r = random.Random(int(seed))
while True:
    for source, most in ((other, 0.01), (good, 0.06)):
        shutil.copyfile(source, path + ".new")
        os.rename(path + ".new", path)
        time.sleep(r.uniform(0, most))
"""
INTRUDER = """
import os, random, sys, time
folder, other = sys.argv[1:]
code = open(other, "rb").read()
seen, taken = set(), 0
while True:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith("mine") or path in seen:
            continue
        try:
            if not os.path.isdir(path):
                continue
            seen.add(path)
            try:  # into the folder, if it is open
                with open(os.path.join(path, "kernels.so"), "wb") as f:
                    f.write(code)
                open(os.path.join(folder, "mine-wrote"), "w").close()
            except OSError:
                pass
            os.rename(path, os.path.join(folder, f"mine-{len(seen)}"))
            os.mkdir(path, 0o777)
            for file in ("kernels.so", "0.o", "1.o", "log"):
                with open(os.path.join(path, file), "wb") as f:
                    f.write(code)
            open(os.path.join(folder, "mine-moved"), "w").close()
        except OSError:
            pass
"""


def other_code(folder):
    """A shared object that creates a file when it is loaded."""
    source, built, mark = (os.path.join(folder, name) for name in ("other.c", "other.so", "other-code-ran"))
    with open(source, "w") as f:
        f.write(OTHER % mark)
    for compiler in ("clang-22", "clang", "gcc", "cc"):
        if shutil.which(compiler):
            subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
            return built, mark
    print("skipped: no C compiler")
    sys.exit(77)


def compiled(folder, name, **more):
    bundle = os.path.join(folder, name)
    env = {**os.environ, "ZORSE_CACHE": os.path.join(folder, "cache-" + name), **more}
    words = [os.path.join(z.BIN, "zorse-compile"), MODEL, "--cluster", z.cluster(folder, ["a"]), "--global-batch-size", "8", "--seq-length", "8", "--quiet", "-o", bundle]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=env)
    if done.returncode != 0:
        raise z.Failure(done.stderr)
    with open(os.path.join(bundle, "manifest.sha256")) as f:
        return bundle, f.read().split()[0]


def swaps(count):
    with tempfile.TemporaryDirectory() as folder:
        other, mark = other_code(folder)
        bundle, digest = compiled(folder, "right.zorse")
        kernels = os.path.join(bundle, "kernels")
        path = os.path.join(kernels, os.listdir(kernels)[0], "kernels.so")
        good = os.path.join(folder, "good.so")
        shutil.copyfile(path, good)
        right = z.run(bundle, DATA, 3)
        results, ran, refused = [], 0, 0
        for number in range(count):
            swapper = subprocess.Popen([sys.executable, "-c", SWAPPER, good, other, path, str(number)])
            time.sleep(random.Random(number).uniform(0.02, 0.1))
            with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
                code, _, said = z.call("zorse-run", bundle, "--data", DATA, "--max-steps", 3, "--quiet", "--expect-digest", digest, "--metrics-file", metrics.name, ok=False)
                losses = [m["loss"] for m in map(__import__("json").loads, open(metrics.name)) if "loss" in m]
            swapper.kill()
            swapper.wait()
            for leftover in (path + ".new",):
                if os.path.exists(leftover):
                    os.remove(leftover)
            fine = (code == 0 and losses == [m["loss"] for m in right]) or (code == 1 and "SHA-256" in said)
            ran, refused = ran + (code == 0), refused + (code == 1)
            if os.path.exists(mark):
                os.remove(mark)
                fine, said = False, "the other code ran"
            if not fine:
                print(f"FAIL swap {number}: exit code {code}: {said[-300:]}", flush=True)
            results.append(fine)
        print(f"{count} runs while code was exchanged: {ran} ran the right code, {refused} were refused")
        return results


def folders(count):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        other, mark = other_code(folder)
        shared = os.path.join(folder, "shared")
        os.mkdir(shared)
        ids = {}
        if os.geteuid() == 0:
            os.chown(shared, 0, 65534)
            ids = {"user": 65534, "group": 65534, "extra_groups": []}
        os.chmod(shared, 0o2770)
        _, digest = compiled(folder, "right.zorse")
        results, moved = [], 0
        for number in range(count):
            intruder = subprocess.Popen([sys.executable, "-c", INTRUDER, shared, other], **ids)
            time.sleep(0.15)
            before = os.umask(0o002)
            try:
                bundle, found = compiled(folder, f"b{number}.zorse", TMPDIR=shared)
                problem = "" if found == digest else f"its digest is {found}, expected {digest}"
                shutil.rmtree(bundle)
            except z.Failure as failure:
                problem = str(failure)[-300:]
            finally:
                os.umask(before)
                intruder.send_signal(signal.SIGKILL)
                intruder.wait()
            moved += os.path.exists(os.path.join(shared, "mine-moved"))
            if os.path.exists(os.path.join(shared, "mine-wrote")):
                problem = problem or "another user wrote into the compiler's folder"
            for name in os.listdir(shared):
                path = os.path.join(shared, name)
                if os.path.isdir(path):
                    if stat.S_IMODE(os.stat(path).st_mode) & 0o077 and name.startswith("mine-"):
                        problem = problem or f"the compiler's folder has mode {stat.S_IMODE(os.stat(path).st_mode):o}"
                    shutil.rmtree(path)
                else:
                    os.remove(path)
            shutil.rmtree(os.path.join(folder, f"cache-b{number}.zorse"), ignore_errors=True)
            if problem:
                print(f"FAIL folder {number}: {problem}", flush=True)
            results.append(not problem)
        if os.path.exists(mark):
            results.append(False)
        print(f"{count} compilations in a shared TMPDIR: {moved} with a folder that was moved away during the compilation")
        return results


def main():
    words = sys.argv[1:] or ["swaps", "folders"]
    results = []
    for at, word in enumerate(words):
        if word in ("swaps", "folders"):
            count = int(words[at + 1]) if at + 1 < len(words) and words[at + 1].isdigit() else 50
            results += {"swaps": swaps, "folders": folders}[word](count)
    z.finish(results, "files that are exchanged change nothing: no other code ran or got into a bundle")


if __name__ == "__main__":
    main()

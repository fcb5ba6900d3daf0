"""Checks the examples of docs/internals/extending.md: each patch of test/extending applies to the current sources and changes no
more files than its document states. With --build they are compiled and tested.

    extending.py [--build]     --build: in a copy of the sources under build/extending; takes the time of a full build
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import harness as z

EXAMPLES = os.path.join(z.ROOT, "test", "extending")
# example -> (maximum number of source files, build targets, tests with the build folder's name in place of BUILD)
LIT = shutil.which("lit") or "lit-22"  # Debian appends the version
CASES = {
    "graph-op": (5, ["zorse-opt", "zorse-autodiff-test", "zorse-dialect-test", "codegen_test"],
                 [[LIT, "-v", "BUILD/test/lit", "--filter", "round-trip"], ["BUILD/bin/zorse-autodiff-test"], ["BUILD/bin/zorse-dialect-test"], ["BUILD/bin/codegen_test", "--gtest_filter=CodegenOps.Activations"]]),
    "schedule": (4, ["zorse-plan", "zorse_step_tests"], [["BUILD/bin/zorse_step_tests"]]),
}


def files_of(patch):
    with open(patch) as f:
        return [name for name in re.findall(r"^\+\+\+ b/(\S+)", f.read(), re.M)]


def say(results, what, good, detail=""):
    results.append(bool(good))
    print(f"{'ok  ' if good else 'FAIL'} {what}" + (f":\n{detail}" if detail and not good else ""), flush=True)


def sources(folder):
    """A copy of all files known to git, with uncommitted changes."""
    names = subprocess.run(["git", "-C", z.ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if os.path.isfile(os.path.join(z.ROOT, name)):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copy2(os.path.join(z.ROOT, name), os.path.join(folder, name))
    subprocess.run(["git", "init", "-q", folder], check=True)


def main():
    results = []
    build = "--build" in sys.argv
    if subprocess.run(["git", "-C", z.ROOT, "rev-parse"], capture_output=True).returncode:
        print("skipped: the sources are not a git repository, from which a copy could be made")
        sys.exit(77)
    with open(os.path.join(z.ROOT, "docs", "internals", "extending.md")) as f:
        page = f.read()
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(z.ROOT, "build", "extending") if build else scratch
        shutil.rmtree(folder, ignore_errors=True)
        sources(folder)
        for name, (limit, targets, commands) in CASES.items():
            patch = os.path.join(EXAMPLES, name + ".patch")
            touched = files_of(patch)
            compiled = [f for f in touched if not f.startswith(("docs/", "test/"))]
            done = subprocess.run(["git", "-C", folder, "apply", patch], capture_output=True, text=True)
            say(results, f"{name}: applies", done.returncode == 0, done.stderr + f"\nMake the change by hand and write it again: git diff > {patch}")
            say(results, f"{name}: touches {len(compiled)} files of the sources (limit {limit})", len(compiled) <= limit, "\n".join(compiled))
            missing = [f for f in compiled if f"`{f}`" not in page]
            say(results, f"{name}: docs/internals/extending.md names them", not missing, "\n".join(missing))
            if build and done.returncode == 0:
                made = os.path.join(folder, "build", "release")
                for words in [["cmake", "--preset", "release"], ["ninja", "-C", made, *targets], *commands]:
                    words = [w.replace("BUILD", made) for w in words]
                    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
                    say(results, f"{name}: {' '.join(words)}", done.returncode == 0, (done.stdout + done.stderr)[-3000:])
            subprocess.run(["git", "-C", folder, "apply", "-R", patch], capture_output=True)
        if build:
            shutil.rmtree(folder, ignore_errors=True)
    z.finish(results)


if __name__ == "__main__":
    main()

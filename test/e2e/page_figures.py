"""User documents state the figures of the evidence: tools/page_figures.py finds no difference, detects differences made
by the test, and corrects them.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TOOL = os.path.join(ROOT, "tools", "page_figures.py")
MARK = '<!-- figure compile_time "slowest ([\\d.]+ s)" -->'


def main():
    results = []

    def expect(name, good, said):
        print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f":\n{said}"))
        results.append(good)

    def call(*words):
        done = subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, said = call()
    expect("the pages of this tree", code == 0, said)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("docs", os.path.join("test", "evidence")):
            shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name))
        page = os.path.join(folder, "README.md")
        evidence = os.path.join(folder, "docs", "evidence.jsonl")
        with open(evidence, "w") as f:
            f.write('{"script": "compile_time", "form": "whole", "state": "passed", "figure": "slowest 3.43 s (limit 5)"}\n')
        for name in glob.glob(os.path.join(folder, "docs", "**", "*.md"), recursive=True):
            os.remove(name)

        def write(text):
            with open(page, "w") as f:
                f.write(text)

        def refused(name, text, *words):
            write(text)
            code, said = call("--root", folder)
            expect(name, code == 1 and all(w in said for w in words), said)

        write(f"It compiles in {MARK}3.43 s<!-- end --> (`tools/run-evidence.sh compile_time`).\n")
        code, said = call("--root", folder)
        expect("a figure of the evidence", code == 0, said)
        refused("another figure", f"It compiles in {MARK}1 s<!-- end -->.\n", "README.md:1", "'1 s'", "'3.43 s'")
        code, said = call("--root", folder, "--write")
        with open(page) as f:
            expect("it is corrected", code == 0 and f.read() == f"It compiles in {MARK}3.43 s<!-- end -->.\n", said)
        refused("a figure without its source", "It compiles in 1 s (`tools/run-evidence.sh compile_time`).\n", "README.md:1", "'1'", "compile_time")
        refused("a figure of a claim that has not been tried", "x\n\nas <!-- figure plan_invariance \"(x)\" -->x<!-- end -->\n", "README.md:3", "plan_invariance has not passed")
        refused("a figure that is not there", f"as {MARK.replace('slowest', 'fastest')}1 s<!-- end -->\n", "finds nothing", "slowest 3.43 s")
        with open(evidence, "a") as f:
            f.write('{"script": "compile_time", "form": "quick", "state": "failed", "figure": "slowest 9 s (limit 5)"}\n')
        refused("a figure of a claim that fails", f"It compiles in {MARK}3.43 s<!-- end -->.\n", "has not passed")
    print(f"{sum(results)} of {len(results)} hold")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()

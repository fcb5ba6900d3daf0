"""Tests tools/run-evidence.sh with artificial claims: what it finds, keeps and writes, its exit code, and the errors it
detects. Also checks the real claims and Python files: no errors, unique names.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "tools"))
import claims
import tested

CLAIMS = """
[Compiler.holds]
claim = "It holds in every case."
quick = "one instead of three"
run = "printf 'first\\n3 of 3 | {whole|quick} (limit 4)\\n\\n'"

[Compiler.holds_not]
claim = "It holds."
quick = "whole"
run = "bash -c 'echo 1 of 3; echo the reason >&2; exit 4'"

[Jobs.not_here]
claim = "It holds."
quick = "whole"
run = "bash -c 'echo skipped: no such device; exit 77'"

[Jobs.needs_more]
claim = "It holds."
quick = "whole"
needs = { run = "false", message = "a second device is missing" }
run = "echo never"

[Jobs.long]
claim = "It holds."
quick = "none, because it takes an hour"
run = "echo whole"
"""
# Further claims, by the feature tested: keys, the state, and the figure as an expression.
FIGURES = {
    "a row of commands": ("""run = [{ label = "a", run = "printf 'x\\n1 of 1\\n\\n'" }, "echo 2"]""", "passed", "a: 1 of 1; 2"),
    "one of a row fails": ("""run = [{ label = "a", run = "false" }, { label = "b", run = "echo 2" }]""", "failed", "exit 1; a: ; b: 2"),
    "a failure counts more than a missing requirement": ("""run = ["bash -c 'echo no; exit 77'", "bash -c 'echo bad; exit 5'"]""", "failed", "exit 5; no; bad"),
    "nothing is printed": ('run = "true"', "failed", "prints no figure"),
    "a command that does not exist": ('run = "./no-such-program"', "failed", "exit 127; .*no-such-program.*"),
    "a setup that fails": ('setup = "false"\nrun = "echo 1"', "failed", "exit 1"),
    "variables, and a separate folder": ("""setup = "cp README.md {folder}/copy"\nrun = "A=5 bash -c 'echo $A of {folder}/c*'" """, "passed", "5 of /.*/copy"),
    "pattern found": ("""run = { run = "printf 'found 1\\nfound 2\\nend'", find = '^found.*' }""", "passed", "found 1; found 2"),
    "pattern not found": ("""run = { run = "echo 1", find = '^found.*' }""", "failed", "nothing in the output matches '.found.*; 1"),
    "numbers are added": ("""run = ["echo 1 bad of 5", "echo 0 bad of 7"]\nfind = '(?P<bad>\\d+) bad of (?P<worst>\\d+)'\nsay = "{bad} bad, {worst} at most"\nlimits = ["bad <= 1", "worst > 6"]""", "passed",
                          "1 bad, 7 at most"),
    "a limit is broken": ("""run = "echo 2 bad of 9"\nfind = '(?P<bad>\\d+) bad of (?P<all>\\d+)'\nlimits = ["bad >= all"]""", "failed", "bad >= all does not hold; 2 bad of 9"),
    "no number": ("""run = "echo none bad"\nfind = '(?P<bad>\\w+) bad'\nlimits = ["bad <= 0"]""", "failed", "bad <= 0 does not hold; none bad"),
    "an exit code that does not count": ("""run = { run = "bash -c 'echo 0 bad; exit 1'", any_exit = true, find = '(?P<bad>\\d+) bad', limits = ["bad <= 0"] }""", "passed", "0 bad"),
}
# Malformed claims and the error messages expected for them.
FAULTS = {
    "no command": ("", "has no run"),
    "an unknown key": ('run = "echo 1"\nlimit = "1"', "has an unknown key 'limit'"),
    "an unknown name in a command": ('run = "{bins}/x"', "uses {bins}, which is not defined"),
    "a file that does not exist": ('run = "{python} test/e2e/unheard_of.py"', "refers to test/e2e/unheard_of.py, which does not exist"),
    "a group that is not found": ('run = "echo 1"\nfind = "1"\nlimits = ["bad <= 0"]', "has no group 'bad'"),
    "a limit that is none": ('run = "echo 1"\nfind = "(?P<bad>1)"\nlimits = ["bad is small"]', "has a limit that is not"),
    "a quick form that should not be one": ('run = "echo {1|2}"', "declares 'whole' as its quick form, but has a different one"),
}


class Evidence:
    """A folder with claims, and the runner on them."""

    def __init__(self, folder, claims):
        self.folder, self.docs = folder, os.path.join(folder, "docs")
        os.makedirs(self.docs, exist_ok=True)
        self.write("claims.toml", claims)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.docs, name)) as f:
            return f.read()

    def __call__(self, *words):
        done = subprocess.run([os.path.join(z.ROOT, "tools", "run-evidence.sh"), "--no-build", "--claims", os.path.join(self.folder, "claims.toml"), "--docs", self.docs, "--tests", os.path.join(self.folder, "build"), *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def runner(expect):
    with tempfile.TemporaryDirectory() as folder:
        evidence = Evidence(folder, CLAIMS)
        evidence.write("docs/evidence.jsonl", json.dumps({"script": "long.sh", "form": "whole", "state": "passed", "figure": "old", "commit": "1", "processor": "p", "date": "d", "seconds": 1}) + "\n")

        code, said = evidence("--quick")
        table, stored = evidence.read("internals/results.md"), evidence.read("evidence.jsonl")
        expect("quick forms: a failure does not stop the others and is reported", code == 1 and "1 passed, 1 failed, 2 cannot run here, 1 without a quick form" in said, said)
        expect("the reason of the failure and the omitted claims are named", "failed: holds_not (whole): exit 4; 1 of 3; the reason" in said and "left out: long" in said, said)
        expect("missing requirements are named", "not run: needs_more (whole): a second device is missing" in said and "not run: not_here (whole): skipped: no such device" in said, said)
        records = {(r["script"], r["form"]): r for r in map(json.loads, stored.splitlines())}
        expect("whole forms are whole in --quick, too, and rows of scripts are rows of claims", sorted(records) == [("holds", "quick"), ("holds_not", "whole"), ("long", "whole"), ("needs_more", "whole"), ("not_here", "whole")], stored)
        expect("a record has commit, CPU, date and seconds", all(records["holds", "quick"][key] for key in ("commit", "processor", "date")) and "seconds" in stored, stored)
        expect("figures are last lines, and quick forms are marked", "| It holds in every case. | `holds` | *passed, " in table and "* | 3 of 3 \\| quick (limit 4) |" in table, table)
        expect("sections are topics", "## Compiler" in table and "## Jobs" in table, table)

        code, said = evidence("long", "holds")
        table = evidence.read("internals/results.md")
        expect("by name, whole: passed", code == 0 and "2 passed, 0 failed" in said, said)
        expect("other rows stay, and the whole form takes precedence", "**FAILED**, " in table and "| 3 of 3 \\| whole (limit 4) |" in table and "quick (limit 4)" not in table, table)
        expect("only claims that cannot run here: another exit code", evidence("not_here")[0] == 3)
        code, said = evidence("holds", "unheard_of")
        expect("unknown names are refused", code == 1 and "no claim 'unheard_of'" in said, said)
        code, said = evidence("--show", "holds", "needs_more")
        expect("commands are shown", code == 0 and "# quick: one instead of three\nprintf 'first" in said and "false  # if this fails, the claim cannot be tried here\necho never\n" in said, said)


def tests_count(expect):
    """--quick reuses results that CTest has passed at this commit and runs everything else."""
    with tempfile.TemporaryDirectory() as folder:
        evidence = Evidence(folder, table("tested", 'run = "/usr/bin/echo again"') + table("untested", 'run = "/usr/bin/echo 2"'))
        os.makedirs(os.path.join(folder, "build", "Testing"))
        evidence.write("build/CTestTestfile.cmake", 'add_test(tested "/usr/bin/echo" "again")\nadd_test(untested "/usr/bin/echo" "2")\n')
        evidence.write("build/Testing/tests.xml", '<testsuite><testcase name="tested" time="7" status="run"><system-out>by CTest\n</system-out></testcase>'
                                                  '<testcase name="untested" time="7" status="fail"/></testsuite>')

        def figures(*words):
            _, said = evidence("--quick", *words)
            return {r["script"]: (r["figure"], r.get("tests", False)) for r in map(json.loads, evidence.read("evidence.jsonl").splitlines())}, said

        clean = not tested.commit().endswith("+changes")
        evidence.write("build/Testing/tests.xml.commit", tested.commit() + "\n")
        found, said = figures()
        expect("passed tests of the same commit are taken", found == {"tested": ("by CTest", True) if clean else ("again", False), "untested": ("2", False)}, said)
        found, said = figures("tested")
        expect("a claim by name runs", found["tested"] == ("again", False), said)
        evidence.write("build/Testing/tests.xml.commit", "1234567\n")
        found, said = figures()
        expect("tests of another commit do not count", found["tested"] == ("again", False), said)


def table(name, keys, topic="Compiler", quick="whole"):
    return f'[{topic}.{name}]\nclaim = "It holds."\nquick = "{quick}"\n{keys}\n'


def figures_and_faults(expect):
    """Claims with errors of every kind do not stop each other."""
    with tempfile.TemporaryDirectory() as folder:
        text = [table(f"figure{i}", keys) for i, (keys, _, _) in enumerate(FIGURES.values())] + [table(f"fault{i}", keys) for i, (keys, _) in enumerate(FAULTS.values())]
        evidence = Evidence(folder, "".join(text) + table("elsewhere", 'run = "echo 1"', topic="Elsewhere") + table("same", 'run = "echo 1"', quick="one of three"))
        code, said = evidence()
        records = {r["script"]: r for r in map(json.loads, evidence.read("evidence.jsonl").splitlines())}
        for i, (name, (_, state, figure)) in enumerate(FIGURES.items()):
            expect(name, records[f"figure{i}"]["state"] == state and re.fullmatch(figure, records[f"figure{i}"]["figure"]), said)
        for i, (name, (_, problem)) in enumerate(FAULTS.items()):
            expect(f"a claim with {name}", f"failed: fault{i}: {problem}" in said, said)
        expect("a claim with an unknown topic", "failed: elsewhere: has an unknown topic 'Elsewhere'" in said, said)
        expect("a claim with a quick form that is the whole one", "failed: same: declares a different quick form, but both forms are the same" in said, said)
        expect("faulty claims fail", code == 1)
        code, said = Evidence(folder, table("row", 'run = "echo 1"') + table("row", 'run = "echo 1"', topic="Jobs"))()
        expect("two claims of one name", code == 1 and "two claims are called 'row'" in said, said)


def conventions(expect):
    done = subprocess.run([os.path.join(z.ROOT, "tools", "run-evidence.sh"), "--list"], capture_output=True, text=True)
    expect("no claim has a fault", done.returncode == 0 and "test/evidence/README.md" not in done.stdout, done.stdout + done.stderr)
    # CMake knows which targets are built; this test may run when not all are.
    known = set()
    for top in ("test", "tools"):
        for path in glob.glob(os.path.join(z.ROOT, top, "**", "CMakeLists.txt"), recursive=True):
            with open(path) as f:
                known |= set(re.findall(r"[\w-]+", f.read()))
    commands = [(c.name, word) for c in claims.read(os.path.join(z.ROOT, "test", "evidence", "claims.toml")) for form in ("whole", "quick") for command in c.commands(form, "FOLDER") for word in command.words]
    unknown = sorted({f"{name}: {word}" for name, word in commands if re.fullmatch(r"\S*/bin/[\w-]+", word) and "python" not in word and os.path.basename(word) not in known})
    expect("every program that a claim runs is built by CMake", not unknown, "\n".join(unknown))
    # A script finds a file in its folder before a module with the same name of Python or its packages.
    hiding = []
    for top in ("test", "models", "tools"):
        for folder, _, files in os.walk(os.path.join(z.ROOT, top)):
            hiding += [os.path.join(folder, f) for f in files if f.endswith(".py") and f[:-3] in set(sys.stdlib_module_names) | {"numpy", "onnx", "onnxruntime", "onnxscript", "safetensors", "torch", "transformers"}]
    expect("no Python file hides a module of Python's or of a package", not hiding, "\n".join(hiding))


def main():
    results = []

    def expect(what, good, said=""):
        results.append(bool(good))
        print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else ":\n" + said), flush=True)

    runner(expect)
    tests_count(expect)
    figures_and_faults(expect)
    conventions(expect)
    z.finish(results)


if __name__ == "__main__":
    main()

"""tools/run-evidence.sh on made-up scripts: what it finds, keeps and writes, how it ends. And what every script and Python file here must have: a header, a name of its own."""
import json
import os
import subprocess
import sys
import tempfile

import harness as z

HEADER = "#!/usr/bin/env bash\n# Claim: {claim}\n# Topic: {topic}\n# Quick: {quick}\n"


def script(folder, name, body, claim="Something holds.", topic="Compiler", quick="whole", header=HEADER, mode=0o755):
    path = os.path.join(folder, name + ".sh")
    with open(path, "w") as f:
        f.write(header.format(claim=claim, topic=topic, quick=quick) + body + "\n")
    os.chmod(path, mode)
    return path


def evidence(folder, *words):
    done = subprocess.run([os.path.join(z.ROOT, "tools", "run-evidence.sh"), "--no-build", "--scripts", folder, "--docs", os.path.join(folder, "docs"), *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def read(folder, name):
    with open(os.path.join(folder, "docs", name)) as f:
        return f.read()


def runner(expect):
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "docs"))
        script(folder, "holds", 'printf "first\\n3 of 3 | %s (limit 4)\\n\\n" "${1:-whole}"', quick="one\n#   instead of three", claim="It holds in\n#   every case.")
        script(folder, "holds_not", 'echo "1 of 3 (limit 3)"; echo "the reason" >&2; exit 4')
        script(folder, "not_here", 'echo "skipped: no such device"; exit 77', topic="Of its own")
        script(folder, "long", "echo whole", quick="none, because it takes an hour")
        with open(os.path.join(folder, "docs", "evidence-remarks.md"), "w") as f:
            f.write("# Remarks\n\n## holds\n\nMore.\n")

        code, said = evidence(folder, "--quick")
        table, stored = read(folder, "evidence.md"), read(folder, "evidence.jsonl")
        expect("quick forms: a failure does not stop the others and is said", code == 1 and "1 passed, 1 failed, 1 cannot run here, 1 without a quick form" in said, said)
        expect("the reason of the failure and what was left out are named", "failed: holds_not.sh (whole): exit 4; 1 of 3 (limit 3); the reason" in said and "left out: long.sh" in said, said)
        records = {(r["script"], r["form"]): r for r in map(json.loads, stored.splitlines())}
        expect("whole scripts are whole in --quick, too", sorted(records) == [("holds.sh", "quick"), ("holds_not.sh", "whole"), ("not_here.sh", "whole")], stored)
        expect("a record says commit, processor, date and seconds", all(records["holds.sh", "quick"][key] for key in ("commit", "processor", "date")) and "seconds" in stored, stored)
        expect("claims go on in indented lines", "| It holds in every case. | `holds.sh` |" in table, table)
        expect("figures are last lines, with remarks", "3 of 3 \\| --quick (limit 4) ([remarks](evidence-remarks.md#holds)) |" in table, table)
        expect("what did not run says so", "| `long.sh` | **not run** yet |" in table and "## Of its own" in table, table)

        code, said = evidence(folder, "long", "holds.sh")
        table = read(folder, "evidence.md")
        expect("by name, whole: passed", code == 0 and "2 passed, 0 failed" in said, said)
        expect("other rows stay", "**FAILED**: whole" in table and "whole: 3 of 3 \\| whole (limit 4)<br>quick: 3 of 3 \\| --quick (limit 4)" in table, table)
        expect("only what cannot run here: another exit code", evidence(folder, "not_here")[0] == 3)
        code, said = evidence(folder, "holds", "unheard_of")
        expect("unknown names are refused", code == 1 and "no script 'unheard_of'" in said, said)

        script(folder, "headless", "echo whole", header="#!/usr/bin/env bash\n# It holds.\n")
        script(folder, "plain", "echo whole", mode=0o644)
        code, said = evidence(folder, "holds", "headless", "plain")
        expect("a script without a header is a failure that does not stop others", code == 1 and "headless.sh has no line '# Claim: ...' at its top" in said and "plain.sh is not executable" in said and
               "1 passed" in said, said)


def figures(expect):
    with tempfile.TemporaryDirectory() as folder:
        for name, body, code, last in (("two", 'figure a printf "x\\n1 of 1\\n\\n"\nfigure "" echo 2', 0, "a: 1 of 1; 2"), ("one_fails", "figure a false\nfigure b echo 2", 1, "a: ; b: 2"),
                                       ("one_is_missing", "figure a bash -c 'echo no; exit 77'\nfigure b bash -c 'echo bad; exit 5'", 5, "a: no; b: bad"), ("stops", "figure a echo 1\nfalse", 1, "a: 1")):
            path = script(folder, name, f'set -euo pipefail\ncd "{z.ROOT}"\nsource test/evidence/figures.bash\n' + body)
            done = subprocess.run([path], capture_output=True, text=True)
            expect(f"figures.bash: {name}", done.returncode == code and done.stdout.splitlines()[-1] == last, f"exit {done.returncode}\n{done.stdout}{done.stderr}")


def conventions(expect):
    code, said = evidence(os.path.join(z.ROOT, "test", "evidence"), "--list")
    expect("every script of test/evidence has its header", code == 0 and "test/evidence/README.md" not in said, said)
    # A file is found before a module of the same name of Python's own or of its packages, by everything that runs from the same folder.
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
    figures(expect)
    conventions(expect)
    z.finish(results)


if __name__ == "__main__":
    main()

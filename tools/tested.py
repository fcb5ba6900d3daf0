"""Output of the last CTest run, by command, so that tools/run-evidence.sh --quick does not repeat commands that tools/run-tests.sh has passed at the same commit.

    tested.py FOLDER     before CTest runs: records the tested commit
"""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WRITTEN = ["docs/internals/results.md", "docs/evidence.jsonl"]  # written by run-evidence.sh; changes do not affect measurements


def commit():
    """The commit of the working tree, with the suffix +changes if files differ from it."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{path}" for path in WRITTEN))
    return (git("rev-parse", "--short=7", "HEAD") or "unknown") + ("+changes" if changed else "")


def report(build):
    return os.path.join(build, "Testing", "tests.xml")


def absolute(words):
    """Returns a command with absolute paths of repository files."""
    return tuple(os.path.join(ROOT, w) if "/" in w and os.path.exists(os.path.join(ROOT, w)) else w for w in words)


class Tested:
    """Passed tests of a build folder: seconds and output by command. Empty unless CTest ran at the
    current commit, without changes."""

    def __init__(self, build):
        self.passed = {}
        try:
            with open(report(build) + ".commit") as f:
                tested = f.read().strip()
            cases = {case.get("name"): case for case in xml.etree.ElementTree.parse(report(build)).getroot().iter("testcase")}
            listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        except (OSError, xml.etree.ElementTree.ParseError, subprocess.CalledProcessError):
            return
        if tested != commit() or tested.endswith("+changes"):
            return
        for test in json.loads(listed)["tests"]:
            case = cases.get(test["name"])
            if case is not None and case.get("status") == "run" and "command" in test:
                self.passed[absolute(test["command"])] = float(case.get("time")), case.findtext("system-out") or ""

    def of(self, words):
        """Returns seconds and output of the test that runs this command, or None."""
        return self.passed.get(absolute(words))


if __name__ == "__main__":
    os.makedirs(os.path.dirname(report(sys.argv[1])), exist_ok=True)
    with open(report(sys.argv[1]) + ".commit", "w") as file:
        file.write(commit() + "\n")

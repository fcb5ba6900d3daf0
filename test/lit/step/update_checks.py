"""Replaces FileCheck under `lit -Dupdate`: writes its input into the CHECK lines of the test.

  update_checks.py TEST --check-prefix=PREFIX
"""
import re
import sys

path, prefix = sys.argv[1], sys.argv[2].removeprefix("--check-prefix=")
checks = [f"{prefix}-NEXT: {line}" if line else f"{prefix}-EMPTY:" for line in sys.stdin.read().splitlines()]
checks[0] = checks[0].replace("-NEXT:", ":     ", 1)  # aligned with the other prefixes
with open(path) as test:
    lines = test.read().splitlines()
old = {number for number, line in enumerate(lines) if re.match(rf"{prefix}(-NEXT|-EMPTY)?:", line)}
at = min(old) if old else 1 + next(number for number, line in enumerate(lines) if line.startswith("RUN:") and sys.argv[2] in line.split())
lines[at:at] = checks
with open(path, "w") as test:
    test.writelines(f"{line}\n" for number, line in enumerate(lines) if not at + len(checks) <= number < at + len(checks) + len(old))

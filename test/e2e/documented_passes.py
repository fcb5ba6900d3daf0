"""Checks every example of docs/internals/passes.md: commands run unchanged, and the text below a command occurs in its output,
line by line and in this order.

A fenced block of mlir, json or yaml is the file that the preceding text names last.
"""
import os
import re
import subprocess
import tempfile

import harness as z


def main():
    with open(os.path.join(z.ROOT, "docs", "internals", "passes.md")) as f:
        page = f.read()
    results, commands = [], []
    with tempfile.TemporaryDirectory() as folder:
        for block in re.finditer(r"```(\w+)\n(.*?)```", page, re.S):
            language, text = block.groups()
            if language in ("mlir", "json", "yaml"):
                name = re.findall(r"`([\w-]+\.%s)`" % language, page[:block.start()])[-1]
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            elif language == "text" and text.startswith("$ "):
                for line in text.splitlines():
                    if line.startswith("$ "):
                        commands.append((line[2:], []))
                    else:
                        commands[-1][1].append(line.strip())
        for command, lines in commands:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=folder, env={**os.environ, "PATH": z.BIN + os.pathsep + os.environ["PATH"]})
            output, at, missing = done.stdout + done.stderr, 0, []
            for line in lines:
                found = output.find(line, at)
                if found < 0:
                    missing.append(line)
                else:
                    at = found + len(line)
            failed = any("error:" in line for line in lines)
            results.append(z.check(f"{command}{': missing ' + repr(missing[0]) if missing else ''}", float(bool(missing) or (done.returncode != 0) != failed), 0))
    z.finish(results)


if __name__ == "__main__":
    main()

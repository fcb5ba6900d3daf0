"""Takes the pictures of a plan's HTML report for the pages: docs/figures/plan-report-light.png and -dark.png. tools/docs.py picture runs it."""
import os
import subprocess
import tempfile

import browser
import site_tree as tree

# guides/what-if.md shows this command.
COMMAND = ["zorse-plan", "models/small/gpt-bytes.onnx", "--cluster", "models/clusters/four-unequal-cpus.yaml", "--global-batch-size", "32", "--seq-length", "64", "--search-budget", "200", "--html", "plan.html"]
WIDTH = 1000
LIMIT = 150 * 1024


def take(tools):
    """Writes both pictures; returns their paths."""
    paths = []
    with tempfile.TemporaryDirectory() as folder:
        words = [os.path.join(tools, COMMAND[0]), *(os.path.join(folder, w) if w == "plan.html" else w for w in COMMAND[1:]), "--quiet"]
        subprocess.run(words, cwd=tree.ROOT, check=True, stdout=subprocess.DEVNULL)
        with browser.Browser(folder) as tab:
            for theme in ("light", "dark"):
                path = os.path.join(tree.DOCS, "figures", f"plan-report-{theme}.png")
                tab.look(WIDTH, dark=theme == "dark")
                tab.open("file://" + os.path.join(folder, "plan.html"))
                # From the timeline to the end of the tiling.
                top, bottom = tab.run("['Time', 'Tables'].map((name) => [...document.querySelectorAll('h2')].find((h) => h.textContent == name).getBoundingClientRect().y + scrollY)")
                tab.screenshot(path, (0, top - 8, WIDTH, bottom - top - 8))
                if os.path.getsize(path) > LIMIT:
                    raise browser.Failure(f"{path} has {os.path.getsize(path)} bytes, more than {LIMIT}")
                paths.append(path)
    return paths

"""Searches the documentation site in a browser: each term of the field gives the page that covers it (exit code 77
where Sphinx cannot be installed or no browser is).

    docs_search.py [--site DIR] [TERM...]    --site: a site that tools/docs.py build has written; default: all terms
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse

import harness as z

sys.path.insert(0, os.path.join(z.ROOT, "tools", "docs"))
import browser  # noqa: E402

TOP = 8  # the page is among the first results
# Term -> the page that covers it.
TERMS = {
    "gradient accumulation": "concepts/units-and-tiling", "micro-batch": "concepts/units-and-tiling", "data parallelism": "concepts/units-and-tiling", "pipeline parallelism": "concepts/units-and-tiling",
    "tensor parallelism": "concepts/units-and-tiling", "model chunk": "concepts/units-and-tiling",
    "activation checkpointing": "concepts/memory", "gradient checkpointing": "concepts/memory", "rematerialization": "concepts/memory", "recomputation": "concepts/memory", "liveness": "concepts/memory", "live range": "concepts/memory",
    "activation offload": "concepts/memory", "ZeRO-Offload": "concepts/memory", "optimizer state": "concepts/memory", "out of memory": "guides/low-memory",
    "zero bubble": "concepts/schedules", "pipeline bubble": "concepts/schedules", "1F1B": "concepts/schedules", "GPipe": "concepts/schedules", "interleaved": "concepts/schedules", "split backward": "concepts/schedules",
    "local search": "concepts/planning", "dynamic programming": "concepts/planning", "lower bound": "concepts/planning", "linear program": "concepts/planning", "roofline": "concepts/planning", "cost model": "concepts/planning",
    "ZeRO": "concepts/plans", "FSDP": "concepts/plans", "all-gather": "concepts/plans", "reduce-scatter": "concepts/plans", "expert parallelism": "concepts/plans",
    "critical path": "guides/slow-run", "exposed communication": "guides/slow-run", "load imbalance": "guides/slow-run", "straggler": "guides/slow-run", "Perfetto": "guides/slow-run",
    "mixed precision": "concepts/precision", "loss scaling": "concepts/precision", "bf16": "concepts/precision", "master weights": "concepts/precision",
    "deadlock": "concepts/verification", "data race": "concepts/verification", "determinism": "concepts/reproducibility", "heartbeat": "concepts/fault-tolerance", "root cause": "concepts/fault-tolerance", "elastic": "concepts/fault-tolerance",
    "LoRA": "guides/finetune-lora", "perplexity": "guides/finetune-lora", "DeepSpeed": "guides/migrate", "Megatron-LM": "guides/migrate", "DDP": "guides/migrate",
    "torchrun": "guides/clusters", "Slurm": "guides/clusters", "Kubernetes": "guides/clusters", "tokenizer": "guides/prepare-data", "heterogeneous": "guides/mixed-gpus", "resume": "guides/checkpoints",
    "gradient clipping": "reference/training", "learning rate": "reference/training", "weight decay": "reference/training", "batch norm": "reference/training", "AdamW": "reference/training",
    "all-reduce": "reference/glossary", "NCCL": "internals/transports", "FlashAttention": "internals/attention", "kernel fusion": "internals/codegen-cpu",
}
RESULTS = """new Promise((done) => { const wait = () => {
  const summary = document.querySelector("#search-results .search-summary");
  const text = summary ? summary.textContent : "";
  if (/finished|did not match/.test(text)) done([...document.querySelectorAll("#search-results ul.search > li > a")].map((a) => a.getAttribute("href")));
  else setTimeout(wait, 20);
}; wait(); })"""


def words(text):
    """Text for comparison: small letters, one space in place of spaces, hyphens and line breaks."""
    return re.sub(r"[\s\-‑]+", " ", text).lower()


class Site:
    def __init__(self, tab, address):
        self.tab, self.address, self.texts = tab, address, {}

    def results(self, term):
        """Pages without their anchors, best first, each once."""
        self.tab.open(f"{self.address}/search.html?q={urllib.parse.quote_plus(term)}")
        found = self.tab.run(RESULTS)
        pages = [re.sub(r"\.html.*", "", os.path.normpath(re.sub(r"[?#].*", "", link))) for link in found]
        return list(dict.fromkeys(pages))

    def text(self, page):
        """What a reader sees of a page, without navigation."""
        if page not in self.texts:
            script = f"fetch({json.dumps(f'{self.address}/{page}.html')}).then((r) => r.text()).then((t) => new DOMParser().parseFromString(t, 'text/html').querySelector('article').textContent)"
            self.texts[page] = words(self.tab.run(script))
        return self.texts[page]

    def problem(self, term, page):
        """Why the search for a term does not lead to the page that covers it, or None."""
        found = self.results(term)
        if not found:
            return "no result"
        if page not in found[:TOP]:
            return f"{page} is not among the first {TOP} results: {', '.join(found[:TOP])}" + (f"; it is result {found.index(page) + 1}" if page in found else "")
        return None if words(term) in self.text(page) else f"{page} does not contain '{term}'"


def build(folder):
    if "--site" in sys.argv:
        at = sys.argv.index("--site")
        site = sys.argv[at + 1]
        del sys.argv[at:at + 2]
        return site
    site = os.path.join(folder, "site")
    done = subprocess.run([sys.executable, os.path.join(z.ROOT, "tools", "docs.py"), "build", "-o", site], capture_output=True, text=True)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    if done.returncode:
        raise z.Failure(done.stdout + done.stderr)
    return site


def main():
    if not browser.program():
        print("skipped: no browser is installed (tools/install.sh --browser)")
        sys.exit(77)
    results = []

    def holds(what, good, why=""):
        results.append(bool(good))
        print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f": {why}"), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        with browser.serve(build(folder)) as address, browser.Browser(folder, 60 * max(1, z.PATIENCE)) as tab:
            site, chosen = Site(tab, address), sys.argv[1:]
            tab.look(1280)
            # As a reader does: types into the box of a page and presses Enter.
            tab.open(f"{address}/index.html")
            tab.run("document.querySelector('input[name=q]').focus()")
            tab.call("Input.insertText", text="rematerialization")
            for kind in ("rawKeyDown", "char", "keyUp"):
                tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
            tab.until("location.pathname.endsWith('/search.html') && document.readyState == 'complete'")
            found = tab.run(RESULTS)
            holds("the search box of a page leads to the results", any("concepts/memory" in link for link in found), found)
            for term, page in TERMS.items():
                if not chosen or term in chosen:
                    why = site.problem(term, page)
                    holds(f"{term}: {page}", why is None, why)
                    holds(f"{term}: no error in the browser", not tab.problems, tab.problems) if tab.problems else None
            # The test notices a term that is nowhere, a page that does not cover its term, and a page that ranks low.
            holds("a term that is nowhere fails", site.problem("zorblification", "index") == "no result")
            holds("a page without the term fails", site.problem("gradient accumulation", "guides/nvidia-gpus") is not None)
    z.finish(results)


if __name__ == "__main__":
    main()

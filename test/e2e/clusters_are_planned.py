"""zorse-plan finds a plan for every cluster in the documentation and in models/clusters, without changes."""
import glob
import os
import re
import tempfile

import harness as z

SHAPES = ("layers=4,hidden=256,ffn=1024,heads=4,vocabulary=1000", "layers=2,hidden=64,ffn=128,heads=2,vocabulary=64")


def clusters(folder):
    """(name, path) of every description: files, and code blocks of documents."""
    yield from ((os.path.relpath(path, z.ROOT), path) for path in sorted(glob.glob(os.path.join(z.ROOT, "models", "clusters", "*.yaml"))))
    pages = [os.path.join(z.ROOT, "README.md"), *sorted(glob.glob(os.path.join(z.ROOT, "docs", "**", "*.md"), recursive=True))]
    for page in pages:
        with open(page) as f:
            for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", f.read(), re.S | re.M)):
                if not re.search(r"^nodes:", block, re.M):
                    continue
                path = os.path.join(folder, f"{os.path.basename(page)}-{number}.yaml")
                with open(path, "w") as out:
                    out.write(block)
                yield f"{os.path.relpath(page, z.ROOT)}, block {number + 1}", path


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        found = list(clusters(folder))
        for name, path in found:
            for shape in SHAPES:
                for sequence, batch in ((128, 64), (1, 7)):
                    code, out, err = z.call("zorse-plan", "--quiet", "--model-shape", f"{shape},precision=f16", "--seq-length", sequence, "--cluster", path, "--global-batch-size", batch, "--search-budget", 200,
                                            "-o", os.path.join(folder, "plan.json"), ok=False)
                    results.append(code == 0)
                    if code != 0:
                        print(f"FAIL {name}, {shape}, {batch} x {sequence}: exit {code} {err[:300]}")
        print(f"{len(found)} clusters, {len(results)} plans")
        results.append(len(found) >= 13)
    z.finish(results)


if __name__ == "__main__":
    main()

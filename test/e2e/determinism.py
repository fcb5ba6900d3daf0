"""The same bundle run twice gives bit-identical losses; compiling twice, with 1 and 2 threads, gives byte-identical
bundles; a device with another thread count gives bit-identical losses.
"""
import filecmp
import os
import tempfile

import harness as z


def same_tree(a, b):
    files = [sorted(os.path.relpath(os.path.join(d, f), root) for d, _, names in os.walk(root) for f in names) for root in (a, b)]
    if files[0] != files[1]:
        print(f"  files differ: {sorted(set(files[0]) ^ set(files[1]))}")
        return False
    different = [f for f in files[0] if not filecmp.cmp(os.path.join(a, f), os.path.join(b, f), shallow=False)]
    if different:
        print(f"  bytes differ: {different}")
    return not different


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for model in ("gpt", "llama"):
            path, data = os.path.join(z.SMALL, model + ".onnx"), os.path.join(z.SMALL, model + ".tokens.bin")
            two = z.cluster(folder, [("a", 2e10), ("b", 1e10)])
            bundles = [os.path.join(folder, f"{model}-{i}.zorse") for i in range(2)]
            for i, bundle in enumerate(bundles):
                cache = os.path.join(folder, f"cache-{i}")  # separate empty caches, so that both compilations generate code
                os.environ["ZORSE_CACHE"] = cache
                z.compile(path, bundle, two, 7, 32, extra=("--num-threads", i + 1))
            equal = same_tree(*bundles)
            print(f"{'ok  ' if equal else 'FAIL'} {model}: bundles of two compilations are byte-identical")
            runs = [z.run(bundles[0], data, 8) for _ in range(2)]
            bits = [m["loss"] for m in runs[0]] == [m["loss"] for m in runs[1]] and [m["grad_norm"] for m in runs[0]] == [m["grad_norm"] for m in runs[1]]
            print(f"{'ok  ' if bits else 'FAIL'} {model}: two runs of one bundle are bit-equal")
            results += [equal, bits]
    z.finish(results)


if __name__ == "__main__":
    main()

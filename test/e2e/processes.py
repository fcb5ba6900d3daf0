"""Compares one process per device with threads of one process: every loss, norm, evaluation and parameter is
bit-identical.

    processes.py [COUNT] [--delays]     default 8 plans; --delays: random sleeps
                                        before and after every transfer and collective
"""
import os
import sys
import tempfile

import harness as z
import many_plans


def main():
    count = int(next((w for w in sys.argv[1:] if w.isdigit()), 8))
    if "--delays" in sys.argv:
        os.environ["ZORSE_TEST_DELAYS"] = "7,3"
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, bundle, data, extra in many_plans.bundles(folder, count):
            expected = many_plans.threads(folder, bundle, data, extra)
            words, metrics, checkpoint = many_plans.run_words(folder, bundle, data, extra, "processes")
            code, _, err = z.call("zorse-run", *words, "--spawn", ok=False, timeout=120 * z.PATIENCE)
            good = code == 0 and many_plans.outcome(folder, metrics, checkpoint) == expected
            print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": exit {code} {err.strip()}"), flush=True)
            results.append(good)
            for path in (metrics, checkpoint):
                if os.path.exists(path):
                    os.remove(path)
    z.finish(results, "plans bit-equal to threads of one process")


if __name__ == "__main__":
    main()

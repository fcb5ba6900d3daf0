"""Runs the conformance suite of devices: the null driver passes the contract, the CPU driver passes everything, and the
suite fails with each mistake inserted between it and a device.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness as z

SUITE = os.path.join(z.BIN, "runtime_device_test")
MISTAKES = ["ignores-waits", "dirty-memory", "any-memory", "copies-forward", "fills-too-much", "any-transport", "any-functions", "functions-never-fail", "forgets-hooks", "loses-work", "notifies-always", "always-done",
            "loses-errors"]


def main():
    whole = subprocess.run([SUITE, "--gtest_brief=0"], stdout=subprocess.PIPE, text=True)
    if whole.returncode != 0:
        sys.exit(whole.stdout)

    def passed(suite, driver):
        return len(re.findall(rf"^\[       OK \] Drivers/Device{suite}\.[A-Za-z]*/{driver} ", whole.stdout, re.M))

    contract, computing, cpu = passed("Conformance", "null"), passed("Computing", "cpu"), passed("Conformance", "cpu")
    good = re.search(r"^\[  SKIPPED \] Drivers/DeviceComputing\.[A-Za-z]*/null", whole.stdout, re.M) and 0 < contract == cpu and computing > 0
    found = 0
    for mistake in MISTAKES:
        # Some runs end with a signal.
        done = subprocess.run([SUITE, "--gtest_filter=Drivers/*"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=os.environ | {"ZORSE_DEVICE_FAULT": mistake})
        found += done.returncode != 0
        failed = len(re.findall(r"^\[  FAILED  \] Drivers/.* \(", done.stdout, re.M))
        print(f"{mistake}: {failed} tests fail" if done.returncode else f"not found: {mistake}", flush=True)
    print(f"null: {contract} of {cpu} tests of the contract; cpu: all {cpu + computing}, {computing} of which compute; {found} of {len(MISTAKES)} seeded mistakes found")
    sys.exit(not good or found < len(MISTAKES))


if __name__ == "__main__":
    main()

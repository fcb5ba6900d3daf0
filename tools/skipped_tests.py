"""Lists the tests that a run of CTest skipped: skipped_tests.py REPORT.xml BUILD-FOLDER. Prints every test that was skipped or disabled, or that skipped a part (a line 'skipped: ...'), with the reason, and the
command that runs them. The reason names the missing prerequisite and how to install it."""
import re
import sys
import xml.etree.ElementTree as tree


def reasons(test):
    said = test.findtext("system-out") or ""
    found = re.findall(r"^skipped: (.*)$", said, re.M)
    # GoogleTest format: 'FILE:LINE: Skipped', the reason, then the name of the test.
    found += [f"{name}: {why.strip()}" for why, name in re.findall(r": Skipped\n(.*)\n(?:.*\n)*?\[  SKIPPED \] (\S+) \(", said)]
    if test.get("status") == "disabled":
        found.append("switched off in this build")
    elif not found and (test.get("status") == "notrun" or test.find("skipped") is not None):
        found.append("did not run and gives no reason")
    return list(dict.fromkeys(found))


def main():
    report, build = sys.argv[1:3]
    left_out = {test.get("name"): found for test in tree.parse(report).getroot().iter("testcase") if (found := reasons(test))}
    if not left_out:
        print("Nothing was skipped.")
        return
    print("Not tested here:")
    for name, found in left_out.items():
        for why in found:
            print(f"  {name}: {why}")
    print(f"Install the missing prerequisites, then run: ctest --test-dir {build} --output-on-failure -R '^({'|'.join(map(re.escape, left_out))})$'".replace("\\-", "-"))


if __name__ == "__main__":
    main()

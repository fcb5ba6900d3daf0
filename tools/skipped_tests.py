"""What a run of CTest left out: skipped_tests.py REPORT.xml BUILD-FOLDER. Prints every test that was skipped or disabled, or that left a part of it out (a line 'skipped: ...'), with its reason, and the
command that runs them. The reason says what is missing and how to get it."""
import re
import sys
import xml.etree.ElementTree as tree


def reasons(test):
    said = test.findtext("system-out") or ""
    found = re.findall(r"^skipped: (.*)$", said, re.M)
    # GoogleTest's: 'FILE:LINE: Skipped', the reason, and behind it the test's name.
    found += [f"{name}: {why.strip()}" for why, name in re.findall(r": Skipped\n(.*)\n(?:.*\n)*?\[  SKIPPED \] (\S+) \(", said)]
    if test.get("status") == "disabled":
        found.append("switched off in this build")
    elif not found and (test.get("status") == "notrun" or test.find("skipped") is not None):
        found.append("did not run and says no reason")
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
    print(f"Once what is missing is there, this runs them: ctest --test-dir {build} --output-on-failure -R '^({'|'.join(map(re.escape, left_out))})$'".replace("\\-", "-"))


if __name__ == "__main__":
    main()

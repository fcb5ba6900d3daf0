#!/usr/bin/env bash
# Claim: The null driver passes the contract of devices and the CPU driver all of the conformance suite, which finds each of the mistakes that are put between it and a device.
# Topic: Robustness
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
test=${ZORSE_BIN:-build/release/bin}/runtime_device_test
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$test" --gtest_brief=0 > "$report" || { cat "$report"; exit 1; }
passed() { grep -c "^\[       OK \] Drivers/Device$1\.[A-Za-z]*/$2 " "$report" || true; }
contract=$(passed Conformance null) computing=$(passed Computing cpu) cpu=$(passed Conformance cpu)
grep -q "^\[  SKIPPED \] Drivers/DeviceComputing\.[A-Za-z]*/null" "$report"
[ "$contract" -gt 0 ] && [ "$contract" = "$cpu" ] && [ "$computing" -gt 0 ]
faults=(ignores-waits dirty-memory any-memory copies-forward fills-too-much any-transport any-bodies bodies-never-fail forgets-hooks loses-work tells-everything always-done loses-errors)
found=0
for fault in "${faults[@]}"; do
  if { ZORSE_DEVICE_FAULT=$fault "$test" --gtest_filter='Drivers/*' > "$report" 2>&1; } 2> /dev/null; then # some end by a signal
    echo "not found: $fault"
  else
    found=$((found + 1))
    echo "$fault: $(grep -c '^\[  FAILED  \] Drivers/.* (' "$report" || true) tests fail"
  fi
done
echo "null: $contract of $cpu tests of the contract; cpu: all $((cpu + computing)), $computing of which compute; $found of ${#faults[@]} seeded mistakes found"
[ "$found" = "${#faults[@]}" ]

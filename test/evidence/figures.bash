# For scripts with figures of several commands: `source test/evidence/figures.bash`, then `figure LABEL COMMAND...` for each. It shows what the command prints and remembers its last line;
# all of them become the script's last line, and the script fails when one of the commands did, after the others have run.
figures=() figures_status=0

figure() {
  local label=$1 log status=0
  shift
  log=$(mktemp)
  "$@" | tee "$log" || status=$?
  # Exit code 77: cannot be tried here. What can be tried counts.
  if [ $status -ne 0 ] && { [ $status -ne 77 ] || [ $figures_status -eq 0 ]; }; then figures_status=$status; fi
  figures+=("${label:+$label: }$(sed '/^[[:space:]]*$/d' "$log" | tail -1)")
  rm -f "$log"
}

print_figures() {
  local status=$? line
  printf -v line '%s; ' "${figures[@]}"
  printf '\n%s\n' "${line%; }"
  [ $status -eq 0 ] || exit $status
  exit $figures_status
}
trap print_figures EXIT

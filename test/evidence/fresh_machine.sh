#!/usr/bin/env bash
# tools/quickstart.sh and tools/run-tests.sh of a fresh clone on a bare Debian 12, in either order.
#
# fresh_machine.sh [--cold] [--only=quickstart-first|tests-first] [--folder=FOLDER] [--prepare]
#   --cold      no ccache between the two orders, so both are cold. By default the second order reuses objects that the first one
#               compiled; the first is always cold.
#   --only      one of the two orders
#   --folder    where the roots are made (10 GB) and kept; default: a temporary folder, removed at the end
#   --prepare   makes the root and stops
# The machine is a root made by debootstrap, entered with separate namespaces, so that no process is left running and
# nothing mounted. It gets this machine's package sources, proxies, keys and certificates of apt and pip, and no
# package. Needs root; debootstrap is downloaded with apt if it is not installed. Only committed files are cloned.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
source "$repository/test/evidence/bare_machine.bash"
cold=0 orders=(quickstart-first tests-first) folder='' prepare=0
for word in "$@"; do
  case "$word" in
    --cold) cold=1 ;;
    --only=quickstart-first | --only=tests-first) orders=("${word#*=}") ;;
    --folder=*) folder=${word#*=} ;;
    --prepare) prepare=1 ;;
    *) echo "usage: $0 [--cold] [--only=quickstart-first|tests-first] [--folder=FOLDER] [--prepare]" >&2; exit 2 ;;
  esac
done
if [ "$(id -u)" -ne 0 ] || ! unshare --mount --pid --fork true 2>/dev/null; then
  echo "skipped: a separate root needs the user root, and namespaces"
  exit 77
fi
if [ -z "$folder" ]; then
  folder=$(mktemp -d /var/tmp/zorse-fresh-XXXXXX)
  # The namespaces no longer exist, so nothing is mounted there.
  trap 'rm -rf --one-file-system "$folder"' EXIT
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# debootstrap's files are sufficient: nothing is installed on this machine.
debootstrap=(debootstrap)
if ! command -v debootstrap >/dev/null; then
  (cd "$folder" && { ls debootstrap_*.deb >/dev/null 2>&1 || apt-get download -qq debootstrap 2>/dev/null; }) || { echo "skipped: debootstrap cannot be fetched with apt"; exit 77; }
  dpkg-deb -x "$folder"/debootstrap_*.deb "$folder/debootstrap"
  export DEBOOTSTRAP_DIR=$folder/debootstrap/usr/share/debootstrap
  debootstrap=("$folder/debootstrap/usr/sbin/debootstrap")
fi
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' | awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
[ -n "$mirror" ] || { echo "skipped: apt has no source of Debian 12 here"; exit 77; }

say() { printf '\n== %s\n' "$*"; }

# Copies the configuration of apt and pip: package sources and keys. No package is copied.
configure() {
  local root=$1 path
  for path in /etc/apt /usr/share/keyrings /etc/ssl/certs /usr/share/ca-certificates /usr/local/share/ca-certificates /etc/pip.conf /etc/resolv.conf /etc/hosts; do
    [ -e "$path" ] || continue
    mkdir -p "$root$(dirname "$path")"
    rm -rf "${root:?}$path"
    cp -aL "$path" "$root$path" 2>/dev/null || true # links to nowhere
  done
  # Container images delete downloaded packages immediately; the second order would download them again.
  cat >"$root/etc/apt/apt.conf.d/zz-fresh-machine" <<'APT'
#clear DPkg::Post-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Binary::apt-get::APT::Keep-Downloaded-Packages "true";
APT::Keep-Downloaded-Packages "true";
APT
}

if [ ! -e "$folder/base.done" ]; then
  say "A bare Debian 12"
  began=$SECONDS
  rm -rf --one-file-system "$folder/base"
  "${debootstrap[@]}" --variant=minbase --include=ca-certificates bookworm "$folder/base" "$mirror" >"$folder/debootstrap.log" 2>&1 || { tail -5 "$folder/debootstrap.log"; exit 1; }
  configure "$folder/base"
  touch "$folder/base.done"
  echo "made in $((SECONDS - began)) s: $(chroot "$folder/base" dpkg-query -W | wc -l) packages"
fi
[ $prepare = 0 ] || exit 0

figures=() before='' status=0
for order in "${orders[@]}"; do
  [ "$order" = quickstart-first ] && commands=(tools/quickstart.sh tools/run-tests.sh) || commands=(tools/run-tests.sh tools/quickstart.sh)
  say "$order: ${commands[*]}"
  root=$folder/$order
  rm -rf --one-file-system "$root"
  cp -a "$folder/base" "$root"
  git clone -q --no-hardlinks "$repository" "$root/root/zorse"
  shared=cold
  if [ -n "$before" ]; then
    shared="packages downloaded before"
    mv "$before"/var/cache/apt/archives/*.deb "$root/var/cache/apt/archives/" 2>/dev/null || true
    if [ $cold = 0 ] && [ -d "$before/root/.cache/ccache" ]; then
      shared+=", objects from ccache"
      mkdir -p "$root/root/.cache"
      mv "$before/root/.cache/ccache" "$root/root/.cache/ccache"
    fi
  fi
  echo "$(git -C "$root/root/zorse" rev-parse --short HEAD), $shared"
  took=()
  for command in "${commands[@]}"; do
    began=$SECONDS
    log=$folder/$order.$(basename "$command").log
    if enter "$root" zorse "$command" >"$log" 2>&1; then
      took+=("$(basename "$command") $((SECONDS - began)) s")
    else
      status=1
      took+=("$(basename "$command") FAILED after $((SECONDS - began)) s")
      tail -40 "$log"
    fi
    echo "${took[-1]}"
    sed -n '/tests passed,/p; /^Not tested here:/,$p' "$log"
  done
  figures+=("$order ($shared): $(printf '%s, ' "${took[@]}" | sed 's/, $//')")
  before=$root
done
printf -v line '%s; ' "${figures[@]}"
printf '\n%s\n' "${line%; }"
exit $status

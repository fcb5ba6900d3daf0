#!/usr/bin/env bash
# Runs a command on a temporary Slurm cluster on loopback: slurm-on-loopback.sh COMMAND [ARG...]
#
# Starts one slurmctld and two slurmd (nodes zn1 and zn2, declared with 8 CPUs each) with their own munge key, sockets and ports in a temporary directory. SLURM_CONF points
# COMMAND to them. The exit code is that of COMMAND, or 77 if Slurm or munge is not installed. When COMMAND has ended, all started processes are ended by id.
#
# With mount namespaces (root), zn1 and zn2 resolve to 127.0.0.1 and 127.0.0.2 as in a real cluster. Otherwise, ZORSE_STORE contains the address.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,8s/^# \?//p' "$0"; exit 2; }
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd srun sinfo; do
  command -v "$program" >/dev/null || { echo "skipped: $program is not installed (tools/install.sh --launchers)"; exit 77; }
done

if [ -z "${ZORSE_SLURM_FOLDER:-}" ]; then
  ZORSE_SLURM_FOLDER=$(mktemp -d /tmp/zorse-slurm.XXXXXX)
  export ZORSE_SLURM_FOLDER
  if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
    { cat /etc/hosts; echo "127.0.0.1 zn1"; echo "127.0.0.2 zn2"; } >"$ZORSE_SLURM_FOLDER/hosts"
    exec unshare --mount bash -c 'mount --make-rprivate / && mount --bind "$ZORSE_SLURM_FOLDER/hosts" /etc/hosts && exec "$@"' - bash "$0" "$@"
  fi
  export ZORSE_STORE=127.0.0.1:29611-29618
fi
folder=$ZORSE_SLURM_FOLDER
unset ZORSE_SLURM_FOLDER

pids=()
cleanup() {
  set +e
  trap '' INT TERM
  # First end jobs, while their daemons still run; then processes with our configuration in their environment (step daemons are not our children); then the daemons.
  timeout 5 scancel --signal=KILL --full --state=RUNNING 2>/dev/null
  for p in /proc/[0-9]*; do
    pid=${p#/proc/}
    [ "$pid" = $$ ] && continue
    case " ${pids[*]} " in *" $pid "*) continue ;; esac
    if { tr '\0' '\n' <"$p/environ"; } 2>/dev/null | grep -qxF "SLURM_CONF=$folder/slurm.conf"; then kill -KILL "$pid" 2>/dev/null; fi
  done
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null; done
  for _ in $(seq 30); do
    left=0
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && left=1; done
    [ $left = 0 ] && break
    sleep 0.1
  done
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
  [ -n "${ZORSE_SLURM_KEEP:-}" ] || rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

chmod 755 "$folder"
mkdir "$folder/state" "$folder/zn1" "$folder/zn2"
(umask 077; head -c 128 /dev/urandom >"$folder/munge.key")
listens() { grep -qiE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
for _ in $(seq 100); do # find three free ports below the ephemeral range
  first=$((16000 + RANDOM % 4000))
  listens "$first" || listens $((first + 1)) || listens $((first + 2)) || break
done
user=$(id -un)
cat >"$folder/slurm.conf" <<END
ClusterName=loopback$$
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$first
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
InactiveLimit=0
NodeName=zn1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((first + 1)) CPUs=8 RealMemory=1024
NodeName=zn2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.2 Port=$((first + 2)) CPUs=8 RealMemory=1024
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END

fail() {
  echo "slurm-on-loopback: $1" >&2
  tail -n 20 "$folder"/*.log "$folder"/zn?/*.log >&2 2>/dev/null || true
  exit 1
}
munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" --pid-file="$folder/munge.pid" \
  --seed-file="$folder/munge.seed" --log-file="$folder/munged.log" >/dev/null 2>&1 &
pids+=($!)
for _ in $(seq 50); do [ -S "$folder/munge.socket" ] && break; sleep 0.1; done
[ -S "$folder/munge.socket" ] || fail "munged did not start"

export SLURM_CONF=$folder/slurm.conf
slurmctld -D -c -f "$SLURM_CONF" >"$folder/slurmctld.out.log" 2>&1 &
pids+=($!)
for node in zn1 zn2; do
  slurmd -D -N $node -f "$SLURM_CONF" >"$folder/$node/out.log" 2>&1 &
  pids+=($!)
done
for _ in $(seq 150); do
  [ "$(timeout 5 sinfo -h -N -o '%T' 2>/dev/null | grep -c '^idle$')" = 2 ] && ready=1 && break
  for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null || fail "a daemon ended at once"; done
  sleep 0.2
done
[ -n "${ready:-}" ] || fail "the nodes did not become idle within 30 seconds"

code=0
"$@" || code=$?
exit $code

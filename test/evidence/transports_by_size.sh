#!/usr/bin/env bash
# Claim: Gloo between two processes over loopback against local transports, memcpy and a plain TCP connection, by size.
# Topic: Speed
# Quick: fewer sizes and repetitions
#
# The fastest of the repetitions is shown, because others may use the machine; processor time does not depend on them. The yardstick of processor time
# is a TCP connection with nothing around it: what the kernel takes for the same bytes is 4 to 9 times memcpy's, by processor.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
table=$("$bin/transport-times" --least "$@")
echo "$table"
echo "$table" | awk '
  /^[a-z]/ { kind = $1; next }
  kind == "transfer" && $1 == 4096 { small = $6 }
  kind == "transfer" && $1 == 67108864 { wall = $7 }
  kind == "socket" && $1 == 67108864 { cpu = $6 }
  END {
    printf "transfers: 4 KiB in %.1f times the local time (limit 30); 64 MiB at %.2f of the speed of memcpy (limit 0.10), for %.2f times the processor time of a plain TCP connection (limit 1.1)\n", small, 1 / wall, cpu
    exit !(small <= 30 && wall <= 10 && cpu > 0 && cpu <= 1.1)
  }'

# enter ROOT FOLDER SCRIPT: runs the script in /root/FOLDER of the root, as root of a separate machine: namespaces leave
# no process running and nothing mounted. It uses the proxies and pip's index of this machine.
enter() {
  local allowed='^(https?_proxy|ftp_proxy|no_proxy|all_proxy|pip_(index_url|extra_index_url|trusted_host|cert|default_timeout)|ssl_cert_(file|dir)|requests_ca_bundle|curl_ca_bundle)='
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb DEBIAN_FRONTEND=noninteractive "${@:4}" \
      bash -euc "cd /root/$2; $3"' enter "$1" "$2" "$3" $(env | grep -iE "$allowed" || true)
}

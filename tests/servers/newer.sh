#!/bin/sh
# Newer servers and Pythons than the system has, from Debian's next release: unpacked into a folder, not installed.
# Each runs as an ordinary process, for any user, with the C library that it was built for.
#   tests/servers/newer.sh FOLDER [SUITE [PACKAGE...]]     (92 MB to fetch, 220 MB on disk, 10 s)
set -eu
folder=$1 suite=${2:-forky}
if [ $# -gt 2 ]; then shift 2; else
  set -- rabbitmq-server redis-server valkey-server python3.13-venv python3.14-venv
fi
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null \
  || { echo 'Newer servers are unpacked from Debian packages, which needs apt-get.' >&2; exit 1; }

rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/root"
folder=$(cd "$folder" && pwd)
: > "$folder/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
  > "$folder/apt/sources.list"
# Nothing of the system's own: what is installed here must not be taken as there. A mirror's copy may be weeks old.
cat > "$folder/apt/apt.conf" << END
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
Dir::Etc "$folder/apt";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
APT::Install-Recommends "false";
APT::Sandbox::User "";
END
export APT_CONFIG="$folder/apt/apt.conf"
apt-get update -qq
apt-get install -y -qq --download-only "$@" > "$folder/apt/log" 2>&1 || { cat "$folder/apt/log" >&2; exit 1; }
for package in "$folder"/apt/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder/root" --no-same-owner \
    --exclude='./usr/share/doc*' --exclude='./usr/share/man*' --exclude='./usr/share/locale*'
done
rm -rf "$folder/apt"

# Debian's programs name the system's loader, which knows an older C library only. A script in the place of each program
# starts it by its own loader; `exec` keeps the process id.
root="$folder/root"
libraries="$root/usr/lib/x86_64-linux-gnu"
start_by_own_loader() {
  program=$(readlink -f "$1")
  if [ "$(head -c 4 "$program" | tail -c 3)" != ELF ]; then return; fi
  mv "$program" "$program.elf"
  printf '#!/bin/sh\nexec "%s" --library-path "%s" --argv0 "$0" "%s.elf" "$@"\n' \
    "$libraries/ld-linux-x86-64.so.2" "$libraries" "$program" > "$program"
  chmod +x "$program"
}
for program in "$root"/usr/bin/redis-server "$root"/usr/bin/valkey-server "$root"/usr/bin/python3.[0-9]* \
  "$root"/usr/lib/erlang/erts-*/bin/* "$root"/usr/lib/erlang/bin/escript; do
  if [ -e "$program" ]; then start_by_own_loader "$program"; fi
done
erl="$root/usr/lib/erlang/bin/erl"
if [ -e "$erl" ]; then sed -i "s|ROOTDIR=/usr/lib/erlang|ROOTDIR=$root/usr/lib/erlang|" "$erl"; fi

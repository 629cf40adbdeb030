#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# install.sh PROGRAM PREFIX: the program, the headers, the manual, completions, and what pkg-config and CMake need, under PREFIX
# ($DESTDIR before it, for packagers). `./x install` builds the program and calls this.
set -eu

[ $# = 2 ] || { echo "install.sh PROGRAM PREFIX" >&2; exit 2; }
program=$1
prefix=$2
case "$prefix" in
/*) ;;
*) echo "install.sh: the prefix must begin with /: $prefix" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)

install -D -m 755 "$program" "$to/bin/rtscope"
install -d "$to/include/rtscope" "$to/share/man/man1" "$to/share/man/man3" "$to/share/pkgconfig"
install -m 644 "$root"/include/rtscope/*.h "$to/include/rtscope/"
install -m 644 "$root"/dist/man/*.3 "$to/share/man/man3/"
install -D -m 644 "$root/dist/RtscopeConfig.cmake" "$to/lib/cmake/Rtscope/RtscopeConfig.cmake"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$root/dist/rtscope.pc.in" >"$to/share/pkgconfig/rtscope.pc"
chmod 644 "$to/share/pkgconfig/rtscope.pc"
"$program" man "$to/share/man/man1"
for shell in bash:bash-completion/completions/rtscope zsh:zsh/site-functions/_rtscope fish:fish/vendor_completions.d/rtscope.fish; do
    place=$to/share/${shell#*:}
    install -d "$(dirname "$place")"
    "$program" completions "${shell%%:*}" >"$place"
    chmod 644 "$place"
done
echo "installed under $to"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# install.sh PROGRAM PREFIX: the program, the headers, the manual, completions, and what pkg-config and CMake need, under PREFIX
# ($DESTDIR before it, for packagers). `./x install` builds the program and calls this. PREFIX/share/rtscope/installed lists all files, for
# uninstall.sh.
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
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# Everything in one place first: its names are the list.
install -d "$stage/bin" "$stage/include/rtscope" "$stage/share/man/man1" "$stage/share/man/man3" "$stage/share/pkgconfig" \
    "$stage/lib/cmake/Rtscope"
install -m 755 "$program" "$stage/bin/rtscope"
install -m 644 "$root"/include/rtscope/*.h "$stage/include/rtscope/"
install -m 644 "$root"/dist/man/*.3 "$stage/share/man/man3/"
# A page for each macro, as man(1) finds it: by name.
"$root/dist/man-aliases.sh" "$root" "$stage/share/man/man3"
install -m 644 "$root/dist/RtscopeConfig.cmake" "$stage/lib/cmake/Rtscope/"
sed -e "s|@VERSION@|$version|" -e "s|@MAJOR@|${version%%.*}|" "$root/dist/RtscopeConfigVersion.cmake.in" \
    >"$stage/lib/cmake/Rtscope/RtscopeConfigVersion.cmake"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$root/dist/rtscope.pc.in" >"$stage/share/pkgconfig/rtscope.pc"
"$program" man "$stage/share/man/man1"
for shell in bash:bash-completion/completions/rtscope zsh:zsh/site-functions/_rtscope fish:fish/vendor_completions.d/rtscope.fish; do
    place=$stage/share/${shell#*:}
    install -d "$(dirname "$place")"
    "$program" completions "${shell%%:*}" >"$place"
done
(cd "$stage" && find . -type f | sed 's|^\./||' | LC_ALL=C sort) >"$stage.list"
trap 'rm -rf "$stage" "$stage.list"' EXIT
while IFS= read -r file; do
    mode=644
    [ "$file" != bin/rtscope ] || mode=755
    install -D -m "$mode" "$stage/$file" "$to/$file"
done <"$stage.list"
install -D -m 644 "$stage.list" "$to/share/rtscope/installed"
echo "installed under $to"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# uninstall.sh PREFIX: removes what install.sh has put under PREFIX ($DESTDIR before it): the files of its list, and directories of its own
# that are empty then. Recordings, traces and other files stay.
set -eu

[ $# = 1 ] || { echo "uninstall.sh PREFIX" >&2; exit 2; }
case "$1" in
/*) ;;
*) echo "uninstall.sh: the prefix must begin with /: $1" >&2; exit 2 ;;
esac
from=${DESTDIR:-}$1
list=$from/share/rtscope/installed
if [ ! -f "$list" ]; then
    echo "uninstall.sh: $list is missing: rtscope is not installed there, or by a version before that list" >&2
    exit 1
fi
while IFS= read -r file; do
    # Only what is below the prefix, whatever the list says.
    case "/$file/" in
    */../* | //*) echo "uninstall.sh: '$file' in $list is left alone" >&2 ;;
    *) rm -f "$from/$file" ;;
    esac
done <"$list"
rm -f "$list"
rmdir "$from/include/rtscope" "$from/lib/cmake/Rtscope" "$from/share/rtscope" 2>/dev/null || true
echo "removed from $from"

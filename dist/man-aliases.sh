#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# man-aliases.sh ROOT DIRECTORY: a page for each macro of the header that has none of its own, which refers to that of RTSCOPE_EVENT. The
# names come from the header, so none can be forgotten.
set -eu

[ $# = 2 ] || { echo "man-aliases.sh ROOT DIRECTORY" >&2; exit 2; }
sed -n 's/^#define \(\(RTSCOPE\|rtscope\)_[A-Za-z0-9][A-Za-z0-9_]*\)(.*/\1/p' "$1/include/rtscope/event.h" \
    "$1/include/rtscope/fields.h" "$1/include/rtscope/printf.h" "$1/include/rtscope/rtscope.h" | LC_ALL=C sort -u | while IFS= read -r name; do
    [ -e "$2/$name.3" ] || echo ".so man3/RTSCOPE_EVENT.3" >"$2/$name.3"
done

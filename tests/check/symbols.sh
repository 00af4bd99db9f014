#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What each product exports, which libraries it needs, and how old a glibc may
# be: LD_PRELOAD brings one of them into every process of a user's job, and a
# wheel promises the oldest.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
here=$WEFT_SRC/tests/check

test -z "$WEFT_SANITIZED" || tap_skip_all "a sanitized build exports and needs more"

newer_than() # LIBRARY MAJOR.MINOR: symbols with a newer version
{
	nm -D --undefined-only "$1" | grep -o '[^ ]*@GLIBC_[0-9.]*' |
		awk -F'@GLIBC_' -v limit="$2" '
			{ split($2, v, "."); split(limit, l, ".")
			  if (v[1] > l[1] || v[1] == l[1] && v[2] > l[2]) print }'
}

check() # LIBRARY GLIBC NEEDED...
{
	local lib=$1 glibc=$2 file needed name
	shift 2
	file=$(product "$lib")
	if test -z "$file"; then
		tap_skip "$lib" "not built"
		return
	fi
	tap_equal "$lib exports what tests/check/symbols/ lists" \
		"$(nm -D --defined-only "$file" | awk '{ print $NF }' | sort)" \
		"$(sort "$here/symbols/${lib%.so}.list")"
	tap_nothing "$lib needs no glibc newer than $glibc" \
		"$(newer_than "$file" "$glibc")"
	tap_nothing "$lib needs no symbol of anything but glibc" \
		"$(nm -D --undefined-only "$file" | awk '$1 == "U"' |
			grep -v '@GLIBC_')"
	needed=
	for name in $(readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		case " $* " in
		*" $name "*) ;;
		*) needed+="$name " ;;
		esac
	done
	tap_nothing "$lib needs no library but $*" "$needed"
	tap_nothing "$lib has no executable stack or relocated text" \
		"$(readelf -lW "$file" | grep 'GNU_STACK.*RWE'
		   readelf -dW "$file" | grep TEXTREL)"
}

check libweft_preload.so 2.17 libc.so.6 libdl.so.2
# thread-local storage is found through the dynamic linker, a part of glibc
linker="ld-linux-x86-64.so.2 ld-linux-aarch64.so.1"
# shellcheck disable=SC2086
check libuct_weft.so 2.28 libc.so.6 libdl.so.2 libpthread.so.0 $linker
check libnccl-net-weft.so 2.28 libc.so.6 libdl.so.2 libpthread.so.0 $linker
check libnccl-env-weft.so 2.28 libc.so.6 libdl.so.2 libpthread.so.0 $linker
tap_nothing "weft itself needs no glibc newer than 2.28" \
	"$(newer_than "$WEFT_BUILD/tools/weft" 2.28)"
tap_done

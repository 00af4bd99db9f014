#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A worker goes without closing anything: what its peers have under way ends with
# an error, and they learn of it, without UCX's keepalive, in the oldest UCX and the
# newest (all with ./quickstart test --long). So does a put to memory that was
# freed, and what is sent from or to memory that cannot be accessed.
. "$(dirname "$0")/common.sh"

# a file system that is too small, in a mount namespace of this test alone
test -n "${GONE_MOUNTS-}" ||
	! unshare --user --map-root-user --mount true 2>/dev/null ||
	GONE_MOUNTS=1 exec unshare --user --map-root-user --mount bash "$0" "$@"

tap_folder
mkdir "$tap_tmp/full"
find_builds
test -n "${WEFT_TEST_LONG-}" || test ${#versions[@]} -lt 3 ||
	versions=("${versions[0]}" "${versions[-1]}")
build_program gone gone.c sides.c host.c || tap_skip_all "cannot build"
export UCX_TLS=weft_tcp UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
export UCX_KEEPALIVE_INTERVAL=inf

try() # VERSION ARGUMENT...
{
	local v=$1
	shift
	if under "$v" "$tap_tmp/gone" "$@" >"$tap_tmp/out" 2>&1; then
		tap_ok "$v: $*"
	else
		tap_not_ok "$v: $*" "$(cat "$tap_tmp/out")"
	fi
}

full=
if mount -t tmpfs -o size=1m none "$tap_tmp/full" 2>/dev/null; then
	full=$tap_tmp/full
fi

lost() # VERSION: by each scheme, from and to memory of each kind
{
	local scheme op
	for scheme in auto put_zcopy get_zcopy; do
		export UCX_RNDV_SCHEME=$scheme
		for op in tag am; do
			try "$1" lost 4194304 $op source unmapped
			try "$1" lost 4194304 $op source truncated
			try "$1" lost 4194304 $op target unmapped
			try "$1" lost 4194304 $op target read-only
			try "$1" lost 4194304 $op target truncated
			try "$1" lost 4194304 $op source truncated unhandled
			try "$1" lost 4194304 $op target unmapped unhandled
			test -z "$full" ||
				try "$1" lost 4194304 $op target "$full"
		done
	done
	unset UCX_RNDV_SCHEME
}

for v in "${versions[@]}"; do
	lost "$v"
	try "$v" idle 8
	try "$v" idle 8 back
	for kind in am tag; do	# whole, in pieces, by rendezvous
		for len in 8 30000 300000 10000000; do
			try "$v" $kind $len
			try "$v" $kind $len cold
		done
		try "$v" $kind 10000000 back
	done
	for kind in put get; do
		for len in 8 100000 100000000; do
			try "$v" $kind $len
		done
		try "$v" $kind 1000000 cold
	done
	# before, puts are messages
	test "$(minor_of "$v")" -lt 16 || try "$v" freed 1048576
done
test -z "$full" || umount "$full"
tap_done

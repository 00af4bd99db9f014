# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A fake adapter for whole programs: RoCE ports fake0:1 and fake1:1 in /sys, and
# fake_verbs.c in libibverbs' place. Wants a mount namespace of its own, in which
# the script that sources this runs again, as "SCRIPT inside".

verbs_inside() # SCRIPT ARGUMENT...
{
	test "${2-}" != inside || return 0
	grep -q 'HAVE_VERBS_H 1' "$WEFT_BUILD/config.h" ||
		tap_skip_all "built without rdma-core's headers"
	unshare -m true 2>/dev/null ||
		tap_skip_all "no mount namespace to be had here"
	exec unshare -m bash "$1" inside
}

# What the ports stand beside, their GIDs' address but for its last byte, and how
# their devices are called.
verbs_netdev=lo verbs_gid=7f00:00 verbs_name=fake

# For what is started from here on with $verbs in LD_LIBRARY_PATH.
verbs_setup() # FOLDER: all its files
{
	local port target net=()
	for port in /sys/class/net/*; do
		test ! -L "$port" || net+=("$(readlink -f "$port")")
	done
	mount -t tmpfs none /sys/class || return
	mkdir /sys/class/net
	for target in "${net[@]}"; do
		ln -s "$target" /sys/class/net
	done
	for port in 0 1; do
		target=/sys/class/infiniband/$verbs_name$port/ports/1
		mkdir -p $target/gids $target/gid_attrs/{types,ndevs}
		echo '4: ACTIVE' >$target/state
		echo Ethernet >$target/link_layer
		echo '100 Gb/sec (4X EDR)' >$target/rate
		echo "$verbs_netdev" >$target/gid_attrs/ndevs/0
		echo 'RoCE v2' >$target/gid_attrs/types/0
		echo "0000:0000:0000:0000:0000:ffff:${verbs_gid}0$((port + 1))" \
			>$target/gids/0
	done
	verbs=$1/verbs
	mkdir -p "$verbs"
	ln -sf "$WEFT_BUILD/tests/lib/.libs/libfake_verbs.so" \
		"$verbs/libibverbs.so.1"
	export WEFT_TEST_VERBS=$1/fabric WEFT_TEST_VERBS_NAME=$verbs_name
}

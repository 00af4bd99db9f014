#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Between two containers of one host over TCP, one of them logs at INFO, once, what
# keeps them from weft_shm; by default neither does. weft status has it, too.
. "$(dirname "$0")/common.sh"

test "$(id -u)" = 0 || tap_skip_all "needs root"
tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
cable || tap_skip_all "may not make network namespaces"
export UCX_NET_DEVICES=eth0 UCX_WARN_UNUSED_ENV_VARS=n
mkdir "$tap_tmp"/{run,own}
v=${versions[-1]}

pods() # RUN_DIR UCX_TLS: of the second; the first has "run" and weft_shm
{
	local enter="ip netns exec $netns"
	PRELOAD_WAIT="${enter}a env WEFT_RUN_DIR=$tap_tmp/run
		UCX_TLS=weft_shm,weft_tcp LD_PRELOAD=$preload" \
	PRELOAD_COME="${enter}b env WEFT_RUN_DIR=$1 UCX_TLS=$2
		LD_PRELOAD=$preload" exchange "$v" "$v" block large
}
said() # what both said of going over TCP, whichever has accepted the other
{
	cat "$tap_tmp"/{wait,come} | sed -n 's/.*weft: //; /goes over TCP/p' |
		sed -e 's/10\.78\.0\.[12]:[0-9]*/PEER/' -e 's/ *$//' \
			-e 's/: \(this process\|the peer\) /: one /' \
			-e "s/'weft info' there/'weft info'/" -e 's/to its/to/'
}
expect() # NAME TEXT RUN_DIR UCX_TLS
{
	local WEFT_LOG=info
	export WEFT_LOG
	if pods "$3" "$4"; then
		tap_equal "$1" "$(said)" "$2"
	else
		tap_not_ok "$1" "$(words)"
	fi
}

# What is in both folders, once all is sent.
export EXCHANGE_LOOK="export LD_PRELOAD=
for folder in run own; do
	WEFT_RUN_DIR=$tap_tmp/\$folder '$WEFT_BUILD/tools/weft' status
done >$tap_tmp/look"
way="the peer at PEER is on this host, but goes over TCP:"
expect "with a folder each: said once" \
	"$way they share neither the run folder nor the network namespace; mount one folder at /run/weft in both containers, or set WEFT_RUN_DIR to it" \
	"$tap_tmp/own" weft_shm,weft_tcp
tap_equal "weft status has it below that peer" \
	"$(grep -A1 "10.78.0.*weft_tcp, eth0.* MB" "$tap_tmp/look" |
		grep -c "^    on this host: they share neither")" 1
expect "one finds no folder" \
	"$way one can use no run folder, and the network namespaces differ; 'weft info' says why" \
	 /proc/nosuch weft_shm,weft_tcp
expect "one does not offer weft_shm" \
	"$way one offers no weft_shm; add it to UCX_TLS" "$tap_tmp/run" weft_tcp
expect "with a folder in common: nothing to say" "" "$tap_tmp/run" \
	weft_shm,weft_tcp
if pods "$tap_tmp/own" weft_shm,weft_tcp; then
	says_nothing "by default nothing is printed" "nothing to ignore"
else
	tap_not_ok "by default nothing is printed" "$(words)"
fi
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# nccl_perf: its figures in both forms, versions that differ between ranks, and
# what it says about a command line or a plugin that makes no sense.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_skip_sanitized "the sanitizers watch its checks (conformance.sh), its options in the long run"
tap_folder
perf=${WEFT_BUILD:?}/tests/nccl/perf/nccl_perf
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
export WEFT_TEST_PLUGIN=$plugin NCCL_SOCKET_IFNAME=lo
old=$WEFT_BUILD/tests/nccl/.libs/libfaulty.so # has version 9 alone
other=$WEFT_BUILD/tests/nccl/.libs/libplain.so # not weft's; versions 8 and 11

says() # NAME STATUS TEXT ARGUMENT...
{
	local name=$1 want=$2 text=$3 out rc=0
	shift 3
	out=$("$perf" "$@" 2>&1) || rc=$?
	if test $rc = "$want" && grep -qF -- "$text" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $rc: $out" $'\n'"wanted: $want, $text"
	fi
}

says "no plugin" 2 "which plugin?"
says "two plugins" 2 "one plugin at a time" "$plugin" "$old"
says "an unknown option" 2 "'--nosuch' is no option" --nosuch "$plugin"
says "an option without its value" 2 "or wants a value" "$plugin" --case
says "nothing left to do" 2 "--speed leaves no checks to make" --speed \
	--check "$plugin"
says "an unknown check" 2 "no check is named 'nosuch'; --list shows them" \
	--case nosuch "$plugin"
for value in 5 13 6,13 6, x; do
	says "--api $value" 2 "is not a number from 6 to 12" --api $value \
		"$plugin"
done
says "--comms 0" 2 "--comms '0' is not a number from 1 to 64" --comms 0 \
	"$plugin"
says "--max-size 4" 2 "--max-size '4' is not a number from 8 to" \
	--max-size 4 "$plugin"
says "--timeout never" 2 "--timeout 'never' is not" --timeout never "$plugin"
says "--netns one" 2 "--netns wants two" --netns one "$plugin"
says "--env 0" 2 "--env wants RANK:NAME=VALUE, not '0'" --env 0 "$plugin"
says "a namespace that is not there" 1 \
	"cannot enter network namespace '/run/netns/nosuch'" \
	--netns nosuch,nosuch --case sizes "$plugin"
says "no such file" 1 "cannot open shared object" /nosuch/libnccl-net-x.so
says "a library that is no plugin" 1 "has no ncclNetPlugin_v6 to v12" \
	"$WEFT_BUILD/nccl_net/.libs/libnccl-env-weft.so"
says "a version that it lacks" 1 "has no ncclNetPlugin_v12" --api 12 "$old"
says "a version that it lacks, on one rank" 1 "has no ncclNetPlugin_v8" \
	--api 9,8 "$old"
says "its newest version by default" 0 "v9   properties        ok" \
	--case properties "$old"

seen=$("$perf" --list)
tap_equal "--list: each check once, with what it is" \
	"$(awk 'NF > 1 { print $1 }' <<<"$seen" | sort -u | wc -l)" \
	"$(wc -l <<<"$seen")"

# Ranks of different versions: what they say to each other is the same.
export NCCL_MIN_NCHANNELS=4 # up to version 8 no tuner is asked
for pair in 6,12 12,6 8,10 9,11; do
	seen=$("$perf" --api $pair --case sizes --case both-ways \
		--case ring "$plugin" 2>&1 | grep -v "^v$pair *[a-z-]* *ok ")
	tap_nothing "versions $pair" "$seen"
done
unset NCCL_MIN_NCHANNELS
says "and one of them without a tuner" 1 \
	"one rank's NCCL asks weft's tuner and the other's does not" \
	--api 6,12 --case sizes "$plugin"

# A limit of time is for a machine with nothing else to do: this check takes
# eight seconds and may take two.
if echo 'int getloadavg(double *load, int n);
	int getloadavg(double *load, int n) { *load = 100000; return n; }' |
	${CC:-cc} -x c -shared -fPIC -o "$tap_tmp/busy.so" - 2>/dev/null &&
	test -z "$WEFT_SANITIZED"; then
	WEFT_PEER_TIMEOUT=500ms LD_PRELOAD=$tap_tmp/busy.so says \
		"a busy machine has more time" 0 " ok " --timeout 1 \
		--case peer-busy "$plugin"
else
	tap_skip "a busy machine has more time" "this host cannot simulate the load"
fi

# Another project's plugin, which passes in all, but maybe in one: the kernel may
# have taken what its receiver has no room for, and the sender is done.
seen=$("$perf" --check --all-api "$other" 2>&1)
tap_nothing "another's plugin, both of its versions" "$(
	grep -v -e ' ok ' -e ' grouped  *skipped  *maxRecvs is 1' \
		-e ' too-large ' <<<"$seen")"
tap_equal "all checks of both, but those that are made once" \
	"$(grep -c -e '^v11 ' <<<"$seen") $(grep -c -e '^v8 ' <<<"$seen")" \
	"$(count=$("$perf" --list | wc -l); echo $count $((count - 2)))"
says "figures of another's" 0 "CPU s/GB" --speed --max-size 2k "$other"
says "it has nothing between 8 and 11" 1 "has no ncclNetPlugin_v9" --api 9 \
	"$other"

says "figures alone, in columns" 0 "latency us" --speed --max-size 32 \
	--comms 1 "$plugin"
"$perf" --speed --json --max-size 1m --comms 2 "$plugin" \
	>"$tap_tmp/json" 2>&1
command -v python3 >/dev/null || {
	tap_skip "figures as JSON" "needs python3"
	tap_done
}
tap_nothing "figures as JSON" "$(python3 - "$tap_tmp/json" 2>&1 <<'PY'
import json
import sys
rows = [json.loads(line) for line in open(sys.argv[1]) if line.strip()]
fields = {"bytes", "latency_us", "gb_per_s", "cpu_s_per_gb"}
for row in rows:
    if set(row) != fields:
        print("fields:", sorted(row))
    for name in set(row) & {"bytes", "latency_us"}:
        if not row[name] > 0:
            print("not above 0:", row)
    # of 8 bytes on a busy machine they are rounded to 0
    for name in set(row) & {"gb_per_s", "cpu_s_per_gb"}:
        if not row[name] >= 0:
            print("below 0:", row)
sizes = [row.get("bytes") for row in rows]
if sizes != [8 * 4 ** i for i in range(9)]:
    print("sizes:", sizes)
PY
)"
tap_done

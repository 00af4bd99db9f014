#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Each check of nccl_perf notices the fault that it is there for.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
test -z "$WEFT_SANITIZED" || tap_skip_all "the sanitizer ends the planted crashes first"
export WEFT_TEST_PLUGIN=${WEFT_BUILD:?}/nccl_net/.libs/libnccl-net-weft.so
faulty=$WEFT_BUILD/tests/nccl/.libs/libfaulty.so

notices() # CHECK FAULT TEXT [OPTION...]
{
	local seen
	seen=$(WEFT_TEST_FAULT=$2 "$WEFT_BUILD"/tests/nccl/perf/nccl_perf "${@:4}" \
		--case "$1" "$faulty" 2>&1)
	case $? in
	1) ;;
	*) tap_not_ok "$1 notices $2" "$seen"; return ;;
	esac
	if grep -q "FAILED.*$3" <<<"$seen"; then
		tap_ok "$1 notices $2"
	else
		tap_not_ok "$1 notices $2" "$seen" "wanted: $3"
	fi
}

# Without a fault it passes: what follows is the faults' doing.
if seen=$("$WEFT_BUILD"/tests/nccl/perf/nccl_perf --case sizes --case both-ways \
	"$faulty" 2>&1); then
	tap_ok "the wrapper by itself passes"
else
	tap_not_ok "the wrapper by itself passes" "$seen"
fi
notices properties no-host "no host memory"
notices sizes flip "wrong bytes"
notices sizes size "the receiver got a size"
notices sizes beyond "\(beyond the\|remote error\)"
notices unaligned beyond "\(beyond the\|remote error\)"
notices in-flight flip "wrong bytes"
notices both-ways flip "wrong bytes"
notices late-receive flip "wrong bytes"
notices late-send size "instead of"
notices early-completion flip "wrong bytes"
notices register-beside reg-fails "regMr beside isend"
# on a busy machine the limit for connecting may be up first
notices listen-reuse one-accept "\(time limit\|connect: remote error\)" --timeout 4
notices many-comms few-comms "connect: system error"
notices two-contexts one-init "second init"
notices threads flip "wrong bytes"
notices connect-beside torn "wrong bytes"
notices self flip "wrong bytes"
notices ring flip "wrong bytes"
notices reload leak "descriptors are left"
notices peer-killed leak "descriptors are left"
notices peer-killed thread "threads are left"
notices close-in-flight close-hangs "time limit" --timeout 4
notices too-large truncate "larger than its receive succeeded"
notices peer-killed deaf "still waits" --timeout 6
notices peer-busy impatient "remote error"
notices peer-stopped impatient "remote error"
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that open CUDA IPC handles themselves, in two pods of one image, whose
# process ids are equal: refused as they are, right under `weft run`. Root is
# needed, python3 with cupy, for symmetric memory torch; one GPU is enough. The build
# is WEFT_BUILD, else this tree.
#
#   tests/gpu/ipc.sh
here=$(cd "$(dirname "$0")" && pwd) || exit 1
weft=$(cd "${WEFT_BUILD:-$here/../..}" && pwd)/tools/weft
test -x "$weft" || { echo "$0: no $weft: set WEFT_BUILD" >&2; exit 2; }
tmp=$(mktemp -d) && chmod 755 "$tmp" || exit 2
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/run" "$tmp/common"
export WEFT_RUN_DIR=$tmp/run TORCH_SYMM_MEM_DISABLE_MULTICAST=1
gpus=$(ls /dev/nvidia[0-9] | wc -l)
failed=0

# as in most containers: /proc/sys cannot be written
# shellcheck disable=SC2016 # the inner shell's
locked=(sh -c 'mount --bind /proc/sys /proc/sys &&
	mount -o remount,ro,bind /proc/sys && exec "$@"' -)

# Two sides of KIND, each started by PREFIX; $seen: what both said.
two() # KIND PREFIX...
{
	local kind=$1 side
	shift
	rm -rf "$tmp/meet"
	mkdir "$tmp/meet"
	for side in 0 1; do
		TMPDIR=$tmp/common timeout -k 5 60 sh "$here/pod.sh" "pod$side" \
			"$@" python3 "$here/ipc.py" "$kind" "$tmp/meet" $side \
			$((side % gpus)) >"$tmp/side.$side" 2>"$tmp/err.$side" &
	done
	wait
	seen=$(cat "$tmp/side.0" "$tmp/side.1")
}

# So many of the two sides say it; one may wait for the other forever.
says() # NAME SIDES WORDS KIND PREFIX...
{
	local name=$1 sides=$2 words=$3
	shift 3
	two "$@"
	if test "$(grep -c "$words" <<<"$seen")" = "$sides"; then
		echo "ok      $name ($(paste -sd ';' <<<"$seen"))"
	else
		echo "FAILED  $name, wanted '$words' of $sides:"
		cat "$tmp/side.0" "$tmp/side.1"
		tail -n 5 "$tmp/err.0" "$tmp/err.1"
		failed=1
	fi
}

# equal ids: each pod's first process becomes python3
says "a handle between equal process ids is refused" 2 "fails: " cupy
says "a handle under weft run" 2 ": right" cupy "$weft" run
says "the same where ns_last_pid cannot be written" 2 ": right" \
	cupy "${locked[@]}" "$weft" run
if python3 -c 'import torch' 2>/dev/null; then
	says "symmetric memory between equal process ids fails" 1 "fails: " torch
	says "symmetric memory under weft run" 2 ": right" torch "$weft" run
fi
exit $failed

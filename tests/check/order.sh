#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The memory orders of weft_shm's rings suffice, on processors that reorder, too: each
# that is stronger than relaxed, and only with it.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
cd "$WEFT_SRC" || exit 99
model=tests/check/order.cc
orders() { grep -hv '^#' "$@" | grep -o 'memory_order_[a-z_]*'; }
tap_equal "the model has the memory orders of the sources, in their order" \
	"$(orders devices/shm/shm_ring.c devices/shm/shm_ring.h)" "$(orders "$model")"
tap_folder
check() # [LINE]: what Relacy says, where the order in that line is relaxed
{
	"$tap_tmp/model" "$@" 2>&1 | grep -v '^[0-9]*%' | sed -n '2s/ *[(:].*//p'
}
if echo '#include <relacy/relacy.hpp>' |
	g++ -std=gnu++14 -w -fsyntax-only -x c++ - 2>/dev/null; then
	tap_equal "records arrive whole, and no wake is lost" \
		"$(g++ -std=gnu++14 -O1 -w -o "$tap_tmp/model" "$model" 2>&1
		check)" iterations
	grep -nE '^[^#]*memory_order_(acquire|release|seq_cst)' "$model" \
		>"$tap_tmp/lines"
	while IFS=: read -r line text; do
		said=$(check "$line")
		tap_nothing "line $line needs its order" \
			"$(grep -qE '^(USER ASSERT|DATA RACE)' <<<"$said" || echo "$text: $said")"
	done <"$tap_tmp/lines"
else
	tap_skip "Relacy" "there is no relacy/relacy.hpp, or no g++ (relacy-dev)"
fi
tap_done

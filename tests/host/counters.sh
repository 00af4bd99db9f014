#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What weft counts is what went: one side's sums are the other's, by puts as by
# gets, and what it gave to the wire is what the interface says, headers apart.
. "$(dirname "$0")/common.sh"

type ip python3 unshare >/dev/null 2>&1 || tap_skip_all "needs ip, python3, unshare"
# A network of its own, where no one else sends.
if test -z "${WEFT_TEST_INSIDE-}"; then
	if unshare -Urn true 2>/dev/null; then
		exec env WEFT_TEST_INSIDE=1 unshare -Urn bash "$0"
	fi
	test "$(id -u)" = 0 && unshare -n true 2>/dev/null ||
		tap_skip_all "may not make network namespaces"
	exec env WEFT_TEST_INSIDE=1 unshare -n bash "$0"
fi
unset WEFT_TEST_INSIDE
ip link set lo up || tap_skip_all "cannot bring lo up"

tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
export UCX_TLS=weft_tcp UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n

on_lo() # bytes that lo has carried, which is all that was sent by it
{
	sed -n 's/^ *lo: *\([0-9]*\) .*/\1/p' /proc/net/dev
}

cat >"$tap_tmp/pair.py" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
by_id = {(row["id"], row["peer"]): row for row in rows}
sent = ("tx_message_bytes", "tx_put_bytes", "tx_get_bytes")
got = ("rx_message_bytes", "rx_put_bytes", "get_bytes")
same = (("tx_messages", "rx_messages"), ("tx_puts", "rx_puts"),
        ("tx_gets", "gets"))
for (id, peer), row in by_id.items():
    other = by_id.get((peer, id))
    if not other or row["pid"] == other["pid"]:
        sys.exit(f"{id} has no counterpart: {rows}")
    if sum(row[key] for key in sent) != sum(other[key] for key in got):
        sys.exit(f"{id} did not send what {peer} got: {rows}")
    if any(row[one] != other[two] for one, two in same):
        sys.exit(f"{id} did not count as {peer} did: {rows}")
print(len(rows), "sides")
PY

# 88080388: what "large" moves each way
for v in "${versions[@]}"; do
	rm -f "$tap_tmp/stats"
	before=$(on_lo)
	if ! WEFT_STATS=$tap_tmp/stats exchange "$v" "$v" large; then
		tap_not_ok "$v: large messages" "$(words)"
		continue
	fi
	wire=$(($(on_lo) - before))
	told=$(of tcp wire_tx_bytes)
	tap_equal "$v: the counters of both sides agree" \
		"$(python3 "$tap_tmp/pair.py" "$tap_tmp/stats" 2>&1)" "2 sides"
	between "$v: sent bytes are the program's bytes" $((2 * 88080388)) \
		$(($(of tcp tx_message_bytes) + $(of tcp tx_put_bytes) +
		   $(of tcp tx_get_bytes))) $((2 * 88080388 + 65536))
	between "$v: wire bytes are at most 1 % more" \
		$((2 * 88080388)) "$told" $((2 * 88080388 / 100 * 101))
	# who ends first does not read the other's goodbye
	between "$v: what was given to it was taken from it" $((told - 1024)) \
		"$(of tcp wire_rx_bytes)" "$told"
	# 66 bytes of headers for at most 64 KiB, acknowledgements, the
	# connections' greetings
	between "$v: the interface carried that, with 5 % more" "$told" "$wire" \
		$((told / 100 * 105 + 65536))
done
tap_done

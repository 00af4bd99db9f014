#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What weft status says of two processes while they live is what they have sent,
# over weft_tcp and weft_shm, between PID namespaces as well; and weft stats says
# the same when they have ended, as does what Prometheus gets.
. "$(dirname "$0")/common.sh"

type python3 unshare >/dev/null 2>&1 || tap_skip_all "needs python3, unshare"
tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
export WEFT_RUN_DIR=$tap_tmp/run WEFT_STATS=$tap_tmp/stats
mkdir "$WEFT_RUN_DIR"
weft=$WEFT_BUILD/tools/weft
v=${versions[-1]}
large=$((2 * 88080388)) # what "large" moves, both ways

# Once all is sent, and nothing is closed yet. Then the pages are cut short, which
# must end neither.
export EXCHANGE_LOOK="export LD_PRELOAD=
$weft status >$tap_tmp/text 2>&1
$weft status --json >$tap_tmp/json
truncate -s 0 $WEFT_RUN_DIR/weft-*/c-*"

cat >"$tap_tmp/sums.py" <<'PY'
import json, sys
folder, = json.load(open(sys.argv[1]))
sent = ("tx_message_bytes", "tx_put_bytes", "tx_get_bytes")
got = ("rx_message_bytes", "rx_put_bytes", "get_bytes")
sums = []
for process in folder["processes"]:
    rows = [row for row in process["peers"] if row["weft"] == sys.argv[2]]
    other = {row["process"] for row in rows}
    assert other == {1 - folder["processes"].index(process)}, rows
    sums.append([sum(row[key] for row in rows for key in keys)
                 for keys in (sent, got)])
assert len(sums) == 2, sums
assert sums[0][0] == sums[1][1] and sums[0][1] == sums[1][0], sums
print(sums[0][0] + sums[1][0])
PY

shown() # NAME DEVICE: the figures of the last look
{
	local name=$1 device=$2 sum way lines
	sum=$(python3 "$tap_tmp/sums.py" "$tap_tmp/json" "$device" 2>&1)
	between "$name: each sends what the other receives, in all what was sent" \
		$large "${sum:-0}" $((large + large / 100))
	case $device in
	tcp) way="weft_tcp, lo" ;;
	shm) way="weft_shm" ;;
	esac
	tap_equal "$name: it names both as each other's peers, and the way" \
		"$(grep -c "^  exchange [0-9].*  $way.* [0-9.]* MB  *[0-9.]* MB$" "$tap_tmp/text")" 2
	lines=$("$weft" stats "$tap_tmp/stats" 2>&1 | tail -n +2)
	tap_equal "$name: weft stats adds up the same" \
		"$(grep -c "weft_$device  *88.[1-9] MB  *88.[1-9] MB$" <<<"$lines")" 1
	tap_equal "$name: no page is left" "$(ls "$WEFT_RUN_DIR"/* | grep -c '^c-')" 0
}

for device in tcp shm; do
	export UCX_TLS=weft_$device
	test $device = tcp || export UCX_TLS=weft_shm,weft_tcp
	rm -f "$tap_tmp/stats"
	if exchange "$v" "$v" block large; then
		shown "weft_$device" $device
	else
		tap_not_ok "weft_$device" "$(words)"
	fi
done

# What node_exporter takes: Prometheus's text format, as its documentation has it.
cat >"$tap_tmp/prometheus.py" <<'PY'
import re, sys
label = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
sample = re.compile(r"([a-z_]+)\{(%s(?:,%s)*)\} (\d+)" % (label, label))
helps, values = {}, {}
for name in sys.argv[1:]:
    text, metric, seen = open(name).read(), None, set()
    assert text.endswith("\n")
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            metric, words = line[7:].split(" ", 1)
            assert metric not in seen, f"{metric} is there twice"
            seen.add(metric)
            # one metric has one help in all files
            assert helps.setdefault(metric, words) == words
            kind = "gauge" if metric == "weft_streams_max" else "counter"
            assert next(lines) == f"# TYPE {metric} {kind}"
            assert (kind == "counter") == metric.endswith("_total"), metric
            continue
        match = sample.fullmatch(line)
        assert match and match[1] == metric, line
        key = match[1], frozenset(re.findall(label, match[2]))
        assert key not in values, f"{key} is there twice"
        values[key] = int(match[3])
def total(names):
    return sum(value for (name, labels), value in values.items()
               if name in names and 'device="tcp"' in labels)
sent = total(["weft_tx_message_bytes_total", "weft_tx_put_bytes_total",
              "weft_tx_get_bytes_total"])
got = total(["weft_rx_message_bytes_total", "weft_rx_put_bytes_total",
             "weft_get_bytes_total"])
assert sent == got, (sent, got)
assert all(any(l.startswith(n + "=") for l in labels) for _, labels in values
           for n in ("host", "pid", "program", "runtime", "interface"))
print(sent)
PY
export UCX_TLS=weft_tcp
mkdir "$tap_tmp/prometheus"
# a get is counted by who served it as it hears that all has come
if (export EXCHANGE_LOOK=true
    WEFT_STATS=prometheus:$tap_tmp/prometheus exchange "$v" "$v" block large); then
	between "for Prometheus: a file of each process, with what it has sent" $large \
		"$(python3 "$tap_tmp/prometheus.py" "$tap_tmp"/prometheus/*-ucx.prom 2>&1)" \
		$((large + large / 100))
	tap_equal "and no other file" "$(ls "$tap_tmp/prometheus" | wc -l)" 2
else
	tap_not_ok "for Prometheus" "$(words)"
fi

# One side has a PID namespace of its own, in which it is 1 or so.
apart="unshare -pf --mount-proc"
$apart true 2>/dev/null || apart="unshare -Urpf --mount-proc"
if ! $apart true 2>/dev/null; then
	tap_skip "between PID namespaces" "may not make them"
	tap_done
fi
export UCX_TLS=weft_tcp
rm -f "$tap_tmp/stats"
# unquoted where it is used: words of a command
if PRELOAD_COME="$apart env LD_PRELOAD=$preload" exchange "$v" "$v" block large; then
	tap_equal "it says both pids of one in another namespace" \
		"$(grep -c "^exchange [0-9][0-9]* ([0-9]* in $(uname -n)): UCX, for" "$tap_tmp/text")" 1
else
	tap_not_ok "between PID namespaces" "$(words)"
fi
tap_done

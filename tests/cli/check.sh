#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft check, between two processes and between two network namespaces.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
weft=$WEFT_BUILD/tools/weft
for name in "${!WEFT_@}" "${!UCX_@}" NCCL_SOCKET_IFNAME UCXPY_IFNAME \
	CUDA_VISIBLE_DEVICES; do
	case $name in WEFT_SRC | WEFT_BUILD | WEFT_SANITIZED | WEFT_TEST_LONG) ;; *) unset "$name" ;; esac
done
tap_folder
server=

stop()
{
	test -n "$server" && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null
	server=
	exec 9<&- 2>/dev/null
}
trap 'stop; rm -rf "$tap_tmp"' EXIT

# Starts the command and learns its port from its first line.
serve() # [COMMAND...]
{
	stop
	rm -f "$tap_tmp/pipe"
	mkfifo "$tap_tmp/pipe"
	"$@" "$weft" check --listen :0 >"$tap_tmp/pipe" 2>"$tap_tmp/server" &
	server=$!
	exec 9<"$tap_tmp/pipe"
	read -r -t 10 line <&9
	port=${line##*:}
}

says() # NAME CODE WORDS COMMAND...
{
	local name=$1 code=$2 words=$3 out rc
	shift 3
	out=$(timeout 300 "$@" 2>&1)
	rc=$?
	if test $rc = "$code" && grep -q -- "$words" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "exit code $rc, wanted $code: $out" \
			$'\n'"the other side: $(cat "$tap_tmp/server")"
	fi
}

# weft's words of the last line that the other side says.
who_asked()
{
	read -r -t 10 line <&9
	echo "${line%%:*} ${line##*, }"
}

# Each of these moves a gigabyte: what one can show is not asked of two.
serve env
out=$(UCX_TLS=weft_tcp NCCL_DEBUG=WARN MY_PASSWORD=secret "$weft" check \
	"127.0.0.1:$port" 2>&1)
tap_equal "all sizes arrive intact over loopback" \
	"$? $(grep -c "^Every byte of every size was compared" <<<"$out")" "0 1"
tap_equal "the listening side prints address, transport and interface" "$(who_asked)" \
	"127.0.0.1 over weft_tcp on lo"
report=$(sed -n '/^```$/,/^```$/p' <<<"$out")
tap_equal "it ends in a block for a bug report" "${out: -${#report}}" "$report"
for words in "^weft [0-9.]*, wire [0-9]*, check: works$" \
	"^Linux $(uname -r) $(uname -m), [0-9]* processors, " "UCX" "NCCL" \
	"^UCX_TLS=weft_tcp$" "^NCCL_DEBUG=WARN$" \
	"^weft_tcp lo - lo: 8 B in [0-9.]* us, put [0-9]* MB/s, get [0-9]* MB/s$" \
	"^weft_shm shm - shm: 8 B in "; do
	tap_equal "... with $words" "$(grep -c -m1 -- "$words" <<<"$report")" 1
done
tap_nothing "... and no other variable" "$(grep secret <<<"$report")"
if test -e /proc/net/if_inet6 && grep -q ' lo$' /proc/net/if_inet6; then
	says "a second check of the same listener, over IPv6" 0 "16 MiB" "$weft" check "[::1]:$port"
	says "an address that WEFT_FAMILY excludes is refused" 3 "'::1' within WEFT_FAMILY" \
		env WEFT_FAMILY=ipv4 "$weft" check "[::1]:$port"
	serve env WEFT_FAMILY=ipv4
	says "... and the listening side refuses it" 1 "closed the connection" \
		"$weft" check "[::1]:$port"
	tap_equal "... with its reason" "$(grep -c "which WEFT_FAMILY excludes" "$tap_tmp/server")" 1
	serve env
else
	says "a second check of the same listener" 0 "16 MiB" "$weft" check "localhost:$port"
	tap_skip "a check over IPv6" "no IPv6 here"
fi
says "an excluded interface is named" 1 "uses lo, which the list" \
	env WEFT_NET_DEVICES=nosuch0 "$weft" check "127.0.0.1:$port"

# Dask's own file, and what a probe reads.
printf '{"type": "Scheduler", "address": "ucxx://127.0.0.1:8786"}' \
	>"$tap_tmp/scheduler.json"
json=$(timeout 300 "$weft" check --json --scheduler-file "$tap_tmp/scheduler.json" \
	":$port" | python3 -c 'import json, sys
seen = json.load(sys.stdin)
devices, change = seen.pop("devices"), seen.pop("change")
put = [device["put_bytes_per_s"] for device in devices]
for key in "message_us", "put_bytes_per_s", "get_bytes_per_s":
    for device in devices:
        assert device.pop(key) > 0, key
assert len(change) == (put[1] > put[0]), change
assert all("UCX_TLS=weft_shm,weft_tcp" in words for words in change), change
print(seen, *devices)' 2>&1)
tap_equal "the scheduler of a file, and JSON" "$json" "{'host': '127.0.0.1', \
'works': True} {'weft': 'tcp', 'here': 'lo', 'there': 'lo'} \
{'weft': 'shm', 'here': 'shm', 'there': 'shm'}"
says "a scheduler that is not there yet" 3 "Dask's scheduler writes it" \
	"$weft" check -s "$tap_tmp/nosuch.json"
says "a scheduler file that cannot be read is no reason to wait" 1 "Not a directory" \
	"$weft" check -s "$weft/nosuch.json"
printf '{"address": ":x"}' >"$tap_tmp/odd.json"
says "an address that is none" 1 "has an invalid address: ':x'" \
	"$weft" check -s "$tap_tmp/odd.json"
says "a file that is no JSON" 1 "finds no address of a scheduler" \
	"$weft" check -s "$weft"
says "a scheduler that talks Dask's own tcp" 0 "which weft leaves alone" \
	"$weft" check -s <(sed s/ucxx/tcp/ "$tap_tmp/scheduler.json") ":$port"

printf '%s' 0123456789abcdef0123456789abcdef >"$tap_tmp/secret"
printf '%s' 0123456789abcdef0123456789abcdeX >"$tap_tmp/other"
chmod 600 "$tap_tmp/secret" "$tap_tmp/other"
differ="the two sides have different secrets in WEFT_SECRET_FILE"
here="only this side has a secret (WEFT_SECRET_FILE), the other one has none"
there="only the other side has a secret (WEFT_SECRET_FILE), this one has none"
# What the other side said of the last check, once.
told() # WORDS
{
	tap_equal "... and the listening side says so" \
		"$(sed -n "s/^weft check: 127.0.0.1:[0-9]*: \(.*\): nothing may.*/\1/p" \
			"$tap_tmp/server")" "$1"
}
says "a secret on the asking side only" 1 "^weft check: $here: nothing may connect" \
	env WEFT_SECRET_FILE="$tap_tmp/secret" "$weft" check "127.0.0.1:$port"
told "$there"
# Connections of other programs.
head -c 100 /dev/urandom >"/dev/tcp/127.0.0.1/$port" 2>/dev/null
printf 'GET / HTTP/1.0\r\n\r\n' >"/dev/tcp/127.0.0.1/$port"
exec 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port" \
	7<>"/dev/tcp/127.0.0.1/$port" && printf x >&6
says "garbage, HTTP and silent connections do not block a check" 0 "it works" \
	"$weft" check "localhost:$port"
exec 5>&- 6>&- 7>&-
serve env WEFT_SECRET_FILE="$tap_tmp/secret"
says "the same secret on both sides works" 0 "it works" \
	env WEFT_SECRET_FILE="$tap_tmp/secret" "$weft" check "127.0.0.1:$port"
says "another secret" 1 "^weft check: $differ: nothing may connect" \
	env WEFT_SECRET_FILE="$tap_tmp/other" "$weft" check "127.0.0.1:$port"
told "$differ"
serve env WEFT_SECRET_FILE="$tap_tmp/secret"
says "a secret on the listening side only" 1 "^weft check: $there: nothing may connect" \
	"$weft" check "127.0.0.1:$port"
told "$here"
chmod 644 "$tap_tmp/other"
for side in "127.0.0.1:$port" --listen; do
	says "$side: a secret that is missing, before anything is done" 1 \
		"^weft: error: cannot use '/nosuch', named by WEFT_SECRET_FILE" \
		env WEFT_SECRET_FILE=/nosuch "$weft" check $side
	says "$side: one that is open to others" 1 \
		"^weft: error: '$tap_tmp/other', named by WEFT_SECRET_FILE, is open" \
		env WEFT_SECRET_FILE="$tap_tmp/other" "$weft" check $side
done
tap_equal "the listening side heard nothing of these" "$(wc -l <"$tap_tmp/server")" 1

last=$port
stop
says "no listener: the error suggests to start it" 3 "is 'weft check --listen' running there" \
	"$weft" check "127.0.0.1:$last"
says "an unknown host name is an error" 3 "cannot resolve 'no.such.host.invalid'" \
	"$weft" check no.such.host.invalid
says "a missing host is a usage error" 2 "no host given" "$weft" check
says "a port without a host is a usage error" 2 "no host given" "$weft" check :19515
for wrong in host:port host:65536 '[::1]:x' '[::1'; do
	says "$wrong is a usage error that names it" 2 "'${wrong//[/\\[}' is not HOST or HOST:PORT" \
		"$weft" check "$wrong"
done
says "a wrong port to listen on is named" 2 "':65536' is not \[ADDRESS\]:PORT" \
	"$weft" check --listen :65536
says "two hosts are a usage error" 2 "more than one host" "$weft" check a b

# GPUs, as the fake driver shows them.
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
gpu=(WEFT_LIBCUDA="$fake" WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1
	WEFT_RUN_DIR="$tap_tmp/run" WEFT_TEST_CUDA_IPC="$tap_tmp/ipc")
no_gpu=(CUDA_VISIBLE_DEVICES=)
mkdir -m 700 "$tap_tmp/run" "$tap_tmp/ipc"

serve env "${gpu[@]}"
out=$(env "${gpu[@]}" WEFT_TEST_CUDA_WRONG=1 timeout 300 "$weft" check \
	"127.0.0.1:$port" 2>&1)
tap_equal "a wrong byte in GPU memory is reported, also for a bug report" \
	"$? $(grep -o -e "put of 65536 bytes: byte .* is wrong" \
		-e "^weft .*, check: fails" <<<"$out" |
		sed 's/byte [0-9]* /byte /; s/^weft .*, //')" \
	"1 put of 65536 bytes: byte is wrong"$'\n'"check: fails"
out=$(env "${gpu[@]}" timeout 120 "$weft" check "127.0.0.1:$port" 2>&1)
rc=$?
tap_equal "the block for a bug report has GPUs and their figures" \
	"$(grep -c -e '^GPU 0000:e[01]:00.0 ' -e '^weft_nvl: put [0-9]' <<<"$out")" 3
tap_equal "the listener survives that; two GPUs are measured" \
	"$rc $(grep -A4 '^  GPU' <<<"$out" | sed 's/ *[0-9]* *[0-9]*$//')" \
	"0 $(cat <<-'EOF'
	  GPU memory over weft_nvl, 0000:e0:00.0 here, 0000:e1:00.0 there
	  block         put MB/s   get MB/s
	  64 KiB
	  1 MiB
	  16 MiB
	EOF
	)"
out=$(env "${no_gpu[@]}" timeout 300 "$weft" check "127.0.0.1:$port" 2>&1)
tap_equal "without a GPU the output does not mention GPUs" "$? $(grep -ci gpu <<<"$out")" \
	"0 0"
says "a GPU without free memory is an error" 1 "cannot allocate 32 MiB on GPU 0" \
	env "${gpu[@]}" WEFT_TEST_CUDA_FULL=1 "$weft" check "127.0.0.1:$port"
serve env "${gpu[@]}" WEFT_TEST_CUDA_NODES=1
says "without the other's device node it says who cannot be mapped" 0 \
	"the driver does not map that of 0000:e1:00.0 here" \
	env "${gpu[@]}" WEFT_TEST_CUDA_NODES=0 "$weft" check "127.0.0.1:$port"
serve env "${gpu[@]}" WEFT_TEST_CUDA_FULL=1
says "no free GPU memory on the other side is an error" 1 "its own message says why" \
	env "${gpu[@]}" "$weft" check "127.0.0.1:$port"
serve env "${no_gpu[@]}"
says "it reports that the other side has no GPU" 0 "the other side has no GPU" \
	env "${gpu[@]}" "$weft" check "127.0.0.1:$port"

# Two hosts, as near as one machine comes to it.
if test -n "$WEFT_SANITIZED" && test -z "$WEFT_TEST_LONG"; then
	tap_skip "checks between two network namespaces" \
		"the sanitizers watch one namespace, both in the long run"
elif ip netns add "weft-cli-$$" 2>/dev/null &&
	{ ip netns exec "weft-cli-$$" true 2>/dev/null ||
		{ ip netns del "weft-cli-$$"; false; }; }; then
	ns=weft-cli-$$
	# its own, as this test may run twice at a time
	net=10.$((100 + $$ / 256 % 100)).$(($$ % 256))
	ports=$((40000 + $$ % 1000 * 10))
	trap 'stop; ip netns del $ns; rm -rf "$tap_tmp"' EXIT
	ip link add "wc$$a" type veth peer name wcb netns "$ns" &&
		ip addr add $net.1/25 dev "wc$$a" &&
		ip link set "wc$$a" up &&
		ip -n "$ns" addr add $net.2/25 dev wcb &&
		ip -n "$ns" link set wcb up && ip -n "$ns" link set lo up
	serve ip netns exec "$ns"
	says "two network namespaces, ten ports: over the veth" 0 "over weft_tcp on wc$$a" \
		env WEFT_PORT_RANGE=$ports-$((ports + 10)) "$weft" check "$net.2:$port"
	# a second cable, and a bridge of containers' that every host has
	ip link add "wd$$a" type veth peer name wdb netns "$ns" &&
		ip addr add $net.129/25 dev "wd$$a" &&
		ip link set "wd$$a" up &&
		ip -n "$ns" addr add $net.130/25 dev wdb &&
		ip -n "$ns" link set wdb up &&
		ip -n "$ns" link add docker0 type bridge &&
		ip -n "$ns" addr add 10.213.10.1/24 dev docker0 &&
		ip -n "$ns" link set docker0 up
	until test "$(cat "/sys/class/net/wd$$a/operstate")" = up &&
		ip -n "$ns" link show wdb | grep -q 'state UP'; do
		sleep 0.1
	done
	only="WEFT_NET_DEVICES=wc$$a,wd$$a"
	# on a very busy host the time may be up
	tap_equal "all that two hosts share, and the speed of each" \
		"$(env "$only" timeout 300 "$weft" check "$net.2:$port" |
			sed -nE "s/^.*, (over weft_tcp on .*)/\1/p
				s/^  (weft_.* - [a-z]*) +([0-9.]+ us .*|not measured.*)/\1/p")" \
		"over weft_tcp on wc$$a"$'\n'"weft_tcp wd$$a - wdb"$'\n'"weft_shm shm - shm"
	mkdir -m 700 "$tap_tmp/other-run"
	tap_equal "one host, and no folder in common: JSON says what to do" \
		"$(env "$only" WEFT_RUN_DIR="$tap_tmp/other-run" timeout 300 "$weft" \
			check --json "$net.2:$port" | python3 -c 'import json, sys
seen = json.load(sys.stdin)
print(*(x["weft"] for x in seen["devices"]), *seen["change"])' |
			grep -o "tcp tcp\|of one host.*WEFT_RUN_DIR")" \
		"tcp tcp
of one host, but weft_shm does not reach the other: it shares neither the \
network namespace nor the run folder; mount one folder in both (WEFT_RUN_DIR"
	if test -n "$WEFT_TEST_LONG"; then
		# SYNs arrive, and no answer comes back
		ip -n "$ns" route del $net.128/25
		says "a device that fails although addresses and routes promise it" 1 \
			"wd$$a does not work.*WEFT_NET_DEVICES=^wd$$a" \
			env "$only" "$weft" check "$net.2:$port"
	fi
	ip -n "$ns" link del wdb
	ip -n "$ns" link del docker0
	serve ip netns exec "$ns" env "${gpu[@]}"
	out=$(env "${gpu[@]}" timeout 300 "$weft" check "$net.2:$port" 2>&1)
	tap_equal "two pods with a shared folder use weft_nvl; without device nodes \
here NCCL is not introduced" \
		"$? $(grep -o -e "GPU memory over weft_nvl" \
			-e "NCCL between the two is not introduced: no GPU's device node" \
			<<<"$out")" \
		"0 GPU memory over weft_nvl
NCCL between the two is not introduced: no GPU's device node"
	says "two pods without a shared folder: the reason" 0 \
		"shares neither the network namespace nor the run folder" \
		env "${gpu[@]}" WEFT_RUN_DIR="$tap_tmp/other-run" \
		"$weft" check "$net.2:$port"
	# shellcheck disable=SC2016 # the inner shell's
	nodes=(unshare --mount bash -c 'dev=$(mktemp -d) &&
		mount -t tmpfs dev "$dev" && mkdir "$dev/shm" &&
		cp -a /dev/{null,zero,random,urandom} "$dev" &&
		mknod "$dev/nvidia0" c 1 3 && mknod "$dev/nvidia1" c 1 5 &&
		mount --move "$dev" /dev && exec "$@"' -)
	says "NCCL is not introduced without device nodes there" 0 \
		"NCCL between the two is not introduced: see 'weft info nccl' there" \
		"${nodes[@]}" env "${gpu[@]}" "$weft" check "$net.2:$port"
	serve ip netns exec "$ns" "${nodes[@]}" env "${gpu[@]}"
	says "NCCL is introduced between two pods" 0 "NCCL between the two uses its own NVLink" \
		"${nodes[@]}" env "${gpu[@]}" "$weft" check "$net.2:$port"
	says "NCCL is not introduced without a shared folder" 0 \
		"NCCL between the two is not introduced: they differ" \
		"${nodes[@]}" env "${gpu[@]}" WEFT_RUN_DIR="$tap_tmp/other-run" \
		"$weft" check "$net.2:$port"
	stop
else
	tap_skip "checks between two network namespaces" "no right to make a network namespace, or no mount point at /"
fi
tap_done

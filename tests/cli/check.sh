#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft check, between two processes and between two network namespaces.
. "$WEFT_SRC/tests/lib/tap.sh"
weft=$WEFT_BUILD/tools/weft
for name in "${!WEFT_@}" "${!UCX_@}" NCCL_SOCKET_IFNAME UCXPY_IFNAME \
	CUDA_VISIBLE_DEVICES; do
	case $name in WEFT_SRC | WEFT_BUILD | WEFT_SANITIZED) ;; *) unset "$name" ;; esac
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
	out=$(timeout 60 "$@" 2>&1)
	rc=$?
	if test $rc = "$code" && grep -q -- "$words" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "exit code $rc, wanted $code: $out" \
			$'\n'"the other side: $(cat "$tap_tmp/server")"
	fi
}

serve env
says "it works on one host" 0 "Every byte of every size was compared" \
	"$weft" check "127.0.0.1:$port"
read -r -t 10 line <&9
tap_equal "the other side says who asked" "${line%%:*} ${line##*, }" \
	"127.0.0.1 over weft_tcp by lo"
if test -e /proc/net/if_inet6 && grep -q ' lo$' /proc/net/if_inet6; then
	says "and again, by IPv6" 0 "64 MiB" "$weft" check "[::1]:$port"
else
	says "and again" 0 "64 MiB" "$weft" check "localhost:$port"
	tap_skip "by IPv6" "no IPv6 here"
fi
says "an interface that is left out" 1 "by lo, which the list" \
	env WEFT_NET_DEVICES=nosuch0 "$weft" check "127.0.0.1:$port"

printf '%s' 0123456789abcdef0123456789abcdef >"$tap_tmp/secret"
printf '%s' 0123456789abcdef0123456789abcdeX >"$tap_tmp/other"
chmod 600 "$tap_tmp/secret" "$tap_tmp/other"
# Whichever side dials first finds it out, and the other one sees it leave.
betrayed="WEFT_SECRET_FILE the same\|other side's own message"
says "a secret that the other lacks" 1 "$betrayed" \
	env WEFT_SECRET_FILE="$tap_tmp/secret" "$weft" check "127.0.0.1:$port"
# Strangers on the port.
head -c 100 /dev/urandom >"/dev/tcp/127.0.0.1/$port" 2>/dev/null
printf 'GET / HTTP/1.0\r\n\r\n' >"/dev/tcp/127.0.0.1/$port"
says "after these it still serves" 0 "it works" "$weft" check "localhost:$port"
exec 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port" \
	7<>"/dev/tcp/127.0.0.1/$port" && printf x >&6
says "while others say nothing" 0 "it works" "$weft" check "localhost:$port"
exec 5>&- 6>&- 7>&-
serve env WEFT_SECRET_FILE="$tap_tmp/secret"
says "the same secret" 0 "it works" \
	env WEFT_SECRET_FILE="$tap_tmp/secret" "$weft" check "127.0.0.1:$port"
says "another secret" 1 "$betrayed" \
	env WEFT_SECRET_FILE="$tap_tmp/other" "$weft" check "127.0.0.1:$port"
says "none" 1 "$betrayed" "$weft" check "127.0.0.1:$port"

last=$port
stop
says "nobody there" 1 "does 'weft check --listen' run there" \
	"$weft" check "127.0.0.1:$last"
says "no such host" 1 "cannot find 'no.such.host.invalid'" \
	"$weft" check no.such.host.invalid
says "no host" 2 "which host" "$weft" check
says "no port" 2 "is not HOST or HOST:PORT" "$weft" check host:port
says "two hosts" 2 "one host at a time" "$weft" check a b

# GPUs, as the fake driver shows them.
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
gpu=(WEFT_LIBCUDA="$fake" WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1
	CUDA_MPS_PIPE_DIRECTORY="$tap_tmp/mps" WEFT_RUN_DIR="$tap_tmp/run")
no_gpu=(CUDA_VISIBLE_DEVICES=)
mkdir -m 700 "$tap_tmp/run"

serve env "${gpu[@]}"
says "a GPU that gets wrong bytes" 1 "put of 65536 bytes: byte .* is wrong" \
	env "${gpu[@]}" WEFT_TEST_CUDA_WRONG=1 "$weft" check "127.0.0.1:$port"
out=$(env "${gpu[@]}" timeout 120 "$weft" check "127.0.0.1:$port" 2>&1)
rc=$?
tap_equal "after that it still serves: between two GPUs" \
	"$rc $(grep -A6 '^  GPU' <<<"$out" | sed 's/ *[0-9]* *[0-9]*$//')" \
	"0 $(cat <<-'EOF'
	  GPU memory over weft_nvl, 0000:e0:00.0 here, 0000:e1:00.0 there
	  block         put MB/s   get MB/s
	  64 KiB
	  1 MiB
	  16 MiB
	  64 MiB
	  put by a ring of GPU memory, get by a ring of GPU memory
	EOF
	)"
out=$(env "${no_gpu[@]}" timeout 60 "$weft" check "127.0.0.1:$port" 2>&1)
tap_equal "not a word of GPUs where there is none" "$? $(grep -ci gpu <<<"$out")" \
	"0 0"
says "a GPU without memory" 1 "no 128 MiB of memory of GPU 0" \
	env "${gpu[@]}" WEFT_TEST_CUDA_FULL=1 "$weft" check "127.0.0.1:$port"
serve env "${gpu[@]}" WEFT_TEST_CUDA_NODES=1
says "without each other's device node" 0 \
	"put by a ring of host memory, get by a ring of host memory" \
	env "${gpu[@]}" WEFT_TEST_CUDA_NODES=0 "$weft" check "127.0.0.1:$port"
serve env "${gpu[@]}" WEFT_TEST_CUDA_FULL=1
says "no memory on the other side's" 1 "its own message says why" \
	env "${gpu[@]}" "$weft" check "127.0.0.1:$port"
serve env "${no_gpu[@]}"
says "no GPU on the other side" 0 "the other side has no GPU" \
	env "${gpu[@]}" "$weft" check "127.0.0.1:$port"

# Two hosts, as near as one machine comes to it.
if ip netns add "weft-cli-$$" 2>/dev/null &&
	{ ip netns exec "weft-cli-$$" true 2>/dev/null ||
		{ ip netns del "weft-cli-$$"; false; }; }; then
	ns=weft-cli-$$
	trap 'stop; ip netns del $ns; rm -rf "$tap_tmp"' EXIT
	ip link add "wc$$a" type veth peer name wcb netns "$ns" &&
		ip addr add 10.213.7.1/24 dev "wc$$a" &&
		ip link set "wc$$a" up &&
		ip -n "$ns" addr add 10.213.7.2/24 dev wcb &&
		ip -n "$ns" link set wcb up && ip -n "$ns" link set lo up
	serve ip netns exec "$ns"
	says "between two hosts, with few ports" 0 "over weft_tcp by wc$$a" \
		env WEFT_PORT_RANGE=45000-45010 "$weft" check "10.213.7.2:$port"
	serve ip netns exec "$ns" env "${gpu[@]}"
	says "two GPUs in two pods that share a folder" 0 \
		"put by a ring of GPU memory, get by a ring of GPU memory" \
		env "${gpu[@]}" "$weft" check "10.213.7.2:$port"
	mkdir -m 700 "$tap_tmp/other-run"
	says "two pods that share nothing" 0 \
		"shares neither the network namespace nor the run folder" \
		env "${gpu[@]}" WEFT_RUN_DIR="$tap_tmp/other-run" \
		"$weft" check "10.213.7.2:$port"
	says "NCCL without device nodes" 0 \
		"NCCL between the two is not introduced: no GPU's device node" \
		env "${gpu[@]}" "$weft" check "10.213.7.2:$port"
	# shellcheck disable=SC2016 # the inner shell's
	nodes=(unshare --mount bash -c 'dev=$(mktemp -d) &&
		mount -t tmpfs dev "$dev" && mkdir "$dev/shm" &&
		cp -a /dev/{null,zero,random,urandom} "$dev" &&
		mknod "$dev/nvidia0" c 1 3 && mknod "$dev/nvidia1" c 1 5 &&
		mount --move "$dev" /dev && exec "$@"' -)
	says "NCCL without device nodes there" 0 \
		"NCCL between the two is not introduced: 'weft info nccl' there" \
		"${nodes[@]}" env "${gpu[@]}" "$weft" check "10.213.7.2:$port"
	serve ip netns exec "$ns" "${nodes[@]}" env "${gpu[@]}"
	says "NCCL of two pods" 0 "NCCL between the two uses its own NVLink" \
		"${nodes[@]}" env "${gpu[@]}" "$weft" check "10.213.7.2:$port"
	says "NCCL of two pods without a folder" 0 \
		"NCCL between the two is not introduced: they differ" \
		"${nodes[@]}" env "${gpu[@]}" WEFT_RUN_DIR="$tap_tmp/other-run" \
		"$weft" check "10.213.7.2:$port"
	stop
else
	tap_skip "between two hosts" "no right to make a network namespace, or no mount point at /"
fi
tap_done

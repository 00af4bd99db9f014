#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two containers of a real runtime (crun), as Docker and Podman make them: a user
# without capabilities, their seccomp profile, namespaces, a /dev/shm and a network
# of their own, and one folder in common. weft check, UCX and the NCCL of
# introduce/ find each other by that folder alone.
. "$(dirname "$0")/common.sh"

type crun ip python3 >/dev/null 2>&1 || tap_skip_all "needs crun, ip and python3"
profile=/usr/share/containers/seccomp.json # Podman's
test -e $profile || tap_skip_all \
	"no $profile (Debian: golang-github-containers-common)"
test "$(id -u)" = 0 || tap_skip_all "crun needs root for users that are not mapped"
if test -z "${WEFT_TEST_INSIDE-}"; then
	unshare -mn true 2>/dev/null || tap_skip_all "may not make namespaces"
	exec env WEFT_TEST_INSIDE=1 unshare -mn bash "$0"
fi
# crun refuses the two versions of cgroups side by side, of which it needs none
umount -R -l /sys/fs/cgroup 2>/dev/null
mkdir -p /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 none /sys/fs/cgroup || tap_skip_all "may not mount cgroup2"

tap_folder
find_builds
v=${versions[-1]}
libs=$(lib_of "$v")
job=$tap_tmp/job # the test's own: programs, what they write, where ranks meet
mkdir "$job" "$job/lib" "$tap_tmp/run"
chmod 1777 "$job" "$tap_tmp/run"
chmod 755 "$tap_tmp"
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
mv "$tap_tmp/exchange" "$job"
for name in libweft_preload libnccl-net-weft libnccl-env-weft; do
	cp "$(product $name.so)" "$job/lib" || tap_skip_all "$name.so is not built"
done
# shellcheck disable=SC2086 # CC may carry options
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O2 -I"$WEFT_SRC" -o "$job/libnccl.so.2" \
	"$WEFT_SRC/tests/nccl/introduce/nccl.c" -fPIC -shared \
	-fvisibility=hidden -Wl,-soname,libnccl.so.2 -Wl,-z,relro -Wl,-z,lazy \
	-ldl &&
	${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O2 -I"$WEFT_SRC" -o "$job/rank" \
		"$WEFT_SRC/tests/nccl/introduce/rank.c" -ldl ||
	tap_skip_all "cannot build"

# --- a network, of one cable, and what is mounted ----------------------------------
unshare -n sleep 1000 & net_a=$!
unshare -n sleep 1000 & net_b=$!
finish()
{
	stop
	kill $net_a $net_b 2>/dev/null
	rm -rf "$tap_tmp"
}
trap finish EXIT
own=$(readlink /proc/self/ns/net)
for pid in $net_a $net_b; do
	for _ in $(seq 500); do
		test "$(readlink /proc/$pid/ns/net)" = "$own" || break
		read -rt 0.01 <> <(:)
	done
done
ip link add eth0 netns $net_a type veth peer name eth0 netns $net_b ||
	tap_skip_all "cannot make a veth pair"
address_a=10.81.0.1 address_b=10.81.0.2
for name in a b; do
	pid=net_$name address=address_$name
	nsenter -n -t "${!pid}" ip addr add "${!address}/24" dev eth0
	nsenter -n -t "${!pid}" ip link set lo up
	nsenter -n -t "${!pid}" ip link set eth0 up
done
for pid in $net_a $net_b; do
	for _ in $(seq 500); do
		nsenter -n -t $pid ip link show eth0 2>/dev/null |
			grep -q LOWER_UP.*UP && break
		read -rt 0.01 <> <(:)
	done
done
mounts=("/job=$job:rw" "$WEFT_BUILD=$WEFT_BUILD:ro" /dev/nvidia0=/dev/zero:rw
	/dev/nvidia1=/dev/full:rw ${libs:+"$libs=$libs:ro"})
for name in /usr /bin /lib /lib64; do
	test ! -e $name || mounts+=("$name=$name:ro")
done
folder=/run/weft	# where the common one is mounted
user_a=1000 user_b=1000
mapped_a=0 mapped_b=0	# the host's user that is root there, by a user namespace
seconds=60

container() # a|b COMMAND...
{
	local dir=$tap_tmp/$1 pid=net_$1 user=user_$1 mapped=mapped_$1
	# mount points of the one before
	rm -rf --one-file-system "$dir/rootfs"
	mkdir -p "$dir/rootfs"
	chown "${!mapped}" "$dir/rootfs"
	python3 "$WEFT_SRC/tests/host/oci_config.py" "$profile" "/proc/${!pid}/ns/net" \
		"${!user}" "${!mapped}" "${mounts[@]}" \
		${folder:+"$folder=$tap_tmp/run:rw,nosuid,nodev,noexec"} \
		-- timeout -k 5 $seconds "${@:2}" >"$dir/config.json" || return
	timeout -k 5 $((seconds + 30)) crun --root "$dir/state" \
		--cgroup-manager=disabled run -b "$dir" "weft-$1"
}

server=
stop() # what has not ended by itself
{
	local name
	for name in a b; do
		crun --root "$tap_tmp/$name/state" --cgroup-manager=disabled \
			delete -f "weft-$name" 2>/dev/null
	done
	test -z "$server" || wait "$server"
	server=
	exec 9<&-
} 2>/dev/null

# vmsplice() of no file: forbidden by the profile, else a bad descriptor
seen=$(container a python3 -c 'import ctypes, os, shutil
wanted = "Uid", "CapBnd", "CapEff", "NoNewPrivs", "Seccomp"
for line in open("/proc/self/status"):
    name, values = line.split(":")
    if name in wanted:
        print(name, values.split()[0])
libc = ctypes.CDLL(None, use_errno=True)
libc.vmsplice(-1, None, 0, 0)
print("vmsplice:", os.strerror(ctypes.get_errno()))
print("/dev/shm", shutil.disk_usage("/dev/shm").total >> 20)' 2>&1)
test "${seen%%:*}" != "$seen" || tap_skip_all "crun makes no container here: $seen"
tap_equal "a container is what it is meant to be" "$seen" "Uid 1000
CapEff 0000000000000000
CapBnd 0000000000000000
NoNewPrivs 1
Seccomp 2
vmsplice: Operation not permitted
/dev/shm 64"

# --- weft check --------------------------------------------------------------------
check() # works? by which devices, and what would be better
{
	local line weft=$WEFT_BUILD/tools/weft
	rm -f "$tap_tmp/pipe"
	mkfifo "$tap_tmp/pipe"
	container a "$weft" check --listen :0 >"$tap_tmp/pipe" \
		2>"$tap_tmp/server" &
	server=$!
	exec 9<"$tap_tmp/pipe"
	read -rt $seconds line <&9
	container b "$weft" check --json "$address_a:${line##*:}" \
		2>"$tap_tmp/client" | python3 -c 'import json, sys
seen = json.load(sys.stdin)
print(seen["works"], *(x["here"] + "=" + x["there"] for x in seen["devices"]),
      *(words for words in seen["change"] if "one host" in words))' ||
		cat "$tap_tmp/client" "$tap_tmp/server"
	stop
}
checked() # NAME WANTED
{
	local seen
	seen=$(check)
	case $seen in
	"True $2"*) tap_ok "$1" ;;
	*)	tap_not_ok "$1" "$seen" $'\n'"wanted: True $2" ;;
	esac
}

apart="eth0=eth0 both sides are of one host, but weft_shm does not reach the other: \
it shares neither the network namespace nor the run folder"
checked "weft check: by memory" "eth0=eth0 shm=shm"
folder=''
checked "weft check: without the folder by TCP alone, and why" "$apart"
folder=/run/weft user_b=1001
checked "weft check: nor with another user, and why" "$apart"
user_b=1000

# --- UCX ---------------------------------------------------------------------------
claim=() # what Kubernetes sets
port=7000
large=$((2 * 88080388)) # what "large" moves, both ways
ucx() # a|b TRANSPORTS wait|come ARGUMENT...
{
	container "$1" env EXCHANGE_ALARM=$seconds UCX_TLS="$2" \
		UCX_WARN_UNUSED_ENV_VARS=n WEFT_STATS="/job/stats.$1" \
		"${claim[@]}" \
		${libs:+LD_LIBRARY_PATH="$libs"} LD_PRELOAD="$preload" \
		/job/exchange "$3" $address_a:$port "${@:4}"
}
two() # TRANSPORTS ARGUMENT...: fails where one side does
{
	local pid status
	rm -f "$job"/stats.* "$tap_tmp/stats"
	port=$((port + 1)) # the last one's connection lingers there
	ucx a "$1" wait "${@:2}" >"$tap_tmp/wait" 2>&1 &
	pid=$!
	ucx b "$1" come "${@:2}" >"$tap_tmp/come" 2>&1
	status=$?
	wait $pid && test $status = 0 || return 1
	cat "$job"/stats.* >"$tap_tmp/stats"
}
carried() # NAME SHM TCP ARGUMENT...: who moves the bytes of large messages
{
	local name=$1 shm=$2 tcp=$3 more=$((large + large / 100))
	shift 3
	if ! two weft_shm,weft_tcp "$@"; then
		tap_not_ok "$name" "$(words)"
		return
	fi
	says_nothing "$name: right, without a word" "nothing to ignore"
	between "$name: weft_shm" "$shm" "$(of shm wire_tx_bytes)" \
		$((shm ? more : 0))
	between "$name: weft_tcp" "$tcp" "$(of tcp wire_tx_bytes)" \
		$((tcp ? more : 65536))
}
whole() # NAME
{
	if two weft_shm peer; then
		says_nothing "$1" "nothing to ignore"
	else
		tap_not_ok "$1" "$(words)"
	fi
}

carried "UCX $v, large messages" $large 0 peer large
whole "UCX $v: every kind of transfer, by weft_shm alone"
folder=/run/nvidia-dra/local-ipc claim=("NVIDIA_DRA_LOCAL_IPC_DIR=$folder")
whole "UCX $v: the same, in the folder of a Kubernetes claim"
claim=() folder=''
if two weft_shm peer connect || ! grep -q "Destination is unreachable" \
		"$tap_tmp"/{wait,come}; then
	tap_not_ok "UCX $v: without the folder weft_shm alone reaches no peer" \
		"$(words)"
else
	tap_ok "UCX $v: without the folder weft_shm alone reaches no peer"
fi
carried "UCX $v, without the folder" 0 $large peer large
folder=/run/weft user_b=1001
carried "UCX $v, with another user" 0 $large peer large
user_b=1000
if unshare -U true 2>/dev/null; then
	mapped_a=100000
	carried "UCX $v, with the same user of another mapping" 0 $large \
		peer large
	mapped_b=100000
	carried "UCX $v, with the same user of the same mapping" $large 0 \
		peer large
	mapped_a=0 mapped_b=0
else
	tap_skip "in user namespaces" "none to be had here"
fi

# --- NCCL --------------------------------------------------------------------------
ranks() # VARIABLE=VALUE: what both say
{
	local pid
	rm -f "$job/meeting"
	container a env NCCL_DEBUG=INFO "$1" /job/rank /job/libnccl.so.2 0 2 \
		/job/meeting >"$tap_tmp/wait" 2>"$tap_tmp/told" &
	pid=$!
	container b env NCCL_DEBUG=INFO "$1" /job/rank /job/libnccl.so.2 1 2 \
		/job/meeting >"$tap_tmp/come" 2>>"$tap_tmp/told"
	wait $pid
	cat "$tap_tmp"/{wait,come}
}
together="rank 0: with 1 of 1
rank 1: with 1 of 1"
for way in LD_PRELOAD=/job/lib/libweft_preload.so \
	NCCL_NET_PLUGIN=/job/lib/libnccl-net-weft.so \
	NCCL_ENV_PLUGIN=/job/lib/libnccl-env-weft.so; do
	tap_equal "NCCL is introduced: ${way%%=*}" "$(ranks $way)" "$together"
done
folder=''
tap_equal "NCCL is not introduced without the folder" "$(ranks $way)" \
	"${together//1 of/0 of}"
folder=/run/weft user_b=1001
tap_equal "NCCL is not introduced to another user" "$(ranks $way)" \
	"${together//1 of/0 of}"
tap_done

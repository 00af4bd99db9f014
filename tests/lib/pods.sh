# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# Ranks in pods: host name, IPC, PIDs, mounts, /dev/shm and network of their own,
# on one file system. Their NCCL and their programs are built here, in $tap_tmp.

# What is built and allowed; again in a user namespace, if only that is.
pods_needed()
{
	local name
	test -z "$WEFT_SANITIZED" ||
		tap_skip_all "a sanitizer's run time must come first"
	for name in libweft_preload libnccl-net-weft libnccl-env-weft; do
		test -n "$(product $name.so)" ||
			tap_skip_all "$name.so is not built"
	done
	# as if nothing had ever been set
	for name in "${!WEFT_@}" "${!NCCL_@}"; do
		case $name in
		WEFT_SRC | WEFT_BUILD | WEFT_TEST_* | WEFT_SANITIZED) ;;
		*) unset "$name" ;;
		esac
	done
	export NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO
	test -z "${PODS_INSIDE-}" || return 0
	export PODS_INSIDE=1
	unshare -uimnpf --mount-proc true 2>/dev/null &&
		exec unshare -m bash "$0"
	unshare -Urmpf --mount-proc \
		unshare -uimnpf --mount-proc true 2>/dev/null &&
		exec unshare -Urmpf --mount-proc bash "$0"
	tap_skip_all "may not make namespaces"
}

pods_cc() # OUTPUT SOURCE OPTION...
{
	# shellcheck disable=SC2086 # CC may carry options
	$CC -std=gnu11 -D_GNU_SOURCE -O2 -I"$WEFT_SRC" -o "$@" || {
		tap_not_ok "cannot build $1"
		tap_done
	}
}

# The three ways, by_preload, by_net and by_env, and a folder for each build of
# NCCL: "release" is as its makers build it.
pods_build()
{
	local src=$WEFT_SRC/tests/nccl/introduce dir
	export WEFT_RUN_DIR=$tap_tmp/run
	mkdir "$WEFT_RUN_DIR"
	mount -t tmpfs tmpfs "$WEFT_RUN_DIR"
	trap 'umount -l "$WEFT_RUN_DIR"; rm -rf "$tap_tmp"' EXIT
	# as it is installed: all in one folder
	mkdir "$tap_tmp/lib"
	for dir in libweft_preload libnccl-net-weft libnccl-env-weft; do
		cp "$(product $dir.so)" "$tap_tmp/lib"
	done
	by_preload=(LD_PRELOAD="$tap_tmp/lib/libweft_preload.so")
	by_net=(NCCL_NET_PLUGIN="$tap_tmp/lib/libnccl-net-weft.so")
	by_env=(NCCL_ENV_PLUGIN="$tap_tmp/lib/libnccl-env-weft.so")
	local options=(-fPIC -shared -fvisibility=hidden)
	mkdir "$tap_tmp"/{release,lazy,now,no-plt,torch,torch-now}
	for dir in release lazy now no-plt; do
		local more=(-Wl,-soname,libnccl.so.2 -Wl,-z,relro)
		case $dir in
		release) more+=(-Wl,-z,lazy -DOLD_STAT -DADDRESSES) ;;
		lazy)	 more+=(-Wl,-z,lazy) ;;
		now)	 more+=(-Wl,-z,now) ;;
		no-plt)	 more+=(-fno-plt -Wl,-z,now) ;;
		esac
		pods_cc "$tap_tmp/$dir/libnccl.so.2" "$src/nccl.c" \
			"${options[@]}" "${more[@]}" -ldl
	done
	# torch may contain NCCL
	pods_cc "$tap_tmp/torch/libtorch_cuda.so" "$src/nccl.c" \
		"${options[@]}" -Wl,-z,lazy -ldl
	pods_cc "$tap_tmp/torch-now/libtorch_cuda.so" "$src/nccl.c" \
		"${options[@]}" -Wl,-z,now -ldl
	pods_cc "$tap_tmp/rank" "$src/rank.c" -ldl
	pods_cc "$tap_tmp/linked" "$src/rank.c" -ldl -Wl,--no-as-needed \
		"$tap_tmp/release/libnccl.so.2" -Wl,-rpath,"$tap_tmp/release"
	pods_cc "$tap_tmp/refuse" "$src/refuse.c"
	pods_of release
}

pods_of() # BUILD: which NCCL the ranks have from here on
{
	pods_program=("$tap_tmp/rank" "$tap_tmp/$1"/lib*.so*)
}

# What a pod does as it starts, beside the one for its rank alone.
pods_all="" pods_setup=()
pods_net=-n		# empty: the host's network
pods_shm=""		# a folder of the host that is their /dev/shm
pods_gpus="0 1"		# whose device nodes are there,
pods_gpus_of=()		# or, for the rank alone, these
pods_rounds=1

# For the shell in there. A GPU's node is that of some character device.
# shellcheck disable=SC2016
pods_enter='
set -e
host=$1 gpus=$2 shm=$3 dev=$4.$1
nodes=(zero full null urandom)
echo "pod$host" >/proc/sys/kernel/hostname
mount --make-rprivate /
ip link set lo up 2>/dev/null || :
node() # NAME NODE
{
	touch "$dev/$1"
	mount --bind "/dev/$2" "$dev/$1"
}
refused() # NAME: is there, and does not open, as behind a device cgroup
{
	mount -o remount,bind,nodev "/dev/$1"
}
on_bus() # GPU...: those of the host, as sysfs shows them
{
	mount -t tmpfs tmpfs /sys/bus/pci/devices
	local gpu at
	for gpu in "$@"; do
		at=/sys/bus/pci/devices/0000:1$gpu:00.0
		mkdir $at
		echo 0x10de >$at/vendor
		echo 0x030200 >$at/class
	done
}
mkdir "$dev"
mount -t tmpfs tmpfs "$dev"
mkdir "$dev/shm"
for name in "${nodes[@]}" random; do
	node $name $name
done
for gpu in $gpus; do
	node "nvidia$gpu" "${nodes[gpu]}"
done
if test -n "$shm"; then
	mount --bind "$shm" "$dev/shm"
else
	mount -t tmpfs tmpfs "$dev/shm"
fi
mount --rbind "$dev" /dev
with=()	# a command before the program, for this rank
eval "$5"
set +e
# not the first process, which nothing kills
env "${@:7:$6}" "${with[@]}" "${@:7 + $6}"
status=$?
test $status = 0 || echo "rank $host: status $status"'

pod() # RANK RANKS [VARIABLE=VALUE...]
{
	# shellcheck disable=SC2086 # -n or nothing
	exec timeout -k 5 150 unshare -uimpf --mount-proc --kill-child $pods_net \
		bash -c "$pods_enter" bash "$1" \
		"${pods_gpus_of[$1]-$pods_gpus}" "$pods_shm" \
		"$tap_tmp/dev" "$pods_all"$'\n'"${pods_setup[$1]-}" \
		$(($# - 2)) "${@:3}" "${pods_program[@]}" "$1" "$2" \
		"$tap_tmp/meeting" "$pods_rounds"
}

# $pods_said: what the ranks say; $pods_told: what their libraries say.
pods() # RANKS [VARIABLE=VALUE...]
{
	local rank=0 pids=()
	chmod 755 "$tap_tmp"
	rm -f "$tap_tmp"/{said,told}.* "$tap_tmp/meeting"
	rmdir "$tap_tmp"/dev.* 2>/dev/null
	while test $rank -lt "$1"; do
		pod $rank "$@" >"$tap_tmp/said.$rank" 2>"$tap_tmp/told.$rank" &
		pids+=($!)
		rank=$((rank + 1))
	done
	wait "${pids[@]}"
	pods_said=$(cat "$tap_tmp"/said.*)
	pods_told=$(cat "$tap_tmp"/told.*)
}

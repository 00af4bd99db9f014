#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks of one host that must not find each other by NCCL's own calls, since
# these would then fail or reach other jobs: each gets a host id of its own, one
# line says why where it can be helped, and the program goes on.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/pods.sh"
pods_needed
tap_folder
cd "$tap_tmp" || exit 99
pods_build

together="rank 0: with 1 of 1
rank 1: with 1 of 1"
apart="rank 0: with 0 of 1
rank 1: with 0 of 1"

ways="preload net"

# The one line that a rank logs about it.
reason() # RANK
{
	grep -e 'not introduced' "$tap_tmp/told.$1"
}

# Both continue and log nothing, since it is in order.
apart() # NAME [VARIABLE=VALUE...]
{
	local way
	for way in $ways; do
		local -n vars=by_$way
		pods 2 "${vars[@]}" "${@:2}"
		tap_equal "$1 ($way)" "$pods_said" "$apart"
	done
}

# The same, and rank 1 logs why, once, in these words.
declined() # NAME WORDS [VARIABLE=VALUE...]
{
	local way name
	for way in $ways; do
		local -n vars=by_$way
		name="$1 ($way)"
		pods 2 "${vars[@]}" "${@:3}"
		tap_equal "$name" "$pods_said" "$apart"
		if test "$(reason 1 | wc -l)" = 1 &&
			reason 1 | grep -qe "$2"; then
			tap_ok "$name: in one line"
		else
			tap_not_ok "$name: in one line" \
				"$(cat "$tap_tmp/told.1")" \
				$'\n'"wanted once: $2"
		fi
	done
}

pods 2 "${by_preload[@]}"
tap_equal "two containers of one job are introduced" "$pods_said" "$together"

# --- other jobs, other users, other systems ------------------------------------
echo "one secret of 32 bytes or even more" >"$tap_tmp/secret.0"
echo "another secret of 32 bytes or more" >"$tap_tmp/secret.1"
chmod 600 "$tap_tmp"/secret.?
pods 2 "${by_preload[@]}" WEFT_SECRET_FILE="$tap_tmp/secret.0"
tap_equal "two ranks with the same secret are introduced" "$pods_said" "$together"
for rank in 0 1; do
	pods_setup[rank]="with=(env WEFT_SECRET_FILE=$tap_tmp/secret.$rank)"
done
apart "two jobs are not introduced"
pods_setup=('' "with=(env WEFT_SECRET_FILE=$tap_tmp/secret.0)")
apart "a rank with a secret and one without are not introduced"

echo 01234567-89ab-cdef-0123-456789abcdef >"$tap_tmp/boot"
boot=/proc/sys/kernel/random/boot_id
pods_setup=('' "mount --bind '$tap_tmp/boot' $boot")
apart "ranks of two boots are not introduced"

# Another user: of this system, or by another mapping of a user namespace.
pods_setup=('' 'with=(setpriv --reuid 4321 --regid 4321 --clear-groups)')
chmod 1777 "$WEFT_RUN_DIR"
if setpriv --reuid 4321 --regid 4321 --clear-groups true 2>/dev/null; then
	apart "two users"
else
	tap_skip "two users are not introduced" "there is only one"
fi
# mapped COMMAND...: where user 0 is 100000 outside
cat >"$tap_tmp/mapped" <<'EOF'
#!/usr/bin/env bash
exec 3<> <(:)
own=$(readlink /proc/self/ns/user)
unshare -U bash -c 'read -r <&3
	exec setpriv --reuid 0 --regid 0 --clear-groups "$@"' bash "$@" &
pid=$!
for _ in $(seq 500); do
	test "$(readlink /proc/$pid/ns/user)" = "$own" || break
	read -rt 0.01 <> <(:)
done
echo 0 100000 65536 >/proc/$pid/uid_map &&
	echo 0 100000 65536 >/proc/$pid/gid_map || kill $pid
echo mapped >&3
wait $pid
EOF
chmod 755 "$tap_tmp" "$tap_tmp/mapped"
if "$tap_tmp/mapped" true 2>/dev/null; then
	# what root made has no owner there
	pods_setup=('' "with=('$tap_tmp/mapped')")
	declined "a user namespace that maps other users is refused" "mode 0700"
else
	tap_skip "a user namespace that maps other users is refused" "may not be made"
fi
pods_setup=('' 'with=(unshare -Ur)')
apart "a user namespace that maps root alone is kept apart"

# --- GPUs -------------------------------------------------------------------
pods_setup=()
pods_gpus="0 1 2"
pods 2 "${by_preload[@]}"
tap_equal "equal sets of three device nodes are introduced" "$pods_said" "$together"
pods_gpus_of[1]="0 1"
apart "a device node that one lacks keeps them apart"
pods_gpus_of=("0" "1")
apart "the nodes of two hosts' only GPUs keep them apart"
pods_gpus_of=()
pods_setup=('' 'refused nvidia2')
apart "a device node that does not open keeps them apart"
pods_gpus=""
pods_setup=()
declined "a rank without device nodes is refused" "no GPU's device node opens"
shared=NCCL_MULTI_RANK_GPU_ENABLE=1
pods_gpus=0
declined "one GPU, that no setting says is shared" \
	"$shared" TEST_VERSION=23007
declined "one GPU, and an NCCL that cannot share it" "NCCL 2.28 does not know" \
	$shared
pods_gpus="0 1"
pods_setup=('' "with=(env $shared)")
apart "a rank that may share its GPU and one that may not" TEST_VERSION=23007
pods_setup=()

# --- each has a GPU of its own, and the others' are hidden -----------------------
pods_all="on_bus 0 1 2 3" pods_gpus_of=(0 1)
ways="preload env"
pods 2 "${by_preload[@]}"
tap_equal "hidden GPUs are introduced" "$pods_said" "$together"
ways=net declined "hidden GPUs by the net plugin alone" \
	"set it to 0 on all ranks, or start them by weft run"
pods_gpus_of=("0 2" 1)
apart "two of four GPUs and one keep them apart"
pods_gpus_of=(0 0)
for way in $ways; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}"
	tap_equal "one GPU of two ranks ($way)" "$pods_said" "$apart"
	tap_equal "... one of which says why" "$(grep -c \
		"another introduced process uses this GPU" <<<"$pods_told")" 1
done
pods_gpus_of=(0 1)
for setting in NCCL_P2P_LEVEL=SYS NCCL_SHM_LOCALITY=1 NCCL_CUMEM_ENABLE=1 $shared; do
	pods_setup=('' "with=(env $setting)")
	apart "$setting on one rank" TEST_VERSION=23007
done
pods_setup=()
declined "hidden GPUs and P2P" "NCCL_P2P_DISABLE is '0'" NCCL_P2P_DISABLE=0
declined "hidden GPUs and the driver's host memory" \
	"NCCL_CUMEM_HOST_ENABLE is '1'" NCCL_CUMEM_HOST_ENABLE=1
declined "hidden GPUs without shared memory" "NCCL_SHM_DISABLE is set" \
	NCCL_SHM_DISABLE=1
pods_all+="; mount -t tmpfs -o size=500m tmpfs '$WEFT_RUN_DIR'"
declined "hidden GPUs and too little room" "make it 512 or larger"
pods_all="on_bus 0 1 2 3"
if test "$(stat -fc %T "$tap_tmp")" = tmpfs; then
	tap_skip "hidden GPUs and a folder on a disk" "there is no disk"
else
	mkdir -m 1777 "$tap_tmp/disk"
	declined "hidden GPUs and a folder on a disk" "is not on a tmpfs" \
		WEFT_RUN_DIR="$tap_tmp/disk"
fi
rm -f "$WEFT_RUN_DIR"/*/gpus
ways="preload net" pods_all="" pods_gpus_of=()

# --- the driver -----------------------------------------------------------------
# Rank 1 has one, as it has as soon as it uses a GPU.
driver=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
cat >"$tap_tmp/driver.c" <<'EOF'
int cuInit(unsigned int flags);
__attribute__((constructor)) static void start(void)
{
	cuInit(0);
}
EOF
pods_cc "$tap_tmp/driver.so" "$tap_tmp/driver.c" -shared -fPIC "$driver" \
	-Wl,-rpath,"${driver%/*}"
pods_setup=('' "with=(sh -c 'LD_PRELOAD=\$LD_PRELOAD:$tap_tmp/driver.so \"\$@\"' sh)")
for way in $ways; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}" WEFT_LIBCUDA="$driver"
	tap_equal "a driver that exports memory is introduced ($way)" "$pods_said" "$together"
done
declined "a driver that cannot export one GPU's memory is refused" "the driver does not" \
	WEFT_LIBCUDA="$driver" WEFT_TEST_CUDA_NO_VMM=1
pods_setup=()

# --- what the user says -------------------------------------------------------
# The preload library is not even asked; NCCL says whose id it is.
ways=preload apart "the user's host id" NCCL_HOSTID=mine
ways=net declined "the user's host id" "NCCL_HOSTID is set" NCCL_HOSTID=mine
declined "no P2P" "NCCL_P2P_DISABLE" NCCL_P2P_DISABLE=1
declined "no cuMem" "NCCL_CUMEM_ENABLE" NCCL_CUMEM_ENABLE=0

# --- the folder ---------------------------------------------------------------
run=$WEFT_RUN_DIR
own=$run/weft-$(id -u)
afresh() # a folder with everything in its place
{
	rm -rf "${run:?}"/*
	pods_setup=() pods_all=""
	pods 2 "${by_preload[@]}"
	test "$pods_said" = "$together" ||
		tap_not_ok "a fresh folder is introduced again" "$pods_said"
}

pods_all="mount -t tmpfs tmpfs '$run'"
apart "ranks without a common folder are not introduced"
pods_all="mount --bind '$run' '$run'; mount -o remount,bind,ro '$run'"
declined "a read-only folder is refused" "write access"
pods_all="mount -t tmpfs -o size=64k tmpfs '$run'"
declined "a full folder is refused" "MiB free"
pods_all="mount -t tmpfs -o nr_inodes=2 tmpfs '$run'"
declined "a folder without free inodes is refused" "No space left"
pods_all=""
declined "a missing folder is refused" "No such file" \
	WEFT_RUN_DIR="$tap_tmp/none"
declined "a relative path is refused" "not an absolute path" \
	WEFT_RUN_DIR=.
long=$tap_tmp/$(printf 'x%.0s' {1..80})
mkdir "$long"
declined "a path too long for sockets is refused" "too long" WEFT_RUN_DIR="$long"

afresh
rm -rf "$own"
mkdir "$tap_tmp/elsewhere"
ln -s "$tap_tmp/elsewhere" "$own"
pods 2 "${by_preload[@]}"
tap_equal "a symbolic link in place of the folder is evaded" "$pods_said" "$together"
tap_nothing "nothing is written behind a symbolic link" "$(ls -A "$tap_tmp/elsewhere")"
rm "$own"
mkdir -m 0755 "$own"
declined "a folder that others may read is refused" "mode 0700"
chmod 0700 "$own"
afresh
rm -rf "$own"
for name in "$own" "$own".{1,2,3}; do
	mkdir -m 0777 "$name"
	chown 4321 "$name" 2>/dev/null || { rmdir "$name"; touch "$name"; }
done
pods 2 "${by_preload[@]}"
tap_equal "names that others have taken are evaded" "$pods_said" "$together"
touch "$own".{4,5,6,7} 2>/dev/null
rm -rf "$own.4"
touch "$own.4"
declined "where others have all names no rank is introduced" "mode 0700"
for length in 0 15 17 4096; do
	afresh
	cp "$own/cookie" "$tap_tmp/cookie"
	head -c $length < <(cat "$tap_tmp/cookie" /dev/zero) >"$own/cookie"
	declined "a cookie of $length bytes" "cookie"
done
afresh
rm "$own/cookie"
mkfifo -m 0600 "$own/cookie"
declined "a pipe in place of the cookie is refused" "cookie"
afresh

# --- a security profile ---------------------------------------------------------
refused_for_1="with=(env TEST_NO_SOCKET=1 '$tap_tmp/refuse'"
pods_setup=('with=(env TEST_NO_SOCKET=1)' "$refused_for_1 bind)")
declined "a refused bind() is explained" "no socket works"
pods_setup[1]="$refused_for_1 flock)"
declined "a refused flock() is explained" "flock"
# without which NCCL fails by itself, too, in a /dev/shm of its own
pods_setup[1]="$refused_for_1 fallocate)"
pods 2 "${by_preload[@]}"
tap_equal "a refused fallocate() is explained in one line" \
	"$(reason 1 | grep -c 'fallocate() does not work in')" 1
# what the dynamic linker made read-only stays so
for build in release now no-plt; do
	pods_of $build
	pods_setup[1]="$refused_for_1 mprotect)"
	declined "a refused mprotect() is explained, $build" "cannot be redirected"
done
pods_of lazy
pods 2 "${by_preload[@]}"
tap_equal "a refused mprotect() is harmless if not needed" "$pods_said" "$together"
pods_setup=()
tap_done

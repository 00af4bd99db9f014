#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks in pods of one host, which share a folder and nothing else: NCCL's own
# calls find each other there, by each of weft's three ways. What they leave
# behind, and what the rest of a process notices: nothing. not_introduced.sh has
# those that must not find each other.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/pods.sh"
pods_needed
tap_folder
pods_build

together="rank 0: with 1 of 1
rank 1: with 1 of 1"
apart="rank 0: with 0 of 1
rank 1: with 0 of 1"

# --- the control --------------------------------------------------------------
pods 2
tap_equal "without weft: different hosts" "$pods_said" "$apart"
for way in preload net env; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}" WEFT_NCCL_INTRODUCE=off
	tap_equal "$way, WEFT_NCCL_INTRODUCE=off: different hosts" "$pods_said" "$apart"
done

# --- the ways -----------------------------------------------------------------
for build in release lazy now no-plt torch torch-now; do
	pods_of $build
	pods 2 "${by_preload[@]}"
	tap_equal "preload, $build" "$pods_said" "$together"
	pods 2 "${by_net[@]}"
	tap_equal "net plugin, $build" "$pods_said" "$together"
	pods 2 "${by_env[@]}"
	tap_equal "env plugin, $build" "$pods_said" "$together"
done
pods_program=("$tap_tmp/linked" -)
pods 2 "${by_preload[@]}"
tap_equal "preload, a program that is linked with NCCL" "$pods_said" "$together"
pods 2 "${by_net[@]}"
tap_equal "net plugin, a program that is linked with NCCL" "$pods_said" \
	"$together"
pods_of release
for api in 6 8 10 12; do
	pods 2 "${by_net[@]}" TEST_API=$api
	tap_equal "net plugin, v$api" "$pods_said" "$together"
done
for way in preload net env; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}" TEST_SOCKET_FIRST=1
	tap_equal "$way, sockets before the id" "$pods_said" "$together"
done
pods 2 "${by_preload[@]}" "${by_net[@]}" "${by_env[@]}"
tap_equal "all ways at once" "$pods_said" "$together"
for way in preload net; do
	declare -n vars=by_$way
	pods_rounds=3
	pods 2 "${vars[@]}" NCCL_IPC_USE_ABSTRACT_SOCKET=0
	tap_equal "$way, sockets with names of files" "$pods_said" "$together"
	pods_rounds=1 pods_net=""
	pods 2 "${vars[@]}"
	tap_equal "$way, in one network namespace" "$pods_said" "$together"
	pods_net=-n
done
mkdir "$tap_tmp/shm"
pods_shm=$tap_tmp/shm pods_net=""
pods 2 "${by_env[@]}"
tap_equal "env plugin, one /dev/shm and one network namespace" "$pods_said" \
	"$together"
pods_shm="" pods_net=-n

# --- three ranks --------------------------------------------------------------
pods 3 "${by_preload[@]}"
tap_equal "three ranks" "$pods_said" "rank 0: with 2 of 2
rank 1: with 2 of 2
rank 2: with 2 of 2"
for way in preload net; do
	declare -n vars=by_$way
	pods_setup[2]='mount -t tmpfs tmpfs "$WEFT_RUN_DIR"'
	pods 3 "${vars[@]}"
	tap_equal "$way, three ranks, one with another folder" "$pods_said" \
		"rank 0: with 1 of 2
rank 1: with 1 of 2
rank 2: with 0 of 2"
done
pods_setup=('' '' 'with=(env -u LD_PRELOAD -u NCCL_NET_PLUGIN)')
pods 3 "${by_preload[@]}" "${by_net[@]}"
tap_equal "three ranks, one without weft" "$pods_said" "rank 0: with 1 of 2
rank 1: with 1 of 2
rank 2: with 0 of 2"
pods_setup=()

# --- several ranks of one GPU -----------------------------------------------------
# settings VARIABLE: its value in each rank's NCCL
settings()
{
	grep -he "^NCCL INFO $1 set by environment to" "$tap_tmp"/told.* |
		sed 's/.* //'
}
shared=(TEST_VERSION=23007 NCCL_MULTI_RANK_GPU_ENABLE=1)
for pods_gpus in 0 "0 1"; do
	for way in preload net env; do
		declare -n vars=by_$way
		pods 2 "${vars[@]}" "${shared[@]}"
		tap_equal "$way, two ranks of one GPU of '$pods_gpus'" "$pods_said" "$together"
		tap_equal "... without NVLS" "$(settings NCCL_NVLS_ENABLE)" $'0\n0'
	done
done
pods 2 "${by_preload[@]}" "${shared[@]}" NCCL_NVLS_ENABLE=1
tap_equal "the user's NVLS stays" "$(settings NCCL_NVLS_ENABLE)" $'1\n1'
pods 2 "${by_env[@]}"
tap_nothing "a rank per GPU keeps NVLS" "$(settings NCCL_NVLS_ENABLE)"
pods_gpus=0
pods 4 "${by_preload[@]}" "${shared[@]}"
tap_equal "four ranks of one GPU" "$pods_said" "rank 0: with 3 of 3
rank 1: with 3 of 3
rank 2: with 3 of 3
rank 3: with 3 of 3"

# --- each has a GPU of its own, and the others' are hidden ------------------------
pods_all="on_bus 0 1 2 3" pods_gpus_of=(0 1 2 3)
for way in preload env; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}"
	tap_equal "$way, hidden GPUs" "$pods_said" "$together"
	tap_equal "... without P2P" "$(settings NCCL_P2P_DISABLE)" $'1\n1'
	tap_equal "... and without host memory of the driver's" \
		"$(settings NCCL_CUMEM_HOST_ENABLE)" $'0\n0'
	tap_equal "... by the first question" "$(grep -c "introduced as" \
		<(grep -B1 -h NCCL_CUMEM_HOST_ENABLE= "$tap_tmp"/told.*))" 2
	pods 2 "${vars[@]}" "${by_net[@]}"
	tap_equal "$way and the net plugin, hidden GPUs" "$pods_said" "$together"
done
pods 2 "${by_net[@]}" NCCL_CUMEM_HOST_ENABLE=0
tap_equal "net plugin, hidden GPUs, told in time" "$pods_said" "$together"
tap_equal "... without P2P" "$(settings NCCL_P2P_DISABLE)" $'1\n1'
pods 2 "${by_preload[@]}" NCCL_P2P_DISABLE=1 NCCL_CUMEM_HOST_ENABLE=0
tap_equal "hidden GPUs, all set" "$pods_said" "$together"
pods 4 "${by_preload[@]}"
tap_equal "four hidden GPUs" "$pods_said" "rank 0: with 3 of 3
rank 1: with 3 of 3
rank 2: with 3 of 3
rank 3: with 3 of 3"
pods_gpus_of=(0 0 1 1)
pods 4 "${by_preload[@]}" "${shared[@]}"
tap_equal "four ranks of two hidden GPUs" "$pods_said" "rank 0: with 3 of 3
rank 1: with 3 of 3
rank 2: with 3 of 3
rank 3: with 3 of 3"
child='env | grep -v -e ^_= -e ^LD_PRELOAD | sort'
pods_gpus_of=(0 1)
pods 2 TEST_CHILD="$child"
plain=$pods_said
pods 2 "${by_preload[@]}" TEST_CHILD="$child"
tap_nothing "hidden GPUs: a child's environment is as it was" \
	"$(diff <(echo "$plain") <(echo "${pods_said//with 1/with 0}"))"
rm -f "$WEFT_RUN_DIR"/*/gpus
pods_gpus="0 1" pods_all="" pods_gpus_of=()

# --- what is left behind ------------------------------------------------------
left() # what is in the folder, without names made up
{
	find "$WEFT_RUN_DIR" -mindepth 2 | sed 's|.*/||; s/-.*/-/' | sort
}
# For whom a minute has gone by; younger ones may be about to be used.
cat >"$tap_tmp/later.c" <<'EOF'
#include <time.h>
time_t time(time_t *t)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return t ? *t = ts.tv_sec + 61 : ts.tv_sec + 61;
}
EOF
pods_cc "$tap_tmp/later.so" "$tap_tmp/later.c" -shared -fPIC
later=("${by_preload[@]/%/:$tap_tmp/later.so}")
rm -rf "${WEFT_RUN_DIR:?}"/*
pods 2 "${by_preload[@]}"
tap_equal "nothing is left but the cookie" "$(left)" cookie
for where in bind shm; do
	test $where = bind && what=n- || what=nccl-
	pods_setup[0]="with=(env TEST_DIE=$where)"
	pods 2 "${by_preload[@]}"
	if grep -q "status 137" <<<"$pods_said" && left | grep -qx -e $what; then
		tap_ok "killed after $where: $what is left"
	else
		tap_not_ok "killed after $where: $what is left" "$pods_said" \
			"$(left)"
	fi
	pods_setup=()
	pods 2 "${later[@]}"
	tap_equal "... which the next ones remove, and work" \
		"$pods_said"$'\n'"$(left)" "$together"$'\ncookie'
done
# Another job starts, and sweeps, while a socket is bound and memory is named.
other="'$tap_tmp/rank' '$tap_tmp/release/libnccl.so.2' 0 1 -"
for at in bind shm; do
	pods_setup[0]="with=(env TEST_AT=$at \"TEST_CHILD=$other\")"
	pods 2 "${later[@]}"
	tap_equal "what is alive stays ($at)" \
		"$(grep -v "of 0" <<<"$pods_said")" "$together"
done
pods_setup=()
for way in preload net; do
	declare -n vars=by_$way
	# to load a plugin takes its time
	pods_rounds=10000
	test $way = preload || test -n "${WEFT_TEST_LONG-}" || pods_rounds=300
	pods 1 "${vars[@]}"
	tap_equal "$way, $pods_rounds communicators: nothing grows" \
		"$pods_said" "rank 0: with 0 of 0"
	tap_equal "... and nothing is left" "$(left)" cookie
	pods_rounds=100
	pods 2 "${vars[@]}"
	tap_equal "$way, $pods_rounds communicators of two: nothing grows" \
		"$pods_said" "$together"
done
pods_rounds=1

# --- what weft status shows -----------------------------------------------------
pods_setup[0]="with=(env TEST_AT=shm \"TEST_CHILD='$WEFT_BUILD/tools/weft' status\")"
for way in preload net env; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}"
	tap_equal "$way: weft status shows to whom a rank is introduced" \
		"$(grep -A1 ': NCCL, for' <<<"$pods_said" | grep -v -e -- |
			sed 's/\([ (]\)[0-9][0-9]*/\1N/g' | paste - - | sort)" \
		"rank (N in pod1): NCCL, for N s	  introduced to rank N: NCCL goes its own ways there
rank N: NCCL, for N s	  introduced to rank (N in pod1): NCCL goes its own ways there"
done
pods_setup=()

# --- what others notice -------------------------------------------------------
# What the network plugin sets for its TCP is another matter.
child='env | grep -v -e ^_= -e ^LD_PRELOAD -e ^NCCL_NET_PLUGIN \
	-e ^NCCL_MIN_NCHANNELS -e ^NCCL_P2P_NET_CHUNKSIZE | sort'
pods 2 TEST_CHILD="$child"
plain=$pods_said
for way in preload net; do
	declare -n vars=by_$way
	pods 2 "${vars[@]}" TEST_CHILD="$child"
	tap_nothing "$way: a child's environment is as it was" \
		"$(diff <(echo "$plain") <(echo "${pods_said//with 1/with 0}"))"
done
# What a shell and its children ask the kernel for by name.
traced() # [OPTION...]
{
	strace -f -qq "$@" -e trace=%file,%network -o "$tap_tmp/trace" sh -c \
		'/bin/true; ls /dev/shm >/dev/null; rm -f /dev/shm/nccl-none'
	grep -oE '[a-z0-9]+\([^"]*"[^"]+"' "$tap_tmp/trace" |
		grep -v -e libweft_preload -e libdl
}
if command -v strace >/dev/null && traced >"$tap_tmp/plain" 2>/dev/null; then
	tap_nothing "preload: a shell and its children do what they did" \
		"$(traced -E "${by_preload[0]}" | diff "$tap_tmp/plain" -)"
else
	tap_skip "preload: a shell and its children do what they did" \
		"strace is not installed, or may not trace"
fi
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# libweft_preload.so is inherited by every child of a job. In a program without
# UCX nothing may be seen of it: no output, no other exit status, nothing mapped
# but itself and libdl.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
test -z "$WEFT_SANITIZED" || tap_skip_all "a sanitizer's run time must come first"
preload=$(product libweft_preload.so)
test -n "$preload" || tap_skip_all "libweft_preload.so is not built"
tap_folder

same() # NAME COMMAND...: the same output and status with and without it
{
	local name=$1 plain loaded
	shift
	plain=$("$@" 2>&1; echo "status $?")
	for bind in '' 1; do
		loaded=$(LD_PRELOAD=$preload LD_BIND_NOW=$bind "$@" 2>&1
			echo "status $?")
		tap_equal "$name${bind:+, LD_BIND_NOW=1}" "$loaded" "$plain"
	done
}

cat >"$tap_tmp/plain.c" <<'EOF'
#include <stdio.h>
int main(void) { return puts("plain") < 0; }
EOF
cat >"$tap_tmp/threads.c" <<'EOF'
#include <pthread.h>
#include <stdio.h>
static void *run(void *arg) { return arg; }
int main(void)
{
	pthread_t t;
	void *out = 0;
	if (pthread_create(&t, 0, run, "thread") || pthread_join(t, &out))
		return 1;
	return puts(out) < 0;
}
EOF

same "true" true
same "false" false
same "env" env -u LD_PRELOAD -u LD_BIND_NOW -u _ PATH="$PATH" sh -c 'echo ran'
same "bash" bash -c 'echo $((1 + 1)); exit 3'
same "a pipe of children" bash -c 'echo a b | tr " " "\n" | sort -r | head -1'
for python in python3 /usr/bin/python3; do
	if command -v $python >/dev/null; then
		same "$python" $python -c 'import ctypes, sys; print(sys.maxsize)'
	else
		tap_skip "$python" "not installed"
	fi
done
for kind in -fPIE -no-pie -static \
	-static-pie; do
	# shellcheck disable=SC2086 # options, one by one
	if $CC $kind "$tap_tmp/plain.c" -o "$tap_tmp/plain" 2>/dev/null; then
		same "a C program, $kind" "$tap_tmp/plain"
	else
		tap_skip "a C program, $kind" "$CC cannot build it"
	fi
done
# shellcheck disable=SC2086
$CC "$tap_tmp/threads.c" -o "$tap_tmp/threads" -pthread
same "a program with threads" "$tap_tmp/threads"

mapped() # what a process has mapped, as file names
{
	awk '$6 ~ "^/" { print $6 }' | sort -u
}
tap_equal "nothing is mapped but itself and libdl" \
	"$(comm -13 <(cat /proc/self/maps | mapped) \
		<(LD_PRELOAD=$preload cat /proc/self/maps | mapped) |
		sed 's|.*/||' | grep -v '^libdl[.-]')" "libweft_preload.so"
tap_nothing "it has no constructor but the compiler's own" \
	"$(readelf -sW "$preload" | awk '$4 == "FUNC" && /ctor|constructor/ &&
		$8 != "__do_global_dtors_aux" && $8 != "frame_dummy"')"
tap_done

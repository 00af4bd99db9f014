#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weft run in containers with PID namespaces of their own: no two programs have
# the same process id, and what starts them behaves as they would.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
weft=$WEFT_BUILD/tools/weft
test -z "$WEFT_SANITIZED" ||
	tap_skip_all "a sanitized library cannot be preloaded"
if test -z "${PIDS_INSIDE-}"; then
	export PIDS_INSIDE=1
	unshare -mpf --mount-proc true 2>/dev/null ||
		tap_skip_all "may not make namespaces"
	exec unshare -m bash "$0"
fi
tap_folder
mkdir "$tap_tmp/run" "$tap_tmp/dev"
export WEFT_RUN_DIR=$tap_tmp/run
# the node of a GPU's driver, that no other process sees
mount -t tmpfs dev "$tap_tmp/dev"
cp -a /dev/{null,zero,random,urandom,tty} "$tap_tmp/dev"
mkdir "$tap_tmp/dev/shm"
mknod "$tap_tmp/dev/nvidiactl" c 1 3
mount --move "$tap_tmp/dev" /dev

pod() { unshare -pf --mount-proc "$@"; } # COMMAND...
# as in most containers
# shellcheck disable=SC2016 # the inner shell's
read_only=(unshare -m bash -c 'mount --bind /proc/sys /proc/sys &&
	mount -o remount,ro,bind /proc/sys && exec "$@"' -)
# shellcheck disable=SC2016
say_id='echo $$'

become='echo $$; exec "$@"' # what it was, then what the program is
range_of() { echo $(($1 / 1024)); }

tap_equal "without a GPU weft run becomes the program" \
	"$(unshare -m sh -c "umount /dev; exec unshare -pf --mount-proc sh -c '$become' - '$weft' run sh -c '$say_id'" |
		uniq | wc -l)" 1

a=$(pod "$weft" run sh -c "$say_id")
tap_equal "the program's id is in the first free range" "$(range_of "$a")" 1
tap_equal "a range is free again when its program has ended" \
	"$(range_of "$(pod "$weft" run sh -c "$say_id")")" 1
a=$(pod "${read_only[@]}" "$weft" run sh -c "$say_id")
tap_equal "so it is where ns_last_pid cannot be written" "$(range_of "$a")" 1

# each holds its range until all have one
mkfifo "$tap_tmp/go"
for i in 1 2 3 4; do
	pod "$weft" run sh -c "$say_id >$tap_tmp/id.$i; read -r _ <$tap_tmp/go" &
done
for i in 1 2 3 4; do
	until test -s "$tap_tmp/id.$i"; do sleep 0.1; done
done
seen=$(for i in 1 2 3 4; do range_of "$(cat "$tap_tmp/id.$i")"; done | sort | xargs)
tap_equal "four containers have four ranges" "$seen" "1 2 3 4"
exec 7<>"$tap_tmp/go"
printf '\n\n\n\n' >&7
wait
exec 7>&-

tap_equal "ids that are spent already are passed over" \
	"$(range_of "$(pod bash -c 'for i in {1..2100}; do true & done; wait
		"$@"' - "$weft" run sh -c "$say_id")")" 3
tap_equal "without a folder the program starts all the same" \
	"$(WEFT_RUN_DIR=/nosuch pod "$weft" run echo here 2>&1)" here

pod "$weft" run sh -c 'exit 7'
tap_equal "the exit code is the program's" $? 7
pod "$weft" run sh -c 'kill -9 $$'
tap_equal "a signal that ended it is in the exit code" $? 137
out=$(pod "$weft" run /nosuch 2>&1)
tap_equal "a program that is not found" "$?: $out" \
	"127: weft run: cannot start '/nosuch': No such file or directory"

# weft run is the first process: it is all that the outside can signal
(exec unshare -pf --kill-child --mount-proc "$weft" run bash -c '
	trap "echo got it; exit 3" TERM; echo ready
	while :; do sleep 0.1; done' >"$tap_tmp/out") &
unshared=$!
until grep -q ready "$tap_tmp/out"; do sleep 0.1; done
kill -TERM "$(ps -o pid= --ppid $unshared)"
for ((i = 0; i < 600; i++)); do
	kill -0 $unshared 2>/dev/null || break
	sleep 0.1
done
kill -KILL $unshared 2>/dev/null
wait $unshared
tap_equal "signals are passed on" "$?: $(tail -1 "$tap_tmp/out")" "3: got it"

# an orphan of the program's becomes the child of the first process
tap_equal "what the program leaves is reaped" "$(pod "$weft" run bash -c '
	(sleep 0.2 & echo $! >&3) 3>&1 | { read -r orphan
		for ((i = 0; i < 600; i++)); do
			test -e /proc/$orphan || break
			sleep 0.1
		done; ls -d /proc/$orphan 2>/dev/null; }')" ""
tap_done

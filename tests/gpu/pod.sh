#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program as a pod would: host name, IPC, PIDs, mounts and shared memory
# of its own; only the network and WEFT_RUN_DIR are common.
#   pod.sh NAME PROGRAM...
name=$1
shift
exec unshare --uts --ipc --mount --pid --fork --mount-proc --kill-child \
	/bin/sh -c '
		echo "$0" >/proc/sys/kernel/hostname || hostname "$0" || exit 1
		mount -t tmpfs tmpfs /dev/shm || exit 1
		exec "$@"' "$name" "$@"

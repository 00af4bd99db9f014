#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program as a pod would: host name, IPC, PIDs, mounts and shared memory
# of its own; only the network and WEFT_RUN_DIR are common.
#   pod.sh NAME PROGRAM...
# With POD_GPU=N it has the device node of GPU N alone.
name=$1
shift
exec unshare --uts --ipc --mount --pid --fork --mount-proc --kill-child \
	/bin/sh -c '
		echo "$0" >/proc/sys/kernel/hostname || hostname "$0" || exit 1
		if test -n "${POD_GPU-}"; then
			keep=$(mktemp -d) && cd /dev &&
			cp -a null zero random urandom nvidiactl nvidia-uvm* \
				"nvidia$POD_GPU" "$keep" &&
			mount -t tmpfs -o mode=755 tmpfs /dev &&
			cp -a "$keep"/* /dev && mkdir /dev/shm &&
			cd "$OLDPWD" && rm -r "$keep" || exit 1
			# NVML makes the nodes that it misses
			mount -o remount,ro /dev || exit 1
		fi
		mount -t tmpfs tmpfs /dev/shm || exit 1
		exec "$@"' "$name" "$@"

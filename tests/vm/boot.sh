#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command in a machine that exists as long as it runs, with two Soft-RoCE
# devices, rxe0 and rxe1, and this machine's files, read-only.
#
#   tests/vm/boot.sh [-m MIB] [-w WIRE -n 0|1] FOLDER SECONDS COMMAND...
#
# FOLDER is what prepare.sh printed; WEFT_ variables are passed on. The status
# is the command's, or 125 where the machine itself failed or took too long.
# -m: its memory.
# -w: one of two machines on a cable, whose sockets lie in the folder WIRE; it
# has rxe0 alone, and the address 10.77.1.1 or 10.77.1.2.
set -u
here=$(cd "$(dirname "$0")" && pwd)
memory=1024 wire='' node=0
while getopts m:w:n: option; do
	case $option in
	m) memory=$OPTARG ;;
	w) wire=$OPTARG ;;
	n) node=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
kernel=$1 seconds=$2
shift 2

job=$(mktemp -d)
qemu=
trap 'test -z "$qemu" || kill "$qemu" 2>/dev/null; rm -rf "$job"' EXIT
trap 'exit 130' INT TERM
printf '%s\0' "$@" >"$job/argv"
nic=()
if test -n "$wire"; then
	export WEFT_TEST_NODE=$node
	ends="local.path=$wire/$node,remote.path=$wire/$((1 - node))"
	nic=(-netdev "dgram,id=wire,local.type=unix,remote.type=unix,$ends"
		-device "virtio-net-pci,netdev=wire,mac=52:54:00:77:01:0$node,romfile=")
fi
for name in ${!WEFT_*}; do
	printf '%s=%q\n' "$name" "${!name}"
done >"$job/env"
cp "$here/guest-run" "$job/"
mkfifo "$job/out"

# KVM where a processor really has it. Where /dev/kvm is there without vmx or
# svm, it runs only kernels made for it. "max" is the richest that is emulated.
accel=tcg,thread=multi cpu=max
if test -r /dev/kvm && test -w /dev/kvm &&
	grep -qwE 'vmx|svm' /proc/cpuinfo; then
	accel=kvm cpu=host
fi

cat "$job/out" &
reader=$!
share=security_model=none,multidevs=remap
timeout -k 5 "$seconds" qemu-system-x86_64 -nodefaults -no-user-config \
	-no-reboot -display none -M q35,usb=off,vmport=off -accel "$accel" \
	-cpu "$cpu" -smp "$(nproc)" -m "$memory" -kernel "$kernel/vmlinuz" \
	-initrd "$kernel/initrd" -serial "file:$job/console" \
	-append "console=ttyS0 quiet loglevel=4 panic=-1 net.ifnames=0 mitigations=off weft.job=$job" \
	-device virtio-serial-pci \
	-chardev "file,id=out,path=$job/out" \
	-device virtserialport,chardev=out,name=out \
	${nic[@]+"${nic[@]}"} \
	-fsdev "local,id=root,path=/,readonly=on,$share" \
	-device virtio-9p-pci,fsdev=root,mount_tag=root9p \
	-fsdev "local,id=job,path=$job,$share" \
	-device virtio-9p-pci,fsdev=job,mount_tag=job9p >"$job/qemu.log" 2>&1 &
qemu=$!
wait "$qemu"
status=$?
qemu=
# the reader ends with QEMU; where QEMU never opened the FIFO, this does it
: <>"$job/out"
wait "$reader"
if ! test -s "$job/rc"; then
	echo "# the emulated machine failed ($accel, status $status)"
	sed 's/^/# /' "$job/qemu.log"
	tail -20 "$job/console" 2>/dev/null | sed 's/^/# /'
	exit 125
fi
exit "$(cat "$job/rc")"

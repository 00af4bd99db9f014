#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches Debian's kernel, which has Soft-RoCE (the cloud kernel has not), and
# builds an initramfs beside it, in the cache folder; nothing is installed.
# Prints the folder, which then has vmlinuz and initrd. Says why not otherwise.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${WEFT_CACHE:-$HOME/.cache/weft}
die() { echo "$*" >&2; exit 1; }

test "$(uname -m)" = x86_64 || die "the emulated machine is an x86_64, this one is not"
for tool in qemu-system-x86_64 busybox depmod modprobe apt-get dpkg-deb xz; do
	command -v "$tool" >/dev/null || die "there is no $tool here"
done
dir=$cache/vm-$(cat "$here/prepare.sh" "$here/guest-init" | sha256sum | cut -c1-12)
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if test -e "$dir/ready"; then
	echo "$dir"
	exit 0
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
package=$(apt-cache depends linux-image-amd64 2>/dev/null |
	awk '/Depends:/ { print $2; exit }')
test -n "$package" || die "no package linux-image-amd64 to take a kernel from"
(cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "$package") >&2 ||
	die "$package cannot be fetched"
# the whole of it is 400 MB, this is about 20
modules=lib/modules/*
dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp" --wildcards \
	'./boot/vmlinuz-*' "./$modules/modules.*" \
	"./$modules/kernel/drivers/infiniband" \
	"./$modules/kernel/drivers/virtio" \
	"./$modules/kernel/drivers/char/virtio_console.ko" \
	"./$modules/kernel/drivers/net/*.ko" \
	"./$modules/kernel/net" "./$modules/kernel/fs" \
	"./$modules/kernel/crypto" "./$modules/kernel/arch" \
	"./$modules/kernel/lib"
version=$(basename "$tmp"/lib/modules/*)
depmod -b "$tmp" "$version" 2>/dev/null

# Booting the bare ELF (PVH) spares the guest the decompression, seconds under
# emulation. Offsets: Linux's Documentation/arch/x86/boot.rst, "The Real-Mode
# Kernel Header".
image=$tmp/boot/vmlinuz-$version
number() { od -An -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
offset=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
tail -c "+$((offset + 1))" "$image" | xz -dc --single-stream 2>/dev/null \
	>"$tmp/vmlinux" || true
test "$(head -c 4 "$tmp/vmlinux" | tail -c 3)" = ELF && image=$tmp/vmlinux

# order1: what the root needs; order2: the devices under test
root=$tmp/root
mkdir -p "$root"/{bin,mod,proc,sys,dev,ro,rw,new}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh mount umount insmod mkdir echo cat poweroff switch_root dmesg; do
	ln -s busybox "$root/bin/$applet"
done
load() # ORDER MODULE...
{
	local order=$root/mod/order$1 module
	shift
	: >"$order"
	for module in "$@"; do
		modprobe -d "$tmp" -S "$version" --show-depends "$module" 2>/dev/null ||
			die "$package has no module $module"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
		while read -r file; do
			test -e "$root/mod/${file##*/}" && continue
			cp "$file" "$root/mod/"
			echo "${file##*/}" >>"$order"
		done
}
load 1 virtio_pci virtio_console 9pnet_virtio 9p overlay
load 2 crc32_generic rdma_rxe veth virtio_net sch_netem
install -m 755 "$here/guest-init" "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) \
	>"$dir/initrd"
mv "$image" "$dir/vmlinuz"
touch "$dir/ready"
echo "$dir"

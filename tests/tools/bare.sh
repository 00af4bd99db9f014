#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The README's commands as a user runs them who has this release of Debian or
# Ubuntu, git and nothing else: by root, and by a user without sudo, who learns what
# to install. Needs root, debootstrap and the network; minutes.
#
#   tests/tools/bare.sh [SUITE]
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
test "$(id -u)" = 0 || tap_skip_all "needs root, for chroot"
command -v debootstrap >/dev/null || tap_skip_all "needs debootstrap"
unshare -m true 2>/dev/null || tap_skip_all "no mount namespace to be had here"
cache=${WEFT_CACHE:-$HOME/.cache/weft}
. "$WEFT_SRC/tests/lib/apt.sh"
suite=${1:-$VERSION_CODENAME}

tap_folder
base=$cache/roots/$suite-bare
if test ! -d "$base"; then
	rm -rf "$base.part"
	debootstrap --variant=minbase --include=git,ca-certificates \
		--components="${components// /,}" "$suite" "$base.part" "$mirror" \
		>"$tap_tmp/debootstrap" 2>&1 ||
		tap_skip_all "debootstrap: $(tail -1 "$tap_tmp/debootstrap")"
	mv "$base.part" "$base"
fi

# A copy of it that is thrown away, with the ways out that this machine has.
root=$tap_tmp/root
mkdir -p "$tap_tmp"/{upper,work} "$root" "$cache/bare-$suite"
trap 'umount -R "$root" 2>/dev/null; rm -rf "$tap_tmp"' EXIT
mount -t overlay overlay -o \
	"lowerdir=$base,upperdir=$tap_tmp/upper,workdir=$tap_tmp/work" "$root" \
	2>/dev/null || cp -a "$base/." "$root" || exit 99
for dir in sys dev; do
	mount --rbind "/$dir" "$root/$dir" && mount --make-rslave "$root/$dir" ||
		exit 99
done
mount --bind "$cache/bare-$suite" "$root/var/cache/apt/archives" || exit 99
cp -r /etc/ssl/certs "$root/etc/ssl"
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
	test ! -e "$file" || cp -L "$file" "$root$file"
done
chroot "$root" useradd -m -s /bin/bash user || exit 99
cp -r "$WEFT_SRC" "$root/home/user/weft"
chroot "$root" chown -R user: /home/user

flags=() # of the compiler
# A command of one of the two, in the clone; what it leaves running ends with it.
as() # root|user COMMAND
{
	local home=/home/user name vars=("${flags[@]}")
	test "$1" = user || home=/root
	for name in $(env | sed -n 's/^\([A-Za-z_]*\(proxy\|PROXY\|_CERT\|CA_BUNDLE\|CERT_FILE\)\)=.*/\1/p'); do
		vars+=("$name=${!name}")
	done
	unshare --pid --fork --kill-child --mount-proc="$root/proc" \
		chroot --userspec="$1" "$root" env -i HOME=$home LC_ALL=C.UTF-8 \
		PATH=/usr/bin:/bin:/usr/sbin:/sbin "${vars[@]}" \
		bash -c "cd /home/user/weft && $2" 2>&1 </dev/null
}

# A user without sudo has root install what is missing, as quickstart says.
asks() # COMMAND
{
	local seen rc packages
	seen=$(as user "$1")
	rc=$?
	packages=$(sed -n 's/^install them with: apt-get install //p' <<<"$seen")
	if test $rc = 0 || test -z "$packages"; then
		tap_not_ok "$1 tells a user what it needs" "$rc: $seen"
		return
	fi
	tap_ok "$1 tells a user what it needs"
	seen=$(as root "apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
		apt-get -qq -y --no-install-recommends install $packages") ||
		tap_not_ok "root installs it" "$(tail -5 <<<"$seen")"
}

says() # NAME WHO LINE COMMAND
{
	local seen
	seen=$(as "$2" "$4")
	if grep -q "^$3$" <<<"$seen"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$(tail -25 <<<"$seen")"
	fi
}

says "an installation by root" root "weft [0-9.]*, .*" \
	"./quickstart install /opt/weft && /opt/weft/bin/weft info"
# The other two builds are not optimized: they take less time, and gcc warns of more.
flags=(CFLAGS="-O0 -Wno-error")
asks "./quickstart test"
says "the demo, by a user" user "who carried the bytes: weft_shm" \
	"./quickstart demo 2000 2 1"
seen=$(as user './quickstart test &
	while kill -0 $! 2>/dev/null; do
		n=$(grep -c ^PASS ~/.cache/weft/build-*/logs/make-check.log \
			2>/dev/null)
		test "${n:-0}" -lt 100 || exit 0
		sleep 1
	done
	exit 1')
if test $? = 0; then
	tap_ok "a hundred tests pass, by a user"
else
	tap_not_ok "a hundred tests pass, by a user" "$(tail -25 <<<"$seen")"
fi
tap_done

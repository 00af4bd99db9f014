#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make install over an installation that a job runs, and make uninstall.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
prefix=$tap_tmp/prefix
make_in_prefix() # TARGET
{
	MAKEFLAGS="" make -s -C "$WEFT_BUILD" "$1" DESTDIR= prefix="$prefix" \
		exec_prefix="$prefix" libdir="$prefix/lib" \
		datarootdir="$prefix/share" >"$tap_tmp/log" 2>&1 ||
		tap_not_ok "make $1" "$(tail -5 "$tap_tmp/log")"
}
make_in_prefix install
binaries=(bin/weft lib/libnccl-env-weft.so lib/libnccl-net-weft.so
	lib/libweft_preload.so lib/ucx/libuct_weft.so)

# As a job holds them: what is written into the files would be seen here.
mkdir "$tap_tmp/held"
for file in "${binaries[@]}"; do
	printf 'old %s' "$file" >"$prefix/$file"
	ln "$prefix/$file" "$tap_tmp/held"
done
python3 - "$prefix" "$tap_tmp/ready" >"$tap_tmp/events" 2>&1 <<'EOF' &
# What happens to names in the folders: IN_DELETE, IN_MOVED_TO of inotify(7).
import ctypes, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
folder = {}
for name in "bin", "lib", "lib/ucx":
	wd = libc.inotify_add_watch(fd, f"{sys.argv[1]}/{name}".encode(), 0x280)
	folder[wd] = name
open(sys.argv[2], "w").close()
while "bin/end" not in folder.values():
	if not select.select([fd], [], [], 60)[0]:
		sys.exit("nothing happened for a minute")
	data = os.read(fd, 65536)
	while data:
		wd, mask, _, size = struct.unpack_from("iIII", data)
		name = folder[wd] + "/" + data[16:16 + size].rstrip(b"\0").decode()
		print("renamed to" if mask & 0x80 else "removed", name, flush=True)
		if name == "bin/end":
			sys.exit()
		data = data[16 + size:]
EOF
until test -e "$tap_tmp/ready"; do sleep 0.1; done
make_in_prefix install
touch "$tap_tmp/end"
mv "$tap_tmp/end" "$prefix/bin/end"
wait $!
rm "$prefix/bin/end"
tap_nothing "what a job has mapped is not written to" "$(
	for file in "${binaries[@]}"; do
		grep -qx "old $file" "$tap_tmp/held/${file##*/}" || echo "$file"
	done)"
tap_equal "the new file takes its place by a rename" \
	"$(grep -x "renamed to [a-z/_-]*\(\.so\|weft\)" "$tap_tmp/events" |
		LC_ALL=C sort -u)" \
	"$(printf 'renamed to %s\n' "${binaries[@]}")"
tap_nothing "and at no time there is none" "$(printf 'removed %s\n' \
	"${binaries[@]}" | grep -xFf - "$tap_tmp/events")"

# A job with the former library, whichever way the new one came.
cp "$prefix/lib/libweft_preload.so" "$tap_tmp/new"
LD_PRELOAD=$prefix/lib/libweft_preload.so sleep 60 &
job=$!
until grep -q libweft_preload /proc/$job/maps; do sleep 0.1; done
says()
{
	"$prefix/bin/weft" info | grep "process $job "
}
tap_nothing "a job that runs what is installed is not named" "$(says)"
mv "$tap_tmp/new" "$prefix/lib/libweft_preload.so"
tap_equal "one that runs what was there before is" "$(says)" \
	"  process $job still runs the weft that was '$prefix/lib/libweft_preload.so' before: restart it to use the one that is installed now"
kill $job
wait $job 2>/dev/null

make_in_prefix uninstall
tap_nothing "make uninstall leaves no file and no empty folder" \
	"$(find "$prefix" -mindepth 1)"
make_in_prefix install
touch "$prefix/lib/ucx/libuct_other.so" "$prefix/bin/other"
make_in_prefix uninstall
tap_equal "and all that is another's" \
	"$(cd "$prefix" && find . ! -type d | sort)" \
	$'./bin/other\n./lib/ucx/libuct_other.so'
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# LD_PRELOAD follows a job into containers that are older than the machine weft
# was built on, or that have another libc: there it must do no harm, and where
# a UCX runs, weft must work. The wheel is at home where there is nothing but
# Python. Needs the network once, and root.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
preload=$(product libweft_preload.so)
plugin=$(product libuct_weft.so)
test -n "$preload" || tap_skip_all "libweft_preload.so is not built"
test -z "$WEFT_SANITIZED" || tap_skip_all "a sanitizer's run time must come first"
test "$(id -u)" = 0 || tap_skip_all "needs root, for chroot"
unshare -m true 2>/dev/null || tap_skip_all "no mount namespace to be had here"
tools=$WEFT_SRC/tests/tools

# With /proc, /sys, /dev, $bind on /weft and, where it is set, $site in that.
in_root() # ROOT COMMAND...
{
	unshare -m bash -c '
		root=$1 bind=$2 site=$3
		shift 3
		for dir in proc sys dev; do
			mount --rbind "/$dir" "$root/$dir" || exit 99
		done
		mount --rbind "$bind" "$root/weft" || exit 99
		test -z "$site" || mount --bind "$site" "$root/weft/site" ||
			exit 99
		exec env -i PATH=/bin:/usr/bin HOME=/tmp \
			"$(command -v chroot)" "$root" "$@"' _ "$1" "$bind" "${site-}" "${@:2}" 2>&1
	echo "status $?"
}

# chroot itself must not run under the library: set it for the command alone.
harmless() # NAME WANTED ROOT COMMAND...
{
	local name=$1 wanted=$2 root=$3 bind_now
	shift 3
	tap_equal "$name, without weft" "$(in_root "$root" "$@")" "$wanted"
	for bind_now in '' LD_BIND_NOW=1; do
		tap_equal "$name, preloaded${bind_now:+, $bind_now}" \
			"$(in_root "$root" "$launch" \
				LD_PRELOAD=/weft/libweft_preload.so $bind_now \
				"$@")" "$wanted"
	done
}

tap_folder
bind=${tap_tmp:?}/weft
mkdir "$bind"
cp "$preload" "$bind"
test -z "$plugin" || cp "$plugin" "$bind"
cp "$WEFT_BUILD/tools/weft" "$bind"

launch="env"
if root=$("$tools/unpack-root.sh" old 2>"$tap_tmp/why"); then
	glibc=$(basename "$(ls "$root"/lib/*/libc-*.so "$root"/lib/*/libc.so.6 \
		2>/dev/null | head -1)" .so)
	name="$(basename "$root") ($glibc)"
	harmless "$name: true" "status 0" "$root" true
	harmless "$name: bash and its children" $'3\n/bin:/usr/bin\nstatus 4' \
		"$root" bash -c 'echo $((1 + 1)) | tr 2 3; printenv PATH; exit 4'
	tap_equal "$name: the command starts" \
		"$(in_root "$root" /weft/weft --version)" \
		"$("$WEFT_BUILD/tools/weft" --version)"$'\nstatus 0'
	ucx=$("$tools/fetch-ucx.sh" --list 1.20 | sed 's/.* //')
	if test -n "$ucx" && test -n "$plugin"; then
		cp -r "$ucx" "$bind/ucx"
		seen=$(in_root "$root" env UCX_TLS=weft_tcp \
			LD_PRELOAD=/weft/libweft_preload.so \
			LD_LIBRARY_PATH=/weft/ucx/lib /weft/ucx/bin/ucx_info -d)
		case $seen in
		*"Transport: weft_tcp"*)
			tap_ok "$name: UCX 1.20 lists weft_tcp" ;;
		*)	tap_not_ok "$name: UCX 1.20 lists weft_tcp" \
				"$(tail -20 <<<"$seen")" ;;
		esac
	else
		tap_skip "$name: UCX 1.20 lists weft_tcp" \
			"no UCX in the cache (tests/tools/fetch-ucx.sh) or no plugin"
	fi
else
	tap_skip "an older glibc" "$(tail -1 "$tap_tmp/why")"
fi

if root=$("$tools/unpack-root.sh" musl 2>"$tap_tmp/why"); then
	lib=$(dirname "$(ls "$root"/usr/lib/*-linux-musl/crt1.o)")
	cat >"$tap_tmp/launch.c" <<'EOF'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
/* env(1) for a root that has none; without a command, a program with a child */
int main(int argc, char **argv)
{
	int status;
	while (argc > 1 && strchr(argv[1], '=')) {
		putenv(argv[1]);
		argv++;
		argc--;
	}
	if (argc > 1) {
		execv(argv[1], argv + 1);
		return 127;
	}
	if (!fork()) {
		puts("child");
		exit(3);
	}
	wait(&status);
	printf("parent saw %d\n", WEXITSTATUS(status));
	return 5;
}
EOF
	if $CC -nostdinc -isystem "$root/usr/include/$(basename "$lib")" \
		-O1 -no-pie -fno-pie -fno-stack-protector -U_FORTIFY_SOURCE \
		-nostdlib "$lib"/crt1.o "$lib"/crti.o \
		"$tap_tmp/launch.c" -L"$root/lib/$(basename "$lib")" -lc \
		"$lib"/crtn.o \
		-Wl,-dynamic-linker,"/lib/$(basename "$root"/lib/ld-musl-*)" \
		-o "$bind/launch"; then
		launch=/weft/launch
		harmless "musl: a program with a child" \
			$'child\nparent saw 3\nstatus 5' "$root" /weft/launch
	else
		tap_not_ok "cannot build a program for musl"
	fi
else
	tap_skip "musl" "$(tail -1 "$tap_tmp/why")"
fi

wheel=$(ls "$WEFT_BUILD"/weft-*-py3-none-*.whl 2>/dev/null)
venv=$("$tools/venv.sh" --list)
if test -z "$wheel"; then
	tap_skip "the wheel in a root with Python" "no wheel (make wheel)"
elif root=$("$tools/unpack-root.sh" python 2>"$tap_tmp/why"); then
	name="$(basename "$root") alone"
	cp "$wheel" "$bind"
	cp -r "$WEFT_SRC/examples" "$bind"
	tap_equal "$name: the wheel is installed" "$(in_root "$root" bash -c '
		python3 -m venv /weft/env &&
			/weft/env/bin/pip -q install --no-index /weft/*.whl &&
			PATH=/weft/env/bin:$PATH && weft --version &&
			weft run bash -c "echo \$LD_PRELOAD" | sed s,/python3[^/]*,,')" \
"$("$WEFT_BUILD/tools/weft" --version)
/weft/env/lib/site-packages/weft/lib/libweft_preload.so
status 0"
	site=$(echo "$venv"/lib/python3*/site-packages)
	python=$(basename "$(dirname "$site")")
	if test -d "$bind/env/lib/$python"; then
		mkdir "$bind/site"
		echo /weft/site >"$bind/env/lib/$python/site-packages/site.pth"
		in_root "$root" env PATH=/weft/env/bin:/bin:/usr/bin \
			bash /weft/examples/demo.sh 1000 1 1 >"$tap_tmp/demo"
		if grep -qx 'status 0' "$tap_tmp/demo" &&
			grep -q '^who carried the bytes: weft_shm$' "$tap_tmp/demo"; then
			tap_ok "$name: the demo runs from the wheel"
		else
			tap_not_ok "$name: the demo runs from the wheel" \
				"$(tail -20 "$tap_tmp/demo")"
		fi
	else
		tap_skip "$name: the demo runs from the wheel" \
			"no Dask for that Python (tests/tools/venv.sh)"
	fi
else
	tap_skip "the wheel in a root with Python" "$(tail -1 "$tap_tmp/why")"
fi
tap_done

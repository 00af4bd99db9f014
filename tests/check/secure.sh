#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Secure execution: a setuid program must run as if weft were not there, also
# when the library lies in a trusted folder and is marked so that the loader
# takes it; it must not open a plugin then.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
test -z "$WEFT_SANITIZED" || tap_skip_all "a sanitizer's run time must come first"
preload=$(product libweft_preload.so)
test -n "$preload" || tap_skip_all "libweft_preload.so is not built"
test "$(id -u)" = 0 || tap_skip_all "needs root, to make a program setuid"
command -v setpriv >/dev/null || tap_skip_all "needs setpriv (util-linux)"
tap_folder
chmod 755 "$tap_tmp"

cat >"$tap_tmp/secure.c" <<'EOF'
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
signed char ucp_config_read(const char *, const char *, void **)
	__attribute__((weak));
int main(void)
{
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	int weft = 0;
	void *config;
	signed char status = ucp_config_read ? ucp_config_read(0, 0, &config) : 1;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (strstr(line, "libweft_preload"))
			weft |= 1;
		if (strstr(line, "libuct_weft"))
			weft |= 2;
	}
	printf("secure %lu, weft %d, status %d\n", getauxval(AT_SECURE), weft,
	       status);
	return 0;
}
EOF
# Stands for UCX and, in the same file, for a plugin.
cat >"$tap_tmp/ucx.c" <<'EOF'
signed char ucp_config_read(const char *, const char *, void **);
signed char ucp_config_read(const char *p, const char *f, void **c)
{ return p || f || !c ? -1 : 0; }
int weft_uct_load(const void *inside);
int weft_uct_load(const void *inside) { return !inside; }
void weft_uct_environment(void);
void weft_uct_environment(void) { }
EOF
# shellcheck disable=SC2086 # CC may carry options
$CC -fPIC -shared -w "$tap_tmp/ucx.c" -o "$tap_tmp/libucp.so" &&
	$CC -w "$tap_tmp/secure.c" -o "$tap_tmp/secure" -L"$tap_tmp" \
		-Wl,--no-as-needed -l:libucp.so -Wl,-rpath,"$tap_tmp" &&
	mkdir "$tap_tmp/lib" && cp "$preload" "$tap_tmp/lib" &&
	cp "$tap_tmp/libucp.so" "$tap_tmp/lib/libuct_weft.so" || {
		tap_not_ok "cannot build the programs"
		tap_done
	}

as_user() # COMMAND...
{
	setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@" 2>&1
}

tap_equal "an ordinary program gets the plugin" \
	"$(LD_PRELOAD=$tap_tmp/lib/libweft_preload.so as_user \
		"$tap_tmp/secure")" "secure 0, weft 3, status 0"
cp "$tap_tmp/secure" "$tap_tmp/setuid"
chmod 4755 "$tap_tmp/setuid"
case $(as_user "$tap_tmp/setuid") in
"secure 1, "*) ;;
*)	tap_skip "a setuid program is left alone" \
		"setuid has no effect in $tap_tmp (nosuid)"
	tap_done ;;
esac
seen=$(LD_PRELOAD=$tap_tmp/lib/libweft_preload.so as_user "$tap_tmp/setuid")
case $seen in
"secure 1, weft 0, status 0" | \
	*"cannot be preloaded"*$'\n'"secure 1, weft 0, status 0")
	tap_ok "a setuid program is left alone" ;;
*)	tap_not_ok "a setuid program is left alone" "$seen" ;;
esac

# The trusted folder, in a mount namespace whose /usr/lib is a copy on write.
trusted=$(dirname "$(ldd /bin/true | sed -n 's/.*=> \(.*libc\.so\.6\) .*/\1/p')")
trusted=$(realpath "$trusted")
name="the loader takes it from a trusted folder, yet no plugin is opened"
mkdir "$tap_tmp/over"
seen=$(unshare -m bash -c '
	mount -t tmpfs none "$1/over" && mkdir "$1/over/up" "$1/over/work" &&
	mount -t overlay none -o "lowerdir=$2,upperdir=$1/over/up,workdir=$1/over/work" "$2" &&
	cp "$1"/lib/* "$2" && chmod 4755 "$2/libweft_preload.so" || exit 77
	LD_PRELOAD=libweft_preload.so setpriv --reuid=65534 --regid=65534 \
		--clear-groups -- "$1/setuid" 2>&1' _ "$tap_tmp" "$trusted" 2>&1)
case $? in
0)	tap_equal "$name" "$seen" "secure 1, weft 1, status 0" ;;
*)	tap_skip "$name" "no mount namespace with an overlay here" ;;
esac
tap_done

#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft itself, and weft run.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
weft=$WEFT_BUILD/tools/weft
preload=$(product libweft_preload.so)
unset LD_PRELOAD UCX_TLS UCX_SOCKADDR_TLS_PRIORITY UCX_NET_DEVICES WEFT_UCX \
	WEFT_NET_DEVICES WEFT_SECRET_FILE NCCL_SOCKET_IFNAME NCCL_SOCKET_FAMILY NCCL_NET NCCL_NET_PLUGIN
for name in "${!OMPI_MCA_@}"; do unset "$name"; done
for name in "${!DASK_@}"; do unset "$name"; done
tap_folder

# One line that has all the words, and the exit code.
says() # NAME CODE WORDS COMMAND...
{
	local name=$1 code=$2 words=$3 out rc
	shift 3
	out=$("$@" 2>&1)
	rc=$?
	if test $rc = "$code" && grep -q -- "$words" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "exit code $rc, wanted $code: $out"
	fi
}

says "no command" 2 "usage: weft" "$weft"
says "help" 0 "weft check" "$weft" --help
says "help of a command" 0 "usage: weft run" "$weft" help run
says "the same" 0 "usage: weft run" "$weft" run --help
says "version" 0 "^weft [0-9]" "$weft" --version
says "no such command" 2 "unknown command 'fly'" "$weft" fly
says "no such option" 2 "unknown option '--fly'" "$weft" run --fly true
says "nothing to run" 2 "no command given" "$weft" run
says "not found" 127 "cannot start '/no/such'" "$weft" run /no/such
says "not executable" 126 "cannot start '/etc'" "$weft" run /etc
says "it reports a full disk" 1 "cannot write" sh -c "$weft --help >/dev/full"

# Under sanitizers, their run time must come first in LD_PRELOAD's stead.
if test -n "$WEFT_SANITIZED"; then
	tap_skip "what a program gets" "a sanitized library cannot be preloaded"
	tap_done
fi

says "exit code is the program's" 7 "" "$weft" run sh -c 'exit 7'

export NCCL_NET_PLUGIN=/nosuch/libnccl-net-weft.so
says "it reports a missing plugin, and the program runs" 7 \
	"NCCL_NET_PLUGIN names '/nosuch/libnccl-net-weft.so'" \
	"$weft" run sh -c 'exit 7'
unset NCCL_NET_PLUGIN

said() # [VARIABLE=VALUE...]: all that weft run says
{
	env "$@" "$weft" run true 2>&1
}
reaches="leaves no interface that is up here: weft reaches no other host ('weft info' lists them)"
tap_equal "it says that WEFT_NET_DEVICES names nothing here" \
	"$(said WEFT_NET_DEVICES=nosuch0)" "weft run: WEFT_NET_DEVICES=nosuch0 $reaches"
tap_equal "or that UCX_NET_DEVICES does" "$(said UCX_NET_DEVICES=nosuch0,nosuch1)" \
	"weft run: UCX_NET_DEVICES=nosuch0,nosuch1 $reaches"
tap_nothing "not if one of several is here" "$(said WEFT_NET_DEVICES=nosuch0,lo)"
tap_nothing "nor of names that are excluded" "$(said WEFT_NET_DEVICES=^nosuch0)"
tap_equal "a secret that is missing, once" \
	"$(said WEFT_SECRET_FILE=/nosuch | sed 's/FILE: .*;/FILE: ...;/')" \
	"weft: error: cannot use '/nosuch', named by WEFT_SECRET_FILE: ...; nothing may connect"
head -c 32 /dev/urandom >"$tap_tmp/secret"
chmod 644 "$tap_tmp/secret"
tap_equal "one that is open to others" \
	"$(said WEFT_SECRET_FILE="$tap_tmp/secret" | grep -c "is open to others (mode 644)")" 1
chmod 600 "$tap_tmp/secret"
tap_nothing "not one that can be used" "$(said WEFT_SECRET_FILE="$tap_tmp/secret")"
says "the program runs without either" 7 "" env WEFT_NET_DEVICES=nosuch0 \
	WEFT_SECRET_FILE=/nosuch "$weft" run sh -c 'exit 7'

seen() # NAME: its value in a program
{
	"$weft" run sh -c "echo \"\$$1\""
}

tap_equal "the library is preloaded" "$(seen LD_PRELOAD)" "$preload"
tap_equal "the library is mapped in the process" \
	"$("$weft" run grep -c libweft_preload /proc/self/maps | sed 's/[1-9].*/some/')" \
	some
tap_equal "the user's LD_PRELOAD is kept" "$(LD_PRELOAD=libdl.so.2 seen LD_PRELOAD)" \
	"$preload:libdl.so.2"
tap_equal "so are several, blanks between them" \
	"$(LD_PRELOAD='libdl.so.2 libm.so.6' seen LD_PRELOAD)" \
	"$preload:libdl.so.2:libm.so.6"
mkdir "$tap_tmp/other"
cp "$preload" "$tap_tmp/other"
tap_equal "another weft's library is left out" \
	"$(LD_PRELOAD=libdl.so.2:$tap_tmp/other/libweft_preload.so \
		seen LD_PRELOAD 2>"$tap_tmp/said")" "$preload:libdl.so.2"
tap_equal "and one line says so" "$(cat "$tap_tmp/said")" \
	"weft run: LD_PRELOAD has another weft's '$tap_tmp/other/libweft_preload.so': left out, '$preload' takes its place"
tap_equal "a nested weft run preloads once" "$("$weft" run "$weft" run sh -c 'echo $LD_PRELOAD')" \
	"$preload"
tap_equal "UCX_TLS defaults to weft" "$(seen UCX_TLS | sed 's/,cuda_copy//; s/weft_nvl,//')" weft_shm,weft_tcp
tap_equal "NCCL's bootstrap uses UCX's interfaces" \
	"$(UCX_NET_DEVICES=lo seen NCCL_SOCKET_IFNAME)" =lo
tap_equal "a NCCL_SOCKET_IFNAME that is set stays" \
	"$(UCX_NET_DEVICES=lo NCCL_SOCKET_IFNAME=eth seen NCCL_SOCKET_IFNAME)" eth
tap_equal "weft_shm and weft_tcp replace tcp in a list" \
	"$(UCX_TLS=tcp,sm,self seen UCX_TLS)" weft_shm,weft_tcp,sm,self
tap_equal "a UCX_TLS with a weft_ name stays" "$(UCX_TLS=weft_tcp,tcp seen UCX_TLS)" \
	weft_tcp,tcp
tap_equal "UCX_TLS=all stays" "$(UCX_TLS=all seen UCX_TLS)" all
tap_equal "UCX_TLS=all sets WEFT_UCX=on" "$(UCX_TLS=all seen WEFT_UCX)" on
tap_equal "an old recipe works" \
	"$(UCX_SOCKADDR_TLS_PRIORITY=sockcm seen UCX_SOCKADDR_TLS_PRIORITY)" tcp
tap_equal "WEFT_UCX=off leaves UCX_TLS unset" "$(WEFT_UCX=off seen UCX_TLS)" ""
tap_equal "WEFT_UCX=off does not change NCCL" \
	"$(WEFT_UCX=off UCX_NET_DEVICES=lo seen NCCL_SOCKET_IFNAME)" =lo
open_mpi='echo "${OMPI_MCA_pml-no}|${OMPI_MCA_osc-no}|${OMPI_MCA_pml_ucx_tls-no}|${OMPI_MCA_pml_ucx_devices-no}"'
tap_equal "Open MPI takes UCX" "$("$weft" run sh -c "$open_mpi")" \
	"||weft_tcp,weft_shm,weft_nvl,weft_ib|any"
tap_equal "Open MPI variables that are set stay" \
	"$(OMPI_MCA_pml=ob1 "$weft" run sh -c "$open_mpi")" \
	"ob1||weft_tcp,weft_shm,weft_nvl,weft_ib|any"
tap_equal "WEFT_UCX=off sets nothing for Open MPI" \
	"$(WEFT_UCX=off "$weft" run sh -c "$open_mpi")" "no|no|no|no"
tap_equal "arguments are the program's" \
	"$("$weft" run printf '%s|' --print -p 'a b' '')" '--print|-p|a b||'
tap_equal "what is printed can be used" \
	"$(eval "$(UCX_TLS=tcp,sm "$weft" run --print)" && echo "$LD_PRELOAD $UCX_TLS")" \
	"$preload weft_shm,weft_tcp,sm"

# Installed and moved: the library is found from the program.
mkdir -p "$tap_tmp/moved/bin" "$tap_tmp/moved/lib" "$tap_tmp/a b/bin" "$tap_tmp/a b/lib"
cp "$WEFT_BUILD/tools/weft" "$tap_tmp/moved/bin/"
cp "$preload" "$tap_tmp/moved/lib/"
tap_equal "a moved prefix finds its library" "$("$tap_tmp/moved/bin/weft" run sh -c 'echo $LD_PRELOAD')" \
	"$(realpath "$tap_tmp")/moved/lib/libweft_preload.so"

# Copied from a prefix that is still there, and has libraries, too.
finder() # FOLDER BINDIR LIBDIR: tool_find(), configured so, in FOLDER
{
	mkdir -p "$1" "$2" "$3/ucx"
	touch "$3/libweft_preload.so" "$3/ucx/libuct_weft.so"
	echo '#include <stdio.h>
	#include "tools/tool.h"
	int main(int argc, char **argv)
	{
		char path[TOOL_PATH_MAX] = "none";
		return puts(tool_find(argv[1], path) ? path : "none") < 0;
	}' | $CC -w -D_GNU_SOURCE -I"$WEFT_BUILD" -I"$WEFT_SRC" \
		-DWEFT_BINDIR="\"$2\"" -DWEFT_LIBDIR="\"$3\"" -x c - \
		"$WEFT_SRC/tools/find.c" -x none "$WEFT_BUILD/util/.libs/libutil.a" \
		-ldl -o "$1/finder"
}
first=$(realpath "$tap_tmp")/first copy=$(realpath "$tap_tmp")/copy
if finder "$copy/bin" "$first/bin" "$first/lib" 2>"$tap_tmp/err"; then
	tap_equal "a copied program takes no library of the first prefix" \
		"$("$copy/bin/finder" libweft_preload.so)" none
	mkdir "$copy/lib"
	cp "$first/lib/libweft_preload.so" "$copy/lib"
	tap_equal "it takes its own" "$("$copy/bin/finder" libweft_preload.so)" \
		"$copy/lib/libweft_preload.so"
	tap_equal "though the copy lacks one that the first has" \
		"$("$copy/bin/finder" ucx/libuct_weft.so)" none
	finder "$first/bin" "$first/bin" "$first/lib/deep/weft"
	tap_equal "an installed one takes that of its libdir" \
		"$("$first/bin/finder" libweft_preload.so)" \
		"$first/lib/deep/weft/libweft_preload.so"
	bare=(unshare -Urm sh -c 'mount -t tmpfs none /proc && exec "$@"' -)
	if "${bare[@]}" true 2>/dev/null; then
		tap_equal "also where there is no /proc, as in a chroot" \
			"$("${bare[@]}" "$first/bin/finder" libweft_preload.so)" \
			"$first/lib/deep/weft/libweft_preload.so"
	else
		tap_skip "also where there is no /proc" "no mount namespace here"
	fi
	mkdir -p "$tap_tmp/second"
	cp -r "$first/bin" "$first/lib" "$tap_tmp/second"
	rm "$tap_tmp/second/lib/libweft_preload.so"
	tap_equal "a copy of both has it in the same place" \
		"$("$tap_tmp/second/bin/finder" libweft_preload.so)" \
		"$(realpath "$tap_tmp")/second/lib/deep/weft/libweft_preload.so"
	mkdir -p "$tap_tmp/ucx_tl/.libs"
	touch "$tap_tmp/ucx_tl/.libs/libuct_weft.so"
	tap_equal "a prefix in a build tree is not the build tree" \
		"$("$copy/bin/finder" ucx/libuct_weft.so)" none
else
	tap_skip "a copied prefix" "no compiler: $(head -1 "$tap_tmp/err")"
fi
mkdir "$tap_tmp/bare"
cp "$WEFT_BUILD/tools/weft" "$tap_tmp/bare"
says "a program without its library" 1 "is not in the prefix that this program is in" \
	"$tap_tmp/bare/weft" run true
cp "$WEFT_BUILD/tools/weft" "$tap_tmp/a b/bin/"
cp "$preload" "$tap_tmp/a b/lib/"
says "a path that LD_PRELOAD cannot hold" 1 "no blank" "$tap_tmp/a b/bin/weft" run true
tap_done

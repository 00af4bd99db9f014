#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# libweft_preload.so in front of a UCX made here for the purpose: it finds the
# function the caller meant, in whichever copy, and never stands in its way.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
test -z "$WEFT_SANITIZED" || tap_skip_all "a sanitizer's run time must come first"
preload=$(product libweft_preload.so)
test -n "$preload" || tap_skip_all "libweft_preload.so is not built"
src=$WEFT_SRC/tests/check/preload
tap_folder
cd "$tap_tmp" || exit 99
unset UCX_TLS WEFT_UCX WEFT_TEST_MAPPED
for name in "${!DASK_@}"; do
	unset "$name"
done

build() # OUTPUT SOURCE OPTION...
{
	# shellcheck disable=SC2086 # CC may carry options
	$CC -std=gnu11 -D_GNU_SOURCE -fPIC -I"$WEFT_SRC" -o "$@" || {
		tap_not_ok "cannot build $1"
		tap_done
	}
}

# Two copies whose libuct have names of their own, as in two prefixes.
for copy in a b; do
	mkdir $copy
	build $copy/libuct_$copy.so "$src/uct.c" -shared -DCOPY="\"$copy\""
	build $copy/libucp.so "$src/ucp.c" -shared -DCOPY="\"$copy\"" \
		-L$copy -luct_$copy -Wl,-rpath,"$tap_tmp/$copy"
	build $copy/libwrap.so "$src/wrap.c" -O2 -shared -L$copy -l:libucp.so \
		-Wl,-rpath,"$tap_tmp/$copy"
done
mkdir installed installed/ucx flat elsewhere
for dir in installed flat; do
	cp "$preload" $dir
done
build installed/ucx/libuct_weft.so "$src/plugin.c" -shared
cp installed/ucx/libuct_weft.so flat
build program "$src/program.c"
build linked "$src/program.c" -La -luct_a -Wl,--no-as-needed -l:libucp.so \
	-Wl,-rpath,"$tap_tmp/a"

with() # FOLDER COMMAND...
{
	LD_PRELOAD="$tap_tmp/$1/libweft_preload.so" "${@:2}" 2>&1
}
both=$'0 1 weft inside\n0 1 weft inside'

tap_equal "without the preload library UCX has no weft component" "$(./program a b 2>&1)" \
	$'0 1 a alone\n0 1 b alone'
tap_equal "two copies opened with RTLD_LOCAL each get weft" \
	"$(with installed ./program a b)" "$both"
tap_equal "the plugin beside the library is found too" \
	"$(with flat ./program a b)" "$both"
tap_equal "a program linked with UCX gets weft and its settings mapped" \
	"$(with installed ./linked -)" "0 0 mapped"
tap_equal "a linked and an opened copy are not confused" \
	"$(with installed ./linked b -)" $'0 1 weft inside\n0 0 mapped'
tap_equal "a linked program gets weft with LD_BIND_NOW" \
	"$(LD_BIND_NOW=1 with installed ./program a b)" "$both"
tap_equal "without UCX the wrappers return unsupported" \
	"$(with installed ./program -; echo "status $?")" \
	$'-22 -22 nothing\nstatus 0'
tap_equal "a relative LD_PRELOAD survives a change of folder" \
	"$(LD_PRELOAD=installed/libweft_preload.so \
		./program "$tap_tmp/a" elsewhere/ 2>&1)" "0 1 weft inside"

# a is 97, b 98; what the plugin makes of it is 1000 more
tap_equal "progress reaches each copy, the plugin sees workers with an event fd" \
	"$(with installed ./program +a +b)" \
"fd 3, 97 -15 0, armed, efd -5 3, progress 97 1097, arm -15, gone, destroyed a
fd 3, 98 -15 0, armed, efd -5 3, progress 1098 1098, arm -15, gone, destroyed b"

tap_equal "a wrapper's jump to progress reaches its UCX" \
	"$(with installed ./program ^b)" $'0 1 weft inside\nprogress 98'
tap_equal "a wrapper's jump reaches its UCX beside another copy" \
	"$(with installed ./linked ^a -)" $'0 1 weft inside\nprogress 97\n0 0 mapped'

rm installed/ucx/libuct_weft.so
tap_equal "progress reaches UCX without the plugin" "$(with installed ./program +a)" \
	", efd -5 3, progress 97 97, arm -15, destroyed a"
tap_equal "a missing plugin that is not requested is silent" \
	"$(with installed ./program a)" "0 1 a alone"
seen=$(UCX_TLS=weft_tcp,tcp with installed ./program a b)
tap_equal "UCX works without a requested plugin" \
	"$(grep -v '^weft' <<<"$seen")" $'0 1 a alone\n0 1 b alone'
tap_equal "a missing requested plugin gives one warning with its path" \
	"$(grep '^weft' <<<"$seen")" \
	"weft: warning: cannot load '$tap_tmp/installed/ucx/libuct_weft.so', which UCX_TLS=weft_tcp,tcp requests: no such file; UCX continues without weft"
for asks in WEFT_UCX=on WEFT_UCX=1 DASK_UCX__TCP=True \
	DASK_DISTRIBUTED__COMM__UCX__NVLINK=true \
	DASK_DISTRIBUTED_UCXX__INFINIBAND=1; do
	tap_equal "a missing plugin is requested by $asks" \
		"$(env "$asks" LD_PRELOAD="$tap_tmp/installed/libweft_preload.so" \
			./program a 2>&1 | grep -o "which .* requests")" \
		"which $asks requests"
done
for silent in "UCX_TLS=tcp DASK_UCX__TCP=True" DASK_UCX__TCP=False \
	"WEFT_UCX=off UCX_TLS=weft_tcp" DASK_UCX__CUDA_COPY=True; do
	# shellcheck disable=SC2086 # assignments, one by one
	tap_equal "a missing plugin is silent with $silent" \
		"$(env $silent LD_PRELOAD="$tap_tmp/installed/libweft_preload.so" \
			./program a 2>&1)" "0 1 a alone"
done
echo "no library" >installed/ucx/libuct_weft.so
seen=$(UCX_TLS=weft_tcp with installed ./program a)
case $seen in
"weft: warning: cannot load '$tap_tmp/installed/ucx/libuct_weft.so', which UCX_TLS=weft_tcp requests: "*"too short"*"without weft"$'\n'"0 1 a alone")
	tap_ok "a damaged plugin: one warning with the loader's reason" ;;
*)	tap_not_ok "a damaged plugin: one warning with the loader's reason" \
		"$seen" ;;
esac
cp "$preload" installed/ucx/libuct_weft.so
seen=$(UCX_TLS=weft_tcp with installed ./program a)
case $seen in
*"it lacks weft's functions"*$'\n'"0 1 a alone")
	tap_ok "a library that is not weft's plugin: one warning" ;;
*)	tap_not_ok "a library that is not weft's plugin: one warning" "$seen" ;;
esac
tap_done

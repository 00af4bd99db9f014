#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# libweft_cuda.so between a program and the fake driver, which stands as
# libcuda.so.1: what is allocated, what ends, and that without
# WEFT_CUDA_EXPORTABLE no call is redirected. Then what CUDA's own runtimes find.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
test -z "$WEFT_SANITIZED" || tap_skip_all "a sanitizer's run time must come first"
preload=$(product libweft_cuda.so)
test -n "$preload" || tap_skip_all "libweft_cuda.so is not built"
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
test -e "$fake" || tap_skip_all "the fake driver is not built"
src=$WEFT_SRC/tests/check/preload
tap_folder
mkdir "$tap_tmp/driver"
ln -s "$fake" "$tap_tmp/driver/libcuda.so.1"
export LD_LIBRARY_PATH=$tap_tmp/driver
unset WEFT_LIBCUDA

build() # OUTPUT SOURCE OPTION...
{
	# shellcheck disable=SC2086 # CC may carry options
	(cd "$src" && $CC -std=gnu11 -D_GNU_SOURCE -I"$WEFT_SRC" \
		-o "$tap_tmp/$1" "${@:2}") || {
		tap_not_ok "cannot build $1"
		tap_done
	}
}
build program exportable.c "$WEFT_BUILD/util/.libs/libutil.a" -ldl -lpthread
build runtime runtime.c -ldl
# to link with: the fake has a soname of its own
sed -n 's/^int \(cu[A-Za-z0-9_]*\)(.*/int \1(void) { return 1; }/p' \
	"$src/linked.c" >"$tap_tmp/names.c"
build names.so "$tap_tmp/names.c" -shared -fPIC -Wl,-soname,libcuda.so.1
build linked linked.c "$tap_tmp/names.so"
build next.so next.c -shared -fPIC -ldl
build lookups.so lookups.c -shared -fPIC -ldl

with() # on|off PROGRAM ARGUMENT...
{
	WEFT_CUDA_EXPORTABLE=$1 LD_PRELOAD=$preload "$tap_tmp/$2" "${@:3}" 2>&1
}
is() # NAME TEST WANTED
{
	tap_equal "$1" "$(with on program "$2")" "$3"
}

is "from 2 MiB on allocations are whole pages of 2 MiB that can be exported" \
	sizes "\
1: 1 B of the driver's
2097151: 2097151 B of the driver's
2097152: 2097152 B of GPU 0, exported, for adapters
2097153: 4194304 B of GPU 0, exported, for adapters
5242880: 6291456 B of GPU 0, exported, for adapters
67108864: 67108864 B of GPU 0, exported, for adapters
0 mappings left"
# 1: CUDA_ERROR_INVALID_VALUE, 2: CUDA_ERROR_OUT_OF_MEMORY
is "errors are the driver's" errors \
	"interior 1, refused 801, free 0, twice 1, foreign 1, no bytes 1, no pointer 1, all 2, full 0, free 0, no memory 2, 0 mappings left"
is "what cannot be mapped is the driver's, leaves nothing, and one warning says so" fallback "\
weft: warning: WEFT_CUDA_EXPORTABLE has no effect on 8388608 bytes of GPU 0: cuMemCreate() failed (CUDA_ERROR_FAKE), so they go through a ring; if this driver or container never allows it, unset it
cuMemCreate: 8388608 B of the driver's
cuMemAddressReserve: 8388608 B of the driver's
cuMemMap: 8388608 B of the driver's
cuMemSetAccess: 8388608 B of the driver's
cuPointerGetAttributes: 8388608 B of the driver's"
is "freeing waits for the GPU" waits \
	"freed 0, 2 mappings, then freed 1, 1 mappings, asynchronously 0, 0 mappings"
# 900: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
is "a capture is broken by what breaks it without this library" capture \
	"alloc 900, free 900, broken 1, relaxed alloc 0, free 0, free 0, broken 0, 0 mappings left"
is "four threads allocate and free" threads "0 mappings left, many made"
is "memory ends with its context" contexts \
	"2 mappings, one context destroyed 1, free 1, the other one reset 0, free 1, used by another 1, released 0"
is "memory of a green context ends with its primary one" green \
	"another destroyed 1, its primary one reset 0, free 1, "
is "memory of a context stays when its address was that of an ended one" reused \
	"1 mappings, free 1, free 0, 0 left"
is "a legacy IPC handle is refused by the driver, with one warning" ipc "\
weft: warning: cudaIpcGetMemHandle() fails for memory that WEFT_CUDA_EXPORTABLE made exportable; unset it for programs that need CUDA IPC
large 1, inside 1, small 801, "
is "a forked child gets the driver's answer" fork "child 1, parent 0, "
is "all visible GPUs have access" peers "\
GPU 1 copies from it 0, GPU 1's own: 2097152 B of GPU 1, exported, for adapters"
is "memory that a visible GPU could not reach is the driver's" unreachable "\
weft: warning: WEFT_CUDA_EXPORTABLE has no effect on GPU 0: another visible GPU has no peer access to it; choose by CUDA_VISIBLE_DEVICES
beside a GPU without access: 8388608 B of the driver's"
is "without a context the driver says so" nothing "without a context 201, "
tap_equal "a GPU without virtual memory management keeps its memory" \
	"$(WEFT_TEST_CUDA_NO_VMM=0 with on program peers)" "\
weft: warning: WEFT_CUDA_EXPORTABLE has no effect on GPU 0: it cannot export memory as a file descriptor
GPU 1 copies from it 0, GPU 1's own: 2097152 B of GPU 1, exported, for adapters"
tap_equal "a program linked with the driver" "$(with on linked)" \
	"exportable, freed 0"

for value in off 0 '' auto; do
	tap_equal "WEFT_CUDA_EXPORTABLE=$value: no call is redirected" \
		"$(with "$value" program redirected)" "none"
done
tap_equal "WEFT_CUDA_EXPORTABLE=on: calls are redirected" \
	"$(with on program redirected)" \
	"cuMemAlloc_v2 cuMemFree_v2 cuMemFreeAsync cuIpcGetMemHandle cuDevicePrimaryCtxReset cuDevicePrimaryCtxRelease_v2 cuCtxDestroy_v2 cuGetProcAddress cuGetProcAddress_v2"
tap_equal "RTLD_NEXT is what follows the caller, not libweft_cuda.so" \
	"$(WEFT_CUDA_EXPORTABLE=on LD_PRELOAD="$preload $tap_tmp/next.so" \
		"$tap_tmp/linked")" "next: libcuda.so.1
exportable, freed 0"

tap_equal "what another library has of that name is not the driver's" \
	"$(WEFT_CUDA_EXPORTABLE=on LD_PRELOAD="$tap_tmp/next.so $preload" \
		"$tap_tmp/linked")" "next: libcuda.so.1
exportable, freed 0"

tap_equal "a library that interposes dlsym() behind it is asked" \
	"$(WEFT_CUDA_EXPORTABLE=on LD_PRELOAD="$preload $tap_tmp/lookups.so" \
		"$tap_tmp/program" nothing | grep -c '^cuMemAlloc lib')" 1

# The runtimes that UCX's packages bring.
found=0
while read -r version prefix; do
	for file in "${prefix%/*}"/libucx_cu*.libs/libcudart*; do
		test -e "$file" || continue
		: $((found++))
		for value in on off; do
			name=libweft_cuda.so
			test $value = on || name=libcuda.so.1
			tap_equal "$(basename "$file"), $value: looks up $name" \
				"$(WEFT_CUDA_EXPORTABLE=$value \
					LD_PRELOAD="$tap_tmp/lookups.so $preload" \
					"$tap_tmp/runtime" "$file" | sort -u)" \
				"cuGetProcAddress_v2 $name
cuMemAlloc $name
cuMemFree $name
cuMemFreeAsync $name
cuMemGetAddressRange libcuda.so.1"
		done
	done
done < <(bash "$WEFT_SRC/tests/tools/fetch-ucx.sh" --list)
test $found != 0 || tap_skip "CUDA's runtimes" "no UCX package with one here"
tap_done

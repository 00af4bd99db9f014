#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Our declarations of NCCL's interface against its own headers, where some are
# at hand: folders named in WEFT_TEST_NCCL_INCLUDE (colon list; the plugin
# headers of NCCL's sources, or a package's include folder), those in the cache,
# and what Python packages have.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder

folders()
{
	tr ':' '\n' <<<"$WEFT_TEST_NCCL_INCLUDE"
	local f
	for f in "${WEFT_CACHE:-$HOME/.cache/weft}"/nccl-headers/* \
		/usr/include /usr/local/cuda/include; do
		test -f "$f/nccl_net.h" && echo "$f"
	done
	python3 -c 'import nvidia.nccl, os
print(os.path.join(list(nvidia.nccl.__path__)[0], "include"))' 2>/dev/null
}

check() # FOLDER
{
	local dir=$1 v have=() names=() out header
	# Newer sources keep each version in a file of its own.
	header=$(cat "$dir"/nccl_net.h "$dir"/net.h "$dir"/net_v*.h \
		"$dir"/net/net_v*.h 2>/dev/null)
	for v in 6 7 8 9 10 11 12; do
		if grep -q "} *ncclNet_v${v}_t;" <<<"$header" &&
			grep -q "} *ncclNetProperties_v${v}_t;" <<<"$header"; then
			have+=("-DHAVE_v$v")
			names+=("v$v")
		fi
	done
	: >"$tap_tmp/tuners.h"
	test -d "$dir/tuner" && echo '#include <nccl_common.h>' >"$tap_tmp/tuners.h"
	for v in 2 3 4 5 6; do
		if test -f "$dir/tuner/tuner_v$v.h"; then
			echo "#include \"tuner/tuner_v$v.h\""
			have+=("-DHAVE_tuner_v$v")
			names+=("tuner v$v")
		fi
	done >>"$tap_tmp/tuners.h"
	test ${#have[@]} -gt 0 || return
	test -f "$dir/nccl_net.h" || echo '#include "net.h"' >"$tap_tmp/nccl_net.h"
	# Packages leave out what theirs includes; the layout needs no more.
	echo 'typedef int ncclDebugLogLevel;
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel, unsigned long,
	const char *, int, const char *, ...);
typedef int ncclFunc_t;
#include <stdint.h>
#include <nccl.h>
typedef ncclResult_t (*ncclProfilerCallback_t)(void **, int, void *, int64_t,
	void *);' >"$tap_tmp/nccl_common.h"
	echo 'typedef enum { HOST } ncclNetDeviceType;
typedef void ncclNetDeviceHandle_v7_t;
typedef void ncclNetDeviceHandle_v8_t;
typedef void ncclNetDeviceHandle_v9_t;
typedef void ncclNetDeviceHandle_v10_t;
typedef void ncclNetDeviceHandle_v11_t;
typedef void ncclNetDeviceHandle_v12_t;
typedef void ncclNetDeviceHandle_t;' >"$tap_tmp/net_device.h"
	mkdir -p "$tap_tmp/nccl_device"		# where 2.28 and later have it
	cp "$tap_tmp/net_device.h" "$tap_tmp/nccl_device/"
	if out=$(${CC:-cc} -std=gnu11 -fsyntax-only -I"$dir" -I"$tap_tmp" \
		-I"$WEFT_SRC" "${have[@]}" \
		"$WEFT_SRC/tests/nccl/abi_check.c" 2>&1); then
		tap_ok "$dir: ${names[*]}"
	else
		tap_not_ok "$dir: ${names[*]}" "$out"
	fi
}

while read -r dir; do
	test -n "$dir" && check "$dir"
done < <(folders | sort -u)
test "$tap_count" -gt 0 || tap_skip_all "no header of NCCL's network interface"
tap_done

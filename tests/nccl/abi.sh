#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Our declarations of NCCL's interfaces against its own headers, every slot with
# its place and its arguments: those that tests/tools/fetch-nccl.sh fetches, and
# where more are at hand, folders named in WEFT_TEST_NCCL_INCLUDE (colon list;
# the plugin headers of NCCL's sources, or a package's include folder) and what
# the system and Python's packages have.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
# Packages leave out what their header includes; the layout needs no more.
rest=$tap_tmp/rest
mkdir -p "$rest/nccl_device"

folders()
{
	tr ':' '\n' <<<"$WEFT_TEST_NCCL_INCLUDE"
	bash "$WEFT_SRC/tests/tools/fetch-nccl.sh" ${WEFT_OFFLINE:+--list} \
		2>"$tap_tmp/fetched"
	local f
	for f in /usr/include /usr/local/cuda/include; do
		test -f "$f/nccl_net.h" && echo "$f"
	done
	python3 -c 'import nvidia.nccl, os
print(os.path.join(list(nvidia.nccl.__path__)[0], "include"))' 2>/dev/null
}

# For a folder with what authors of plugins get: net.h and what it includes.
for_authors()
{
	rm -f "$rest"/*.h "$rest"/nccl_device/*
	echo '#include "net.h"' >"$rest/nccl_net.h"
	echo '#include "err.h"' >"$rest/nccl.h"
	echo 'typedef int ncclFunc_t;' >"$rest/types_of_tuners.h"
	have+=(-DHAVE_common)
}

# For a package's, which has nccl.h and nccl_net.h.
for_packages() # FOLDER
{
	local v
	rm -f "$rest"/*.h "$rest"/nccl_device/*
	: >"$rest/types_of_tuners.h"
	echo '#include <stdint.h>
#include <nccl.h>
typedef int ncclDebugLogLevel;
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel, unsigned long,
	const char *, int, const char *, ...);
typedef ncclResult_t (*ncclProfilerCallback_t)(void **, int, void *, int64_t,
	void *);' >"$rest/nccl_common.h"
	{
		echo 'typedef enum { HOST } ncclNetDeviceType;
typedef void ncclNetDeviceHandle_t;'
		for v in 7 8 9 10 11 12; do
			echo "typedef void ncclNetDeviceHandle_v${v}_t;"
		done
	} >"$rest/net_device.h"
	cp "$rest/net_device.h" "$rest/nccl_device/" # from 2.28 on
	echo 'typedef struct CUstream_st *cudaStream_t;' >"$rest/cuda_runtime.h"
	: >"$rest/cuda_fp16.h"
	# before 2.19 nccl_net.h has all of that itself
	grep -qs nccl_common.h "$1"/nccl_net.h &&
		echo '#include <nccl_common.h>
typedef int ncclFunc_t;' >"$rest/types_of_tuners.h"
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
	test ${#have[@]} -gt 0 || return
	if test -f "$dir/net.h" && test -f "$dir/err.h"; then
		for_authors
	else
		for_packages "$dir"
	fi
	echo '#include <types_of_tuners.h>' >"$rest/tuners.h"
	for v in 2 3 4 5 6; do
		test -f "$dir/tuner/tuner_v$v.h" || continue
		echo "#include \"tuner/tuner_v$v.h\"" >>"$rest/tuners.h"
		have+=("-DHAVE_tuner_v$v")
		names+=("tuner v$v")
	done
	for v in 1 2; do
		test -f "$dir/env_v$v.h" || continue
		echo "#include \"env_v$v.h\"" >>"$rest/tuners.h"
		have+=("-DHAVE_env_v$v")
		names+=("env v$v")
	done
	if out=$(${CC:-cc} -std=gnu11 -fsyntax-only -I"$dir" \
		-idirafter "$rest" -I"$WEFT_SRC" "${have[@]}" \
		"$WEFT_SRC/tests/nccl/abi_check.c" 2>&1); then
		tap_ok "$(basename "$dir"): ${names[*]}"
	else
		tap_not_ok "$dir: ${names[*]}" "$(head -40 <<<"$out")"
	fi
}

while read -r dir; do
	test -n "$dir" && check "$dir"
done < <(folders | sort -u)
if test "$tap_count" = 0; then
	why=$(tail -1 "$tap_tmp/fetched")
	tap_skip_all "no header of NCCL's interfaces, and ${why:-nothing is fetched}"
fi
tap_done

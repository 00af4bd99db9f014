#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Packs what the GPU tests over UCX need into two archives, for a machine that
# has GPUs and nothing else: no compiler, no network.
#
#   tests/gpu/carry.sh FOLDER [ucx|dask]
#
# FOLDER/ucx.tar.xz   weft as built in $WEFT_BUILD, the test programs, and two
#                     releases of UCX with their CUDA modules (ucx_pods.sh)
# FOLDER/dask.tar.xz  Dask, ucxx and dask-cuda for Python 3.12, without what
#                     cupy's environment has already (ucx_dask.sh)
#
# The libraries go as they are: what auditwheel has patched does not survive
# being stripped.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$here/../.." && pwd)
build=${WEFT_BUILD:-$src}
cache=${WEFT_CACHE:-$HOME/.cache/weft}
test $# -ge 1 || { sed -n 's/^# \{0,1\}//;3,15p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A folder "libucx" with only what a program loads. Nothing is linked: links do
# not travel everywhere.
thin_ucx() # FROM TO
{
	local file
	mkdir -p "$2/libucx/lib/ucx"
	for file in "$1"/libucx/lib/libuc[mstp].so{,.0} \
		"$1"/libucx/lib/libucs_signal.so{,.0} \
		"$1"/libucx/lib/ucx/libuc[mt]_cuda.so{,.0} \
		"$1"/libucx/lib/ucx/libuct_cma.so{,.0}; do
		cp -L "$file" "$2/libucx/lib${file#"$1"/libucx/lib}"
	done
	cp -r "$1"/libucx_cu1?.libs "$2"
	find "$1/libucx" -maxdepth 1 -type f -exec cp {} "$2/libucx" \;
}

pack_ucx()
{
	local version prefix root=$tmp/ucx
	mkdir -p "$root/weft" "$root/bin"
	cp -L "$build/ucx_tl/.libs/libuct_weft.so" \
		"$build/ucx_tl/.libs/libweft_preload.so" "$root/weft"
	cp "$build/tools/weft" "$build"/tests/gpu/{pod,probe} "$root/bin"
	while read -r version prefix; do
		case $version in
		1.21.* | 1.22.*) thin_ucx "$(dirname "$prefix")" \
			"$root/ucx-$version" ;;
		esac
	done < <(bash "$src/tests/tools/fetch-ucx.sh" 1.21.0 1.22.0)
	prefix=$cache/ucx/1.21.0/libucx
	(cd "$src/tests/host" &&
	 ${CC:-cc} -std=gnu11 -O2 -g -Wall -o "$root/bin/gpu" gpu.c gpu_speed.c \
		host.c transfer.c ../gpu/gpumem.c ../gpu/pattern_ptx.c \
		"$build/util/.libs/libutil.a" -I "$prefix/include" -I "$src" \
		-L "$prefix/lib" -lucp -lucs -ldl \
		-Wl,--unresolved-symbols=ignore-in-shared-libs)
	tar -C "$root" -cJf "$out/ucx.tar.xz" .
}

# What dask-cuda and Dask over ucxx import, at the versions of the end-to-end
# tests; numpy, cupy, packaging and the like are the machine's own.
dask_packages="click cloudpickle dask distributed distributed-ucxx-cu13 fsspec
	importlib_metadata lazy-importer librmm-cu13 libucx-cu13 libucxx-cu13
	locket msgpack nvidia-ml-py partd psutil PyYAML rapids-dask-dependency
	rapids-logger rmm-cu13 sortedcontainers tblib toolz tornado ucxx-cu13
	zict zipp Jinja2 MarkupSafe cuda-bindings cuda-core cuda-pathfinder"

pack_dask()
{
	local name list=() root=$tmp/dask
	mkdir -p "$tmp/wheels" "$root/site"
	for name in $dask_packages; do
		list+=("$(grep -i "^$name==" "$src/tests/e2e/requirements.txt")")
	done
	list+=("dask-cuda==26.10.0")
	python3 -m pip download --quiet --disable-pip-version-check --no-deps \
		--only-binary :all: --python-version 3.12 --implementation cp \
		--platform manylinux_2_28_x86_64 \
		--platform manylinux_2_27_x86_64 \
		--platform manylinux_2_24_x86_64 \
		--platform manylinux_2_17_x86_64 \
		--platform manylinux2014_x86_64 \
		--platform manylinux_2_12_x86_64 \
		--platform manylinux_2_5_x86_64 \
		--dest "$tmp/wheels" "${list[@]}"
	for name in "$tmp"/wheels/*.whl; do
		python3 -m zipfile -e "$name" "$root/site"
	done
	mv "$root/site/libucx" "$tmp/libucx"
	mkdir "$tmp/full"
	mv "$tmp/libucx" "$root"/site/libucx_cu13.libs "$tmp/full"
	thin_ucx "$tmp/full" "$root/site"
	# headers, static libraries, tests: nothing that is imported
	find "$root/site" \( -name '*.a' -o -name '*.h' -o -name '*.hpp' \
		-o -name '*.cuh' -o -name '*.pyx' -o -name '*.pxd' \) -delete
	find "$root/site" -depth -type d \( -name tests -o -name include \
		-o -name cmake \) -exec rm -rf {} +
	tar -C "$root" -cJf "$out/dask.tar.xz" .
}

for part in ${2:-ucx dask}; do
	"pack_$part"
	ls -l "$out/$part.tar.xz"
done

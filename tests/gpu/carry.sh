#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Packs what the GPU tests over UCX need into archives, for a machine that
# has GPUs and nothing else: no compiler, no network.
#
#   tests/gpu/carry.sh FOLDER [ucx|dask|nixl]
#
# FOLDER/ucx.tar.xz   weft as built in $WEFT_BUILD, the test programs, and two
#                     releases of UCX with their CUDA modules (ucx_pods.sh)
# FOLDER/dask.tar.xz  Dask, ucxx and dask-cuda for Python 3.12, without what
#                     cupy's environment has already (ucx_dask.sh)
# FOLDER/nixl.tar.xz  weft as `make install` lays it out, `pod`, and NIXL for
#                     Python 3.12 with its UCX, without the other backends, in a
#                     folder like the tests' cache (bench/gpu/nixl.sh)
#
# The libraries go as they are: what auditwheel has patched does not survive
# being stripped.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$here/../.." && pwd)
build=${WEFT_BUILD:-$src}
cache=${WEFT_CACHE:-$HOME/.cache/weft}
test $# -ge 1 || { sed -n 's/^# \{0,1\}//;3,18p' "$0" >&2; exit 2; }
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
	cp -L "$build"/ucx_tl/.libs/lib{uct_weft,weft_preload}.so \
		"$root/weft"
	cp "$build/tools/weft" "$build"/tests/gpu/{pod,probe} "$root/bin"
	while read -r version prefix; do
		case $version in
		1.21.* | 1.22.*) thin_ucx "$(dirname "$prefix")" \
			"$root/ucx-$version" ;;
		esac
	done < <(bash "$src/tests/tools/fetch-ucx.sh" 1.21.0 1.22.0)
	prefix=$cache/ucx/1.21.0/libucx
	(cd "$src/tests/host/programs" &&
	 ${CC:-cc} -std=gnu11 -O2 -g -Wall -o "$root/bin/gpu" gpu.c gpu_speed.c \
		host.c transfer.c ../../gpu/nvlink/gpumem.c ../../gpu/nvlink/pattern_ptx.c \
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

unpack_wheels() # FOLDER PACKAGE...
{
	local to=$1 version wheel platforms=()
	shift
	for version in _2_28 _2_27 _2_24 _2_17 2014 _2_12 _2_5; do
		platforms+=(--platform "manylinux${version}_x86_64")
	done
	rm -rf "$tmp/wheels"
	mkdir -p "$to"
	python3 -m pip download --quiet --disable-pip-version-check --no-deps \
		--only-binary :all: --python-version 3.12 --implementation cp \
		"${platforms[@]}" --dest "$tmp/wheels" "$@"
	for wheel in "$tmp"/wheels/*.whl; do
		python3 -m zipfile -e "$wheel" "$to"
	done
}

pack_dask()
{
	local name list=() root=$tmp/dask
	for name in $dask_packages; do
		list+=("$(grep -i "^$name==" "$src/tests/e2e/requirements.txt")")
	done
	unpack_wheels "$root/site" "${list[@]}" "dask-cuda==26.10.0"
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

# What @FILE needs of the libraries in the folders, and so on.
copy_needed() # FROM TO FILE FOLDER...
{
	local from=$1 to=$2 file=$3 name folder
	shift 3
	test ! -e "$to/$file" || return 0
	install -D "$from/$file" "$to/$file"
	for name in $(readelf -d "$from/$file" |
		sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		for folder in "$@"; do
			if test -e "$from/$folder/$name"; then
				copy_needed "$from" "$to" "$folder/$name" "$@"
				break
			fi
		done
	done
}

pack_nixl()
{
	local version=1.5.1 file root=$tmp/nixl from=$tmp/nixl-wheel
	local to=$root/ucx/1.23.0/nixl own=.nixl_cu13.mesonpy.libs
	local libs=nixl_cu13.libs
	unpack_wheels "$from" "nixl-cu13==$version"
	mkdir -p "$to"
	(cd "$from" && cp -r --parents nixl_cu13/*.py "$to")
	for file in nixl_cu13/_bindings.* nixl_cu13/_utils.* \
		$own/plugins/libplugin_UCX.so $libs/nixl/libplugin_UCX.so \
		$libs/ucx/libuct_cuda.so.0.0.0 $libs/ucx/libucm_cuda.so.0.0.0 \
		$libs/ucx/libuct_cma.so.0.0.0; do
		for file in "$from"/$file; do
			copy_needed "$from" "$to" "${file#"$from"/}" $own $libs
		done
	done
	install -D -t "$root/bin" "$build/tools/weft" "$build/tests/gpu/pod"
	install -D -m 644 -t "$root/lib" \
		"$build/ucx_tl/.libs/libweft_preload.so" \
		"$build"/nccl_net/.libs/libnccl-{net,env}-weft.so
	install -D -m 644 -t "$root/lib/ucx" \
		"$build/ucx_tl/.libs/libuct_weft.so"
	tar -C "$root" -cJf "$out/nixl.tar.xz" .
}

for part in ${2:-ucx dask nixl}; do
	"pack_$part"
	ls -l "$out/$part.tar.xz"
done

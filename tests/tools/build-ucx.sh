#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds UCX from source, as the users' builds that no registry here has: the
# developers' own, conda-forge's, and one with statistics. Prints "VERSION
# PREFIX"; the prefix is laid out like $CONDA_PREFIX. Nothing is done when it is
# there.
#
#   tests/tools/build-ucx.sh debug|conda|stats
#
# The source is Debian's package, or the tree that WEFT_UCX_SOURCE names.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
kind=${1:?debug, conda or stats}
case $kind in
debug)	flags="--enable-debug --enable-mt" ;;
conda)	flags="--enable-cma --enable-mt --with-gnu-ld --disable-static"
	for header in infiniband/verbs rdma/rdma_cma; do
		name=${header#*/}
		test ! -f "/usr/include/$header.h" || flags+=" --with-${name/_cma/cm}"
	done
	for dir in "${CUDA_HOME:-}" /usr/local/cuda; do
		test ! -f "$dir/include/cuda.h" ||
			test ! -f "$dir/include/nvml.h" ||
			{ flags+=" --with-cuda=$dir"; break; }
	done ;;
stats)	flags="--enable-stats --enable-mt --disable-static" ;;
*)	echo "usage: $0 debug|conda|stats" >&2; exit 2 ;;
esac

mkdir -p "$cache"
exec 9>"$cache/build-ucx.lock"
flock 9
# shellcheck source=tests/lib/ucx_source.sh
. "$(dirname "$0")/../lib/ucx_source.sh"
ucx_source own

sum=$(sha256sum <<<"$source $flags" | cut -c1-8)
prefix=$cache/ucx-built/$version-$kind-$sum
if ! test -e "$prefix/bin/ucx_info"; then
	work=$cache/ucx-built/work
	rm -rf "$work" "$prefix"
	mkdir -p "$work"
	cp -r "$source/." "$work"
	(
		cd "$work"
		test -x configure || ./autogen.sh
		# shellcheck disable=SC2086 # several flags
		./configure --prefix="$prefix" --without-java --without-go $flags
		make -j"$(nproc)"
		make install
	) >&2
	mkdir -p "$prefix/conda-meta"
	rm -rf "$work"
fi
echo "$version $prefix"

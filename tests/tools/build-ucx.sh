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
sources=$cache/ucx-source
if test -n "${WEFT_UCX_SOURCE-}"; then
	source=$(cd "$WEFT_UCX_SOURCE" && pwd)
else
	source=$(ls -d "$sources"/ucx-*/ 2>/dev/null | head -1)
	if test -z "$source"; then
		. "$(dirname "$0")/../lib/apt.sh"
		apt_in "$VERSION_CODENAME" update
		rm -rf "$sources"
		mkdir -p "$sources"
		(cd "$sources" && apt_in "$VERSION_CODENAME" source ucx)
		rm -rf "$cache/apt-$VERSION_CODENAME"
		source=$(ls -d "$sources"/ucx-*/ | head -1)
	fi
fi
source=${source%/}
version=$(sed -n 's/^define(\[ucx_ver_\(major\|minor\|patch\)\], *\([0-9]*\).*/\2/p' \
	"$source/configure.ac" | paste -sd.)
test -n "$version" || { echo "$source is no UCX source tree" >&2; exit 1; }

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

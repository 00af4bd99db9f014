#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/nccl_clique.py on GPUs: tests/e2e/test_nccl.py with the machine's own
# NCCL and CuPy instead of test doubles, values and counters checked, as a
# notebook on a cluster by scheduler file, with a LocalCluster and with a
# LocalCUDACluster. Two GPUs, gcc, and python3 with CuPy and NCCL are needed.
#
#   tests/gpu/clique.sh pack FILE     makes FILE, Dask and ucxx for Python 3.12
#                                     (9 MB), where packages can be fetched
#   tests/gpu/clique.sh FILE          runs the tests with that, in a minute
#
# The build is WEFT_BUILD, else the first build*/ in the tree that has one.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
usage() { sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# What a machine with torch and CuPy has already, or nothing here uses.
not_carried='bokeh|contourpy|cuda-bindings|cuda-core|cuda-pathfinder|narwhals'
not_carried+='|numpy|pandas|pillow|pyarrow|nvidia-ml-py|xyzservices|tzdata'
not_carried+='|python-dateutil'

pack() # FILE
{
	local file=$1 list site
	folder=$(mktemp -d) || exit 1
	trap 'rm -rf "$folder"' EXIT
	list=$folder/list site=$folder/site
	grep -E '^[A-Za-z].*==' "$root/tests/e2e/requirements.txt" |
		grep -viE "^($not_carried)==" >"$list"
	# of one release with the others of its project
	sed -n 's/^rapids-dask-dependency==/dask-cuda==/p' "$list" >>"$list"
	python3 -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-compile --only-binary :all: --python-version 3.12 \
		--implementation cp --abi cp312 --abi abi3 --abi none \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
		--platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 \
		--platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
		--target "$site" -r "$list" || exit 1
	rm -rf "${site:?}"/libucx/{bin,share,include} "${site:?}"/*/include \
		"${site:?}"/*/lib*/cmake "${site:?}"/{bin,include}
	find "$site" \( -name '*.a' -o -name '*.la' -o -name '*perftest*' -o \
		-name '*.pyx' -o -name '*.pxd' -o -name tests -o \
		-name __pycache__ \) -prune -exec rm -rf {} +
	# a wheel has links as copies
	find "$site" -name '*.so.*' | sort | while read -r copy; do
		plain=${copy%%.so.*}.so
		if cmp -s "$copy" "$plain"; then
			ln -sf "$(basename "$plain")" "$copy"
		fi
	done
	tar -C "$site" -cJf "$file" . && ls -l "$file"
}

case ${1-} in
pack)	test $# = 2 || usage; pack "$2"; exit ;;
'' | -*)	usage ;;
esac
build=${WEFT_BUILD-}
for place in "$root" "$root"/build*/; do
	test -n "$build" || ! test -x "$place/tools/weft" || build=$place
done
test -x "$build/tools/weft" ||
	{ echo "$0: no build with tools/weft: set WEFT_BUILD" >&2; exit 2; }
build=$(cd "$build" && pwd)
site=$(mktemp -d) || exit 1
trap 'rm -rf "$site"' EXIT
python3 -m tarfile -e "$1" "$site" || exit 2
export PYTHONPATH=$root/tests/e2e:$site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
python3 - <<-'END' || exit 1
	import cupy, dask, dask_cuda, distributed_ucxx, rmm, ucxx
	from cupy.cuda import nccl
	assert nccl.available, "CuPy finds no libnccl.so.2"
	print("# GPUs", cupy.cuda.runtime.getDeviceCount(), "CuPy",
	      cupy.__version__, "NCCL", nccl.get_version(), "Dask",
	      dask.__version__, "UCX %d.%d.%d" % ucxx.get_ucx_version())
END
export E2E_GPU=1 E2E_WEFT=$build/tools/weft
export E2E_PRELOAD=$build/ucx_tl/.libs/libweft_preload.so
export E2E_PLUGIN=$build/ucx_tl/.libs/libuct_weft.so
export E2E_NCCL_PLUGIN=$build/nccl_net/.libs/libnccl-net-weft.so
timeout -k 10 "${CLIQUE_SECONDS:-150}" \
	python3 -u "$root/tests/e2e/test_nccl.py" 2>&1

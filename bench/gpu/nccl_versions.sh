#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Real releases of NCCL, between the GPUs of this host: values and speed of each, as
# bench/gpu/run.sh takes them, over weft and over NCCL's own sockets, or between pods
# that weft introduces to each other; or the cases of tests/gpu/run.sh.
#
#   bench/gpu/nccl_versions.sh pack FOLDER [VERSION...]
#          FOLDER/nccl-VERSION.xz of Python's packages, 6 to 16 MB each, with
#          the code for NCCL_ARCH alone (90, Hopper), where packages can be
#          fetched; VERSION: one for each interface that they prefer
#   bench/gpu/nccl_versions.sh FOLDER [--pods|--cases] [OPTION...]
#          runs them; OPTION is that run.sh's
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
usage() { sed -n '7,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

pack() # FOLDER VERSION...
{
	local folder=$1 version wheel
	shift
	mkdir -p "$folder" || exit 1
	test $# -gt 0 || set -- 2.18.3 2.22.3 2.27.7 2.32.3
	for version in "$@"; do
		wheel=$(bash "$root/tests/tools/fetch-nccl.sh" --wheel \
			"$version" "$tmp") || exit 1
		python3 "$here/nccl_pack.py" "${NCCL_ARCH:-90}" "$wheel" \
			"$folder/nccl-$version.xz" || exit 1
		rm "$wheel"
	done
	ls -l "$folder"
}

case ${1-} in
pack)	test $# -ge 2 || usage; pack "${@:2}"; exit ;;
'' | -*)	usage ;;
esac
folder=$1
shift
mode=
case ${1-} in
--pods | --cases) mode=$1; shift ;;
esac
# NCCL before 2.23 knows plugins by name alone, and looks for them in the
# library path.
for plugin in "${WEFT_PLUGIN-}" "${WEFT_BUILD:-$root}"/nccl_net/.libs/libnccl-net-weft.so \
	"$root"/build*/nccl_net/.libs/libnccl-net-weft.so; do
	test -f "$plugin" && break
done
WEFT_PLUGIN=$(realpath "$plugin") || exit 2
export WEFT_PLUGIN
export LD_LIBRARY_PATH=${WEFT_PLUGIN%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# One release after the other: versions.json and versions.log of all.
apart() # RUN.SH OPTION...
{
	local file rc=0
	export OUT=$tmp/out
	for file in "${files[@]}"; do
		echo "== ${file##*/}"
		mkdir "$OUT"
		bash "$1" "${@:2}" --nccl "$file" || rc=1
		mkdir -p "$tmp/all/${file##*/}"
		mv "$OUT"/* "$tmp/all/${file##*/}"
		rmdir "$OUT"
	done
	mkdir -p "$out"
	(cd "$tmp/all" && tail -n +1 -- */*.log >"$out/versions.log"
	 python3 -c 'import glob, json, sys
json.dump({f.split("/")[0]: json.load(open(f)) for f in glob.glob("*/*.json")},
	  open(sys.argv[1], "w"), indent=1)' "$out/versions.json")
	return $rc
}

files=() options=() out=${OUT:-$PWD/out}
for file in "$folder"/nccl-*.xz; do
	name=$(basename "$file" .xz)
	python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"), 1 << 24)' \
		"$file" "$tmp/$name" || exit 2
	files+=("$tmp/$name")
	options+=(--nccl "$tmp/$name")
done
case $mode in
--pods)	apart "$here/run.sh" --pods --rounds 1 --arms native,preload,plugin \
		--set plugin:NCCL_NET_PLUGIN=weft --ops all_reduce,send_recv \
		--sizes 8,65536,8388608,268435456 --timeout 90 "$@"
	exit ;;
--cases)
	export NCCL_NET_PLUGIN=weft
	apart "$root/tests/gpu/run.sh" "$@"
	exit ;;
esac
bash "$here/run.sh" --rounds 1 --programs torch --arms socket,weft --no-kill \
	--set weft:NCCL_NET_PLUGIN=weft --ops all_reduce,send_recv \
	--sizes 8,65536,8388608,67108864 --timeout 60 "${options[@]}" "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches NVIDIA's cuda.h and nvml.h where no CUDA toolkit is installed: what the
# driver's calls are compared with. Prints their folder, for --with-cuda; nothing
# where there is a toolkit. What is already in the cache is not fetched again.
#
#   tests/tools/fetch-cuda.sh [--list]
#
# --list prints the folder if it is ready, else nothing.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
packages="nvidia-cuda-runtime==13.0.96 nvidia-nvml-dev==13.0.87"
folder=$cache/cuda-$(sha256sum <<<"$packages" | cut -c1-12)

for header in /usr/local/cuda/include /usr/local/include /usr/include \
	${CUDA_HOME:+"$CUDA_HOME/include"}; do
	test ! -e "$header/cuda.h" || exit 0
done
if ! test -d "$folder" && test "${1-}" != --list; then
	mkdir -p "$cache"
	exec 9>"$cache/cuda.lock"
	flock 9
fi
if test -d "$folder"; then
	echo "$folder"
	exit 0
fi
test "${1-}" != --list || exit 0

part=$folder.part
rm -rf "$part"
mkdir -p "$part/wheels" "$part/include"
# shellcheck disable=SC2086 # a list
python3 -m pip download --quiet --disable-pip-version-check --no-deps \
	--only-binary :all: --dest "$part/wheels" $packages >&2
for wheel in "$part"/wheels/*.whl; do
	python3 -m zipfile -e "$wheel" "$part/wheels/unpacked"
done
mv "$part"/wheels/unpacked/nvidia/*/include/{cuda,nvml}.h "$part/include"
rm -rf "$part/wheels"
mv "$part" "$folder"
echo "$folder"

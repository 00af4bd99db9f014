#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the Python environment of the end-to-end tests, the benchmark and the
# demo, or of the tests in tests/NAME: the versions in its requirements.txt, in
# the cache folder. Prints its folder. Nothing is done when it is there and the
# list is unchanged.
#
#   tests/tools/venv.sh [--list] [NAME]
#
# --list prints the folder if it is ready, else nothing. The distribution's Python
# is used where it can make environments: the versions are resolved for that
# (tests/check/pins.sh). WEFT_PYTHON names another.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
here=$(cd "$(dirname "$0")/../.." && pwd)
list=
test "${1-}" != --list || { list=yes; shift; }
requirements=$here/tests/${1:-e2e}/requirements.txt
python=${WEFT_PYTHON:-/usr/bin/python3}
test -n "${WEFT_PYTHON-}" || "$python" -c 'import venv, ensurepip' 2>/dev/null ||
	python=python3

sum=$({ cat "$requirements"; "$python" --version; } | sha256sum | cut -c1-12)
folder=$cache/venv-$sum
if test -e "$folder/ready"; then
	echo "$folder"
	exit 0
fi
test -z "$list" || exit 0

mkdir -p "$cache"
exec 9>"$cache/venv.lock"
flock 9
if ! test -e "$folder/ready"; then
	echo "installing $(grep -c '==' "$requirements") Python packages in $folder" >&2
	rm -rf "$folder"
	"$python" -m venv "$folder" >&2
	"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps \
		--only-binary :all: -r "$requirements" >&2
	"$folder/bin/pip" check >&2 || true
	touch "$folder/ready"
fi
echo "$folder"

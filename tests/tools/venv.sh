#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the Python environment of the end-to-end tests, the benchmark and the
# demo: the versions in tests/e2e/requirements.txt, in the cache folder. Prints
# its folder. Nothing is done when it is there and the list is unchanged.
#
#   tests/tools/venv.sh [--list]
#
# --list prints the folder if it is ready, else nothing.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
here=$(cd "$(dirname "$0")/../.." && pwd)
requirements=$here/tests/e2e/requirements.txt
python=${WEFT_PYTHON:-python3}

sum=$({ cat "$requirements"; "$python" --version; } | sha256sum | cut -c1-12)
folder=$cache/venv-$sum
if test -e "$folder/ready"; then
	echo "$folder"
	exit 0
fi
test "${1-}" = --list && exit 0

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

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples for Kubernetes are what it takes, and nothing else.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tools=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list package)
test -n "$tools" || tap_skip_all \
	"no kubernetes-validate in the cache (tests/tools/venv.sh package)"
tap_folder
refused() # FILE: how it ends, and what is refused
{
	"$tools/bin/kubernetes-validate" --strict --quiet "$1" 2>&1 |
		sed 's/ did not validate for resource [^:]*:/:/'
	echo "status ${PIPESTATUS[0]}"
}
for name in kubernetes kubernetes-dra; do
	example=$WEFT_SRC/examples/$name.yaml
	tap_equal "$name.yaml is valid" "$(refused "$example")" "status 0"
	sed 's/mountPath: /mountpath: /' "$example" >"$tap_tmp/wrong.yaml"
	tap_equal "$name.yaml: a name that is not Kubernetes' is refused" \
		"$(refused "$tap_tmp/wrong.yaml" | tail -1)" "status 1"
	tap_equal "$name.yaml takes the image that packaging/Containerfile makes" \
		"$(sed -n 's/.*command: \[cp, -a, \([^ ]*\)\/\., .*/\1/p' "$example")" \
		"$(sed -n 's/^RUN .* install //p' "$WEFT_SRC/packaging/Containerfile")"
done
tap_done

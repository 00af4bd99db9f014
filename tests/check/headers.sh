#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every header compiles alone, and twice.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder

# what needs rdma-core's headers is built only where they are
verbs=""
grep -q 'HAVE_VERBS_H 1' "$WEFT_BUILD/config.h" || verbs=missing

while read -r header; do
	case $verbs:$header in
	missing:util/drivers/verbs.h | missing:devices/ib/* | missing:tests/lib/verbs/*)
		tap_skip "$header" "no rdma-core headers"
		continue ;;
	esac
	printf '#include "%s"\n#include "%s"\n' "$header" "$header" \
		>"$tap_tmp/t.c"
	# shellcheck disable=SC2086 # CC may carry options
	if out=$($CC -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter \
		-fsyntax-only -D_GNU_SOURCE -include "$WEFT_SRC/util/compat.h" \
		-I"$WEFT_SRC" -I"$WEFT_BUILD" ${WEFT_HEADER_CPPFLAGS-} \
		"$tap_tmp/t.c" 2>&1); then
		tap_ok "$header"
	else
		tap_not_ok "$header" "$out"
	fi
done < <(project_files '*.h' | grep -v '^examples/')
tap_done

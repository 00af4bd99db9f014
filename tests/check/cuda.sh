#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The names under which the CUDA driver's calls are looked up are those that
# cuda.h gives the calls: "cuMemAlloc" without its suffix is a call of the
# 32-bit days, with other arguments, and it is still there.  So with NVML's.
: "${WEFT_SRC:=$(cd "$(dirname "$0")/../.." && pwd)}"
# shellcheck source=tests/lib/tap.sh
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

# WEFT_TEST_CUDA_H: configure's, "-isystem FOLDER" or nothing
configured=${WEFT_TEST_CUDA_H-}
for include in "${configured#-isystem }" ${CUDA_HOME:+"$CUDA_HOME/include"} \
	/usr/local/cuda/include /usr/include; do
	test -e "$include/cuda.h" && break
done
test -e "$include/cuda.h" || tap_skip_all "no cuda.h here"
tap_folder
cd "$WEFT_SRC" || exit 99

# Older on purpose, because drivers of 12.0, or before 13, have no newer one.
kept=(cuCtxCreate_v2 cuMemcpyBatchAsync)

# FILE PREFIX HEADER LEAST: the second arguments of X() in FILE
compare()
{
	local header=$include/$3 names name out
	names=$({ sed -n "s/^\tX([a-z0-9_]*, \($2[A-Za-z0-9_]*\),.*/\1/p" "$1"
		grep -rhoE "dlsym\([a-z]+, \"$2[A-Z][A-Za-z0-9_]*\"" \
			--include='*.c' . | sed 's/.*"\(.*\)"/\1/'; } | sort -u)
	test "$(wc -l <<<"$names")" -ge "$4" ||
		tap_not_ok "names were found in $1" "$names"
	if ! test -e "$header"; then
		tap_skip "names as in $3" "no $3 in $include"
		return
	fi
	{ echo "#include <$3>"
	  echo '#include <stdio.h>'
	  echo '#include <string.h>'
	  echo '#define TEXT2(x) #x'
	  echo '#define TEXT(x) TEXT2(x)'
	  echo '#define SAME(name, base) if (strcmp(name, TEXT(base))) \'
	  echo '	printf("%s is called %s\n", name, TEXT(base));'
	  echo 'int main(void) {'
	  for name in $names; do
		[[ " ${kept[*]} " != *" $name "* ]] || continue
		echo "SAME(\"$name\", $(sed 's/_v[0-9]*$//' <<<"$name"))"
	  done
	  echo 'return 0; }'
	} >"$tap_tmp/names.c"
	if ! out=$(${CC:-cc} -I "$include" -o "$tap_tmp/names" \
			"$tap_tmp/names.c" 2>&1); then
		tap_not_ok "compiles with $header" "$out"
	else
		tap_nothing "$(wc -l <<<"$names") names as in $header" \
			"$("$tap_tmp/names")"
	fi
}

compare util/drivers/cuda.h cu cuda.h 40
compare util/drivers/nvml.h nvml nvml.h 11
for name in "${kept[@]}"; do
	# an old one, or still the newest
	if grep -qw "$name" "$include/cuda.h"; then
		tap_ok "$name is in $include/cuda.h"
	else
		tap_not_ok "$name is in $include/cuda.h" "not there"
	fi
done
tap_done

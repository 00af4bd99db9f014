#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# module load weft, and unload, by Lmod or Environment Modules.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
prefix=$tap_tmp/prefix
MAKEFLAGS="" make -s -C "$WEFT_BUILD" install-prefix WHERE="$prefix" \
	>"$tap_tmp/log" 2>&1 || {
	tap_not_ok "make install-prefix" "$(tail -5 "$tap_tmp/log")"
	tap_done
}
mv "$prefix" "$tap_tmp/moved"
found=
for init in /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
	test -e "$init" || continue
	found=yes
	with_modules() # COMMAND...: in a shell that has the function module
	{
		env -i HOME="$tap_tmp" PATH=/usr/bin:/bin init="$init" \
			bash -c 'BASH_ENV="" && . "$init" &&
				module use "$0/share/modulefiles" && '"$1" \
			"$tap_tmp/moved" 2>&1
	}
	tap_equal "$init: module load weft" \
		"$(with_modules 'module load weft && command -v weft &&
			weft --version && echo "[$LD_PRELOAD]"')" \
"$tap_tmp/moved/bin/weft
$("$WEFT_BUILD/tools/weft" --version)
[]"
	tap_equal "$init: module unload weft" \
		"$(with_modules 'before=$PATH && module load weft &&
			test "$PATH" != "$before" && module unload weft &&
			test "$PATH" = "$before" && echo restored')" restored
done
test -n "$found" ||
	tap_skip "module load weft" "neither Lmod (lmod) nor Environment Modules"
tap_done

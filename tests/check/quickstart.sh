#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installing by quickstart, and README's way back.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder

# A host that has nothing of it, and no apt: what is missing is told.
mkdir "$tap_tmp/bin"
for tool in bash cut dirname id nproc readlink sha256sum; do
	ln -s "$(type -P "$tool")" "$tap_tmp/bin" || exit 99
done
missing=$(env -i HOME="$tap_tmp" PATH="$tap_tmp/bin" \
	bash "$WEFT_SRC/quickstart" install "$tap_tmp/prefix" 2>&1)
for package in gcc make libtool libsodium-dev pandoc; do
	case "$missing " in
	*"missing:"*" $package "*) tap_ok "installing asks for $package" ;;
	*) tap_not_ok "installing asks for $package" "$missing" ;;
	esac
done

# Two clones were installed: both go.
for clone in one two; do
	mkdir -p "$tap_tmp/.cache/weft/build-$clone/install"
	printf 'uninstall:\n\t@touch %s\n' "$tap_tmp/gone-$clone" \
		>"$tap_tmp/.cache/weft/build-$clone/install/Makefile"
done
sed -n '/^## Uninstall/,/^and unset/p' "$WEFT_SRC/README.md" |
	grep '^    .*\.cache' | HOME=$tap_tmp MAKEFLAGS='' bash >"$tap_tmp/log" 2>&1
tap_equal "README's line uninstalls each clone" \
	"$(cd "$tap_tmp" && echo gone-*)" "gone-one gone-two"
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's binaries still make their calls as weft redirects them: the facts of
# every release in tests/nccl/releases.list, and those of a release that is newer
# than the list, whose package is fetched once. With --long, or where
# WEFT_TEST_LONG is set, every release is fetched and compared with the list.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
list=$WEFT_SRC/tests/nccl/releases.list
facts=$WEFT_SRC/tests/tools/nccl_facts.py
# what was found out about releases that the list lacks
seen=${WEFT_CACHE:-$HOME/.cache/weft}/nccl-facts
command -v python3 >/dev/null || tap_skip_all "no python3"
tap_folder

tap_nothing "each listed release calls what weft redirects" \
	"$(python3 "$facts" --check <"$list" 2>&1)"

# A planted change is noticed: without that the above would say nothing.
while read -r change what; do
	tap_equal "noticed: $what" "$(tail -1 "$list" | sed "$change" |
		python3 "$facts" --check | sed -n '1s/.*): //p')" "$what"
done <<'EOF'
s/mkstemp:j// no import of mkstemp or mkstemp64
s/sendmsg:\S*/sendmsg:1/ sendmsg by a relocation of kind 1
s/unlink:j/&\tunlinkat:j/ unlinkat is imported, which is not redirected
s|/tmp/nccl-socket-%d-%lx|/run/nccl-socket-%d| no string /tmp/nccl-socket-%d-%lx
EOF

listed() # RELEASE PACKAGE
{
	grep -qsF "$1 $2 " "$list" "$seen"
}

fetched() # RELEASE PACKAGE: its line
{
	local wheel
	wheel=$(bash "$WEFT_SRC/tests/tools/fetch-nccl.sh" --wheel "$1" \
		"$tap_tmp" "nvidia-nccl-$2") && python3 "$facts" "$wheel"
	rm -f "$wheel"
}

for package in cu12 cu13; do
	name="the newest of nvidia-nccl-$package, too"
	if test -n "$WEFT_OFFLINE"; then
		tap_skip "$name" "WEFT_OFFLINE is set"
		continue
	fi
	releases=$(timeout 60 python3 -m pip index versions \
		--disable-pip-version-check "nvidia-nccl-$package" \
		2>"$tap_tmp/why" | sed -n 's/^Available versions: //p' |
		tr -d ,)
	newest=${releases%% *}
	if test -z "$newest"; then
		tap_skip "$name" "cannot be asked for: $(tail -1 "$tap_tmp/why")"
		continue
	fi
	if ! listed "$newest" $package; then
		mkdir -p "${seen%/*}"
		timeout 900 bash -c "$(declare -f fetched)
			WEFT_SRC=$WEFT_SRC tap_tmp=$tap_tmp facts=$facts
			fetched $newest $package" >"$tap_tmp/line" &&
			cat "$tap_tmp/line" >>"$seen"
	fi
	if ! listed "$newest" $package; then
		tap_skip "$name" "$newest cannot be fetched"
		continue
	fi
	tap_nothing "$name: $newest" "$(grep -hsF "$newest $package " \
		"$list" "$seen" | python3 "$facts" --check)"
	test -n "$WEFT_TEST_LONG" || continue
	for release in $releases; do
		listed "$release" $package || continue
		tap_equal "$release ($package) is as the list says" \
			"$(fetched "$release" $package)" \
			"$(grep -hsF "$release $package " "$list")"
	done
done
tap_done

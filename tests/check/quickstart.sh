#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installing by quickstart, and the way back of docs/install.md.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder

# On a host without the packages and without apt it lists what is missing.
mkdir "$tap_tmp/bin"
for tool in bash cut dirname id nproc readlink sha256sum; do
	ln -s "$(type -P "$tool")" "$tap_tmp/bin" || exit 99
done
missing=$(env -i HOME="$tap_tmp" PATH="$tap_tmp/bin" \
	bash "$WEFT_SRC/quickstart" install "$tap_tmp/prefix" 2>&1)
for package in gcc make libtool libsodium-dev; do
	case "$missing " in
	*"missing:"*" $package "*) tap_ok "installing asks for $package" ;;
	*) tap_not_ok "installing asks for $package" "$missing" ;;
	esac
done
case $missing in
*pandoc*) tap_not_ok "it goes without pandoc" "$missing" ;;
*)	tap_ok "it goes without pandoc" ;;
esac

for command in demo test bench install; do
	for help in -h --help; do
		seen=$(HOME=$tap_tmp bash "$WEFT_SRC/quickstart" $command $help 2>&1)
		case $?,$seen in
		"0,usage: ./quickstart $command"*"GB"*)
			tap_ok "$command $help is help" ;;
		*)	tap_not_ok "$command $help is help" "$seen" ;;
		esac
	done
done

wrong() # TEXT ARGUMENT...
{
	local seen rc text=$1
	shift
	seen=$(HOME=$tap_tmp bash "$WEFT_SRC/quickstart" "$@" 2>&1)
	rc=$?
	tap_equal "'quickstart $*' is a usage error" "$rc $(head -1 <<<"$seen")" \
		"2 quickstart$text"
}
wrong ": unknown command 'nosuch'" nosuch
wrong " install: unknown option '--nosuch'" install --nosuch
wrong " test: unknown option '--nosuch'" test --nosuch
wrong " bench: it takes no argument: x" bench x
wrong " demo: 'x' is not a number from 1 to 999999" demo x
wrong " demo: '0' is not a number from 1 to 999999" demo 4000 0
wrong " demo: an array of 8 x 8 has no 16 chunks to move" demo 8
wrong " demo: more than three arguments: 1 2 3 4" demo 1 2 3 4
wrong " install: more than one prefix: /a /b" install /a /b

# A clone is left as it was: what is made is made of a copy.  This one has little
# in it that takes time.
clone=$tap_tmp/clone
mkdir -p "$clone/tests/tools" "$clone/m4" "$tap_tmp/packages"
cp "$WEFT_SRC/quickstart" "$clone"
cp "$WEFT_SRC/tests/tools/suite.sh" "$clone/tests/tools"
touch "$clone/configure.ac" "$clone/m4/weft_x.m4" "$clone/old.c"
cat >"$clone/autogen.sh" <<'EOF'
#!/bin/sh
cat >configure <<'END'
#!/bin/sh
printf 'all:\ninstall:\n\tls %s >%s\nuninstall:\n\trm %s\n' "$(dirname "$0")" \
	"${2#--prefix=}" "${2#--prefix=}" >Makefile
END
chmod +x configure
EOF
chmod +x "$clone/autogen.sh"
printf '#!/bin/sh\necho install ok installed\n' >"$tap_tmp/packages/dpkg-query"
chmod +x "$tap_tmp/packages/dpkg-query"
installed() # PREFIX: what a run made of the clone
{
	(cd "$tap_tmp" && env -u WEFT_CACHE HOME="$tap_tmp" \
		PATH="$tap_tmp/packages:$PATH" bash "$clone/quickstart" \
		install "$1" >"$tap_tmp/log" 2>&1)
	cat "$tap_tmp/$1" 2>/dev/null | tr '\n' ' '
}
before=$(find "$clone" | sort)
tap_equal "quickstart builds a copy of the clone" "$(installed made)" \
	"autogen.sh configure configure.ac m4 old.c quickstart tests "
rm "$clone/old.c"
before=$(grep -v old.c <<<"$before")
tap_equal "the copy loses files that the clone lost" "$(installed made)" \
	"autogen.sh configure configure.ac m4 quickstart tests "
tap_equal "the clone itself is unchanged" "$(find "$clone" | sort)" "$before"
# it ends where the tools are missing that this clone has not
(env -u WEFT_CACHE HOME="$tap_tmp" PATH="$tap_tmp/packages:$PATH" \
	bash "$clone/quickstart" test >"$tap_tmp/log" 2>&1)
tap_equal "quickstart test takes warnings for errors" \
	"$(sed 's/.* //' "$tap_tmp"/.cache/weft/build-*/tests/options)" \
	"--enable-werror"

# The end of a test run, from logs of both forms.
report=$(
	build_root=$tap_tmp
	. "$WEFT_SRC/tests/tools/suite.sh"
	printf '%s\n' "PASS: a.sh 1 - one" "SKIP: a.sh 2 - two # SKIP no wire" \
		"SKIP: b.sh - no wire" "SKIP: c 3 - three # SKIP" |
		skips "make check" >"$tap_tmp/skips"
	printf '%s\n' "ok 1 - four" "ok 2 - five # SKIP no \"GPU\"" \
		"1..0 # SKIP no wire" | skips Dask >>"$tap_tmp/skips"
	skip_list=$(<"$tap_tmp/skips")
	skips_grouped
)
tap_equal "skips are grouped by their reason" "$report" \
"    3  no wire (make check: a.sh 2 - two, ...)
    1  no \"GPU\" (Dask: five)
    1  no reason given (make check: c 3 - three)"

# A run that reached its limit of time is not one that has ended.
printf '%s\n' "PASS: a.sh 1 - one" "FAIL: a.sh 2 - two" >"$tap_tmp/cut"
tap_equal "a run that was cut off says so" "$(
	build_root=$tap_tmp took="9 s" now="3 of 7: b.sh for 5 s"
	say() { echo "$1"; }
	. "$WEFT_SRC/tests/tools/suite.sh"
	failures() { :; }
	count "make check" "$tap_tmp/cut" 124
	printf '%s failed\n%s' "$failed" "$fail_list")" "cut off after 9 s, at 3 of 7: b.sh for 5 s: 1 passed, 2 FAILED (9 s)
2 failed
  make check: cut off after 9 s, at 3 of 7: b.sh for 5 s: what follows in $tap_tmp/cut did not run
  make check: FAIL: a.sh 2 - two"

# What runs, and how many have ended.
mkdir "$tap_tmp/check"
printf 'print-tests:\n\t@echo a.sh b.sh c d\n' >"$tap_tmp/check/Makefile"
touch "$tap_tmp"/check/{a,b,c}.log "$tap_tmp"/check/{a,b}.trs
tap_equal "a run says how far it is, and at what" "$(
	build_root=$tap_tmp checked=$tap_tmp/check
	. "$WEFT_SRC/tests/tools/suite.sh"
	MAKEFLAGS="" check_state "$tap_tmp/cut" | sed 's/[0-9]* s$/N s/')" \
	"2 of 4: c for N s"

# Whatever comes first on PATH, Python's packages are for the distribution's.
mkdir "$tap_tmp/path"
printf '#!/bin/sh\ntouch "%s/used"\nexit 1\n' "$tap_tmp" >"$tap_tmp/path/python3"
chmod +x "$tap_tmp/path/python3"
listed() # what the python3 that is first on PATH left
{
	rm -f "$tap_tmp/used"
	WEFT_CACHE=$tap_tmp PATH=$tap_tmp/path:$PATH \
		bash "$WEFT_SRC/tests/tools/venv.sh" --list >/dev/null 2>&1
	ls "$tap_tmp/used" 2>/dev/null
}
if /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null; then
	tap_nothing "the distribution's Python is used" \
		"$(unset WEFT_PYTHON; listed)"
	tap_equal "but for WEFT_PYTHON" "$(WEFT_PYTHON=python3 listed)" \
		"$tap_tmp/used"
else
	tap_skip "the distribution's Python is used" "/usr/bin/python3 makes no environment here"
fi

# What the demo prints: a time and a rate are of one run, and it claims what is
# beyond the spread.
runs() # ARM SECONDS...
{
	local arm=$1
	shift
	mkdir -p "$tap_tmp/demo/$arm"
	printf '{"times": [%s], "moved": [%s], "total": 5}\n' "$(tr ' ' , <<<"$*")" \
		"$(printf '1e8,%.0s' "$@" | sed 's/,$//')" \
		>"$tap_tmp/demo/$arm/result.1"
}
demo()
{
	python3 "$WEFT_SRC/examples/report.py" "$tap_tmp/demo" 2>&1
}
if command -v python3 >/dev/null; then
	runs dask-tcp 2 1.5 3
	runs ucx-tcp 2 1 4
	runs weft 1.2 0.5 1.9
	echo 20.5 >"$tap_tmp/demo/load"
	echo '{"weft": "tcp", "netdev": "eth0", "rx_message_bytes": 2,
		"rx_put_bytes": 4, "get_bytes": 0}' | tr -d '\n' \
		>"$tap_tmp/demo/weft/counters.1"
	seen=$(demo)
	tap_equal "a row of the demo's table has best and median run" "$(grep '^ucxx://, UCX' <<<"$seen")" \
"ucxx://, UCX's tcp    1.000 s   100 MB/s    2.000 s    50 MB/s   3 runs, results right"
	tap_equal "the demo claims the smaller of two ratios" \
		"$(grep -c "is 1.67 x as fast as Dask's own tcp://\.$" <<<"$seen")" 1
	tap_equal "the demo claims nothing within the spread" \
		"$(grep -c "^UCX's own tcp against .*noisy to tell (load 20.5 on" <<<"$seen")" 1
	tap_equal "the demo says how much was moved" \
		"$(grep '^Each run' <<<"$seen")" "Each run moved 100.0 MB between the workers."
	tap_equal "the demo names lo for an address of this host" "$(grep -o 'weft_tcp over lo.*' <<<"$seen")" \
		"weft_tcp over lo (to an address of eth0)"
	echo '[1764372845.12] [host:7:0] sock.c:99 UCX WARN reset' \
		>>"$tap_tmp/demo/ucx-tcp/result.1"
	tap_equal "what UCX logs beside the results is no result" "$(demo)" "$seen"
	runs weft 1.2 0.5
	runs dask-tcp 0.1 0.2
	tap_equal "the demo claims nothing from two runs" \
		"$(demo | grep -c ': too few runs to tell\.$')" 2
	rm "$tap_tmp/demo/ucx-tcp/result.1"
	echo "slow: stopped after 300 s" >"$tap_tmp/demo/ucx-tcp/note"
	seen=$(demo)
	tap_equal "a slow arm is reported as slow, and the others are shown" \
		"$? $(grep -o 'no run ended.*' <<<"$seen") $(grep -c 'results right' <<<"$seen")" \
		"0 no run ended; slow: stopped after 300 s 2"
	rm "$tap_tmp/demo/weft/result.1"
	seen=$(demo)
	tap_equal "a slow arm is no failure, weft's neither" \
		"$? $(grep -c ': no run over weft ended$' <<<"$seen")" "0 1"
	echo failed >"$tap_tmp/demo/ucx-tcp/note"
	seen=$(demo)
	tap_equal "an arm that failed is a failure" \
		"$? $(tail -1 <<<"$seen")" "1 failed: ucxx://, UCX's tcp"
else
	tap_skip "the demo's table" "needs python3"
fi

# A clone was installed to two prefixes, and another one: all go, by the line of
# docs/install.md.
installed again >/dev/null
cp -r "$clone" "$tap_tmp/other"
clone=$tap_tmp/other installed third >/dev/null
tap_equal "two clones are installed to three prefixes" \
	"$(cd "$tap_tmp" && ls -d made again third 2>&1)" $'again\nmade\nthird'
sed -n '/^## Uninstall/,/^and unset/p' "$WEFT_SRC/docs/install.md" |
	grep '^    .*\.cache' | HOME=$tap_tmp MAKEFLAGS='' bash >"$tap_tmp/log" 2>&1
tap_nothing "the line of docs/install.md uninstalls all of them" \
	"$(cd "$tap_tmp" && ls -d made again third 2>/dev/null)"
tap_done

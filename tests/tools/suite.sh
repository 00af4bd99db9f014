# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # quickstart sources this
# What "./quickstart test" runs, and how it is counted.

passed=0 failed=0 skipped=0
skip_list="" fail_list=""

# Adds up what a log says, in make's form or plain TAP.
count() # NAME LOG EXIT-STATUS
{
	local p f s e cut=""
	p=$(grep -cE '^(PASS:|ok .*)' "$2")
	s=$(grep -cE '^SKIP:|^ok .*# SKIP|^1\.\.0 # SKIP' "$2")
	p=$((p - $(grep -cE '^ok .*# SKIP' "$2")))
	f=$(grep -cE '^FAIL:|^not ok ' "$2")
	# a program that ended badly without saying which test failed
	e=$(awk '/^FAIL:/ { failed[$2] = 1 }
		/^(ERROR|XPASS):/ { bad[$2] = 1 }
		/^Bail out!/ { n++ }
		END { for (t in bad) n += !failed[t]; print n + 0 }' "$2")
	f=$((f + e))
	case $3 in
	124 | 137) # timeout(1)
		f=$((f + 1))
		cut="cut off after $took${now:+, at $now}"
		fail_list+="  $1: $cut: what follows in $2 did not run"$'\n' ;;
	esac
	if test "$3" != 0 && test "$f" = 0; then
		f=1
		fail_list+="  $1: stopped with status $3 ($2)"$'\n'
	fi
	fail_list+=$(grep -E '^(FAIL|ERROR|XPASS):|^not ok |^Bail out!' "$2" |
		sed "s|^|  $1: |")${f:+$'\n'}
	skip_list+=$(skips "$1" <"$2")$'\n'
	passed=$((passed + p))
	failed=$((failed + f))
	skipped=$((skipped + s))
	say "${cut:+$cut: }$p passed$(test "$f" = 0 || printf ', %d FAILED' "$f")$(
		test "$s" = 0 || printf ', %d skipped' "$s") ($took)"
	test "$f" = 0 || failures "$2" | head -60
}

# Of a log: REASON, a tab, and what was skipped for it.
skips() # NAME
{
	sed -nE "/^SKIP:|^(ok|1\.\.0) .*# SKIP/{
		s/^(SKIP: |ok [0-9]+ - |1\.\.0 # SKIP )//; t shape
		: shape
		s/^(.*) # SKIP *(.*)/\2\t$1: \1/; t end
		s/^([^ ]*) - (.*)/\2\t$1: \1/; t end
		s/^(.*)/\1\t$1/
		: end
		s/^\t/no reason given\t/; p }"
}

# Each reason once, the commonest first, with how many and the first of them.
skips_grouped()
{
	awk -F '\t' 'NF == 2 { if (!n[$1]++) first[$1] = $2 }
		END { for (r in n) printf("%5d  %s\t(%s%s)\n", n[r], r, first[r],
			n[r] > 1 ? ", ..." : "") }' <<<"$skip_list" |
		sort -k1,1nr -k2 | tr '\t' ' '
}

# What is known about each failure: behind "not ok" in plain TAP, else in the
# logs that make's driver left.
failures() # LOG
{
	local name build
	if ! grep -q '^make' "$1"; then
		grep -E -A12 '^not ok |^Bail out!' "$1" || tail -12 "$1"
		return
	fi
	build=$(sed -n "s/^make.*: Entering directory '\(.*\)'/\1/p" "$1" | head -1)
	sed -nE 's/^(FAIL|ERROR): ([^ ]*).*/\2/p' "$1" | uniq |
		while read -r name; do
			say "--- $name"
			grep -vE '^(ok|PASS:|SKIP:)' "$build/${name%.sh}.log" |
				grep -E -B5 -A9 '^(not ok|Bail out!)' |
				head -40 | grep . ||
				tail -15 "$build/${name%.sh}.log"
		done
	grep -E '(error:|\*\*\*|undefined reference)' "$1" | head -5
}

# How many of the programs of `make check` in $checked have ended, which are
# running, and for how long. While it builds none are.
check_state() # LOG
{
	local names name log born n=0 of=0 run=""
	names=$(make -s -C "$checked" print-tests 2>/dev/null)
	for name in $names; do
		of=$((of + 1))
		log=$checked/${name%.*}.log
		if test -e "${log%.log}.trs"; then
			n=$((n + 1))
		elif test -e "$log"; then
			born=$(stat -c %W "$log") # 0: not known
			run+="${run:+, }$name$(test "$born" = 0 ||
				echo " for $(($(date +%s) - born)) s")"
		fi
	done
	if test -n "$run"; then
		echo "$n of $of: $run"
	else
		last_line "$1"
	fi
}

# `make check` in BUILD. Its tests wait for half of their time.
run_check() # NAME SECONDS BUILD
{
	# shellcheck disable=SC2034 # run_logged asks it
	local state=check_state checked=$3
	# each one's lines together, or they cut each other's
	run_tests "$1" "$2" make -O -j$((2 * jobs)) -C "$3" -k check
}

run_tests() # NAME SECONDS COMMAND...
{
	local name=$1 seconds=$2 log
	shift 2
	log=$(log_of "$name")
	printf '  %s ... ' "$name"
	run_logged "$log" timeout -k 20 "$seconds" "$@"
	count "$name" "$log" $?
}

# In the background, beside what comes before end_tests.
begin_tests() # NAME SECONDS COMMAND...
{
	local log
	log=$(log_of "$1, beside")
	rm -f "$log.rc"
	start run_beside "$log.rc" "${@:2}" >"$log" 2>&1 </dev/null
}

run_beside() # FILE SECONDS COMMAND...: FILE says how it ended, and when
{
	local begin=$SECONDS
	timeout -k 20 "${@:2}" &
	# it has a group of its own
	trap 'kill $!' TERM
	wait $!
	echo "$? $((SECONDS - begin))" >"$1"
}

# Waits for what began, and ends as that did.
await() # NAME
{
	local log rc
	log=$(log_of "$1, beside")
	printf '  %s ... ' "$1"
	# shellcheck disable=SC2016 # the inner shell's
	run_logged "$(log_of "$1")" bash -c \
		'until test -s "$1.rc"; do sleep 0.5; done; cat "$1"' - "$log"
	read -r rc took <"$log.rc"
	took+=" s, beside others"
	return "$rc"
}

end_tests() # NAME
{
	await "$1"
	count "$1" "$(log_of "$1")" $?
}

skip() # NAME REASON
{
	say "  $1 ... skipped: $2"
	skip_list+="$2"$'\t'"$1"$'\n'
	skipped=$((skipped + 1))
}

# The builds beside the first one that the tests can do without, and what of
# each is wanted: those of a check, or the programs of one kind. -O1: gcc takes half
# the time, but warns of what it does not see through. That one also counts lines.
declare -A variant=(
	[asan]="--enable-sanitizers=address,undefined CFLAGS=-O1 CPPFLAGS=--coverage LDFLAGS=--coverage"
	[tsan]="--enable-werror --enable-sanitizers=thread"
	[fuzz]="--enable-werror --enable-sanitizers=address,undefined --enable-fuzzers CC=clang"
)
declare -A wanted=(
	[asan]="all-am tests/conformance/conformance"
	[tsan]="tests/conformance/conformance
		nccl_net/libnccl-net-weft.la tests/nccl/perf/nccl_perf"
	[fuzz]="fuzzers"
)

# The tests' own code, which is most of a build: it runs little, and UBSan
# watches what it tests.
declare -A light=(
	[asan]="-O0 -fno-sanitize=undefined"
)

make_wanted() # FOLDER
{
	local make=(make -C "$build_root/$1" -j"$jobs")
	# shellcheck disable=SC2086 # a list
	"${make[@]}" ${wanted[$1]} || return
	test -z "${light[$1]-}" ||
		"${make[@]}" check-programs CFLAGS="${light[$1]}"
}

configured() # FOLDER: fails where that cannot be built here
{
	local options=${variant[$1]} log
	log=$(log_of "configure $1")
	# shellcheck disable=SC2086 # a list
	configured_as "$1" $options && return
	# shellcheck disable=SC2086 # a list
	(cd "$build_root/$1" &&
		"$WEFT_SRC/configure" -q $options >"$log" 2>&1 </dev/null) &&
		printf '%s\n' "$WEFT_SRC $options" >"$build_root/$1/options"
}

# In the background, in the time that the tests before them leave: those wait,
# too. try_build reports errors and calls this again.
build_ahead()
{
	local folder
	renice -n 19 $BASHPID >/dev/null
	for folder in asan tsan fuzz; do
		configured $folder && make_wanted $folder
	done >"$(log_of "builds ahead")" 2>&1 </dev/null
}

try_build() # NAME FOLDER
{
	if configured "$2"; then
		step "build ${variant[$2]}" make_wanted "$2"
	else
		skip "$1" "$(grep -m1 'error:' "$(log_of "configure $2")" |
			sed 's/.*error: //')"
		return 1
	fi
}

# UCX as conda and developers build it, tested with the releases.
ucx_sources() # prints VERSION-KIND=PREFIX for each that could be built
{
	local kind log
	for kind in debug conda stats; do
		log=$(log_of "UCX from source, $kind")
		printf '  UCX from source, %s ... ' "$kind" >&2
		if run_logged "$log" bash tests/tools/build-ucx.sh "$kind" >&2; then
			say "done ($took)" >&2
			tail -1 "$log" | sed "s/ /-$kind=/"
		else
			say "FAILED ($took): see $log" >&2
		fi
	done
}

suite() # [--long]
{
	local long="" few ahead covered="" tsan="" ci=${CI-} fuzz_seconds=5 start=$SECONDS
	export WEFT_TEST_LONG=""
	case ${1-} in
	--long)	long=yes ci=yes fuzz_seconds=300 WEFT_TEST_LONG=yes ;;
	'')	;;
	*)	usage_error test "unknown option '$1'" ;;
	esac
	# shellcheck disable=SC2086 # lists
	need $packages_build $packages_python $packages_ucx $packages_manual \
		$packages_test $packages_vm ${long:+$packages_long} \
		${ci:+$packages_ci}
	# where python3 is a script (pyenv), each call of it costs a third of a second
	if test "$(head -c 2 "$(command -v python3)")" = '#!'; then
		PATH=$(python3 -c 'import os, sys
print(os.path.dirname(sys.executable))'):$PATH
	fi
	sources
	bash tests/tools/fetch-cuda.sh >"$(log_of "NVIDIA's headers")" 2>&1 ||
		skip "NVIDIA's headers" "they cannot be fetched (PyPI)"
	build tests --enable-werror
	export WEFT_BUILD=$build_root/tests WEFT_SANITIZED="" CC=${CC:-gcc}
	# so that the longest test can start first
	step "conformance list" make -C "$WEFT_BUILD" -j"$jobs" \
		tests/conformance/conformance
	step "UCX releases" bash tests/tools/fetch-ucx.sh
	python_ready
	step "packaging tools" bash tests/tools/venv.sh package
	printf '  documentation tools ... '
	if run_logged "$(log_of "documentation tools")" \
		bash tests/tools/venv.sh site; then
		say "done ($took)"
	else # its checks are skipped, too
		skip "documentation tools" "they cannot be installed (PyPI)"
	fi
	step "MPI" bash tests/tools/fetch-mpi.sh
	start build_ahead
	ahead=$!
	# minutes more, which CI has
	test -z "$ci" || begin_tests "a bare machine" 3600 bash tests/tools/bare.sh

	run_check "make check" 3600 "$WEFT_BUILD"
	run_tests "analyzers" 600 bash tests/check/analyze.sh
	if test -n "$long"; then
		WEFT_UCX_BUILDS=$(ucx_sources | tr '\n' ' ')
		export WEFT_UCX_BUILDS
		if test "$(wc -w <<<"$WEFT_UCX_BUILDS")" != 3; then
			failed=$((failed + 1))
			fail_list+="  UCX from source: not every build succeeded"$'\n'
		fi
		run_tests "UCX from source" 1800 bash tests/host/run.sh
		run_tests "ways into UCX from source" 900 \
			bash tests/host/load.sh
		unset WEFT_UCX_BUILDS
		run_tests "mpi4py's own tests" 3600 bash tests/host/mpi4py.sh
		run_tests "UCX's own tests" 14400 bash tests/host/ucx_gtest.sh all
		run_tests "build in the tree" 900 bash tests/tools/in-tree.sh
		run_tests "other processors" 1800 bash tests/tools/processors.sh
		run_tests "Debian package" 900 bash tests/tools/debian.sh
	fi
	run_tests "older roots" 900 bash tests/tools/old-root.sh
	test -z "$ci" || end_tests "a bare machine"
	# the emulated machine is slow, and keeps one processor busy: beside it goes
	# what a processor less does no harm to
	begin_tests "Soft-RoCE" 1200 bash tests/vm/run.sh
	run_tests "Dask" 3600 bash tests/e2e/run.sh ${long:+--long}
	wait $ahead 2>/dev/null || true # bash forgets one that ended long ago
	# the programs with threads; the others only take longer
	if try_build "TSan" tsan; then
		tsan=yes
		begin_tests "conformance, TSan" 3600 \
			bash tests/conformance/rows.sh "$build_root/tsan"
	fi
	# what the tarball builds has been tested above; here it must build, pass
	# the checks of its own files, install and uninstall
	few="tests/check/source.sh tests/check/symbols.sh tests/check/preload.sh"
	test -z "$long" || few=""
	run_tests "make distcheck" 3600 make -j"$jobs" -C "$WEFT_BUILD" distcheck \
		${few:+TESTS="$few" DISTCHECK_CONFIGURE_FLAGS="CFLAGS=-O0"}
	if try_build "fuzzers" fuzz; then
		run_tests "fuzzers" $((fuzz_seconds * 4 + 300)) bash tests/fuzz/run.sh \
			"$build_root/fuzz" "$fuzz_seconds"
	fi
	if try_build "ASan and UBSan" asan; then
		run_check "make check, ASan and UBSan" 3600 "$build_root/asan"
	fi
	end_tests "Soft-RoCE"
	if test -n "$long"; then
		run_tests "NCCL on Soft-RoCE" 1800 bash tests/vm/versions.sh
		run_tests "UCX on Soft-RoCE" 1500 bash tests/vm/ucx.sh
		run_tests "Dask on Soft-RoCE" 1800 bash tests/vm/dask.sh
		run_tests "two hosts on Soft-RoCE" 1000 bash tests/vm/two.sh
	fi
	if test -n "$tsan"; then
		end_tests "conformance, TSan"
		run_tests "NCCL plugin, TSan" 900 env \
			TSAN_OPTIONS="suppressions=$WEFT_SRC/tests/lib/tsan.supp" \
			"$build_root/tsan/tests/nccl/perf/nccl_perf" --tap \
			--case register-beside --case threads \
			--case connect-beside --case close-in-flight \
			"$build_root/tsan/nccl_net/.libs/libnccl-net-weft.so"
	fi

	covered=$(log_of "coverage")
	printf '  coverage ... '
	if run_logged "$covered" bash tests/tools/coverage.sh "$build_root/asan"; then
		say "done ($took)"
	else
		skip "coverage" "not measured: $(last_line "$covered")"
		covered=""
	fi

	say
	test -z "$covered" || tail -11 "$covered"
	if test $failed != 0; then
		say "failed (logs in $logs):"
		grep -v '^ *$' <<<"$fail_list"
	fi
	if test $skipped != 0; then
		say "skipped, by reason (which, in full: grep SKIP $logs/*):"
		skips_grouped
	fi
	say "took $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
	say "$passed passed, $failed failed, $skipped skipped"
	test $failed = 0
}

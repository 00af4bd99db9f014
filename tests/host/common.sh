# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the tests over real UCX share: the builds of UCX, the program that
# exchanges data, and how to run two of it.
: "${WEFT_SRC:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}"
: "${WEFT_BUILD:=$WEFT_SRC}"
# shellcheck source=tests/lib/tap.sh
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

plugins=$WEFT_BUILD/ucx_tl/.libs
preload=$plugins/libweft_preload.so
versions=()
declare -A prefix_of

# A build without sanitizers is wanted: a preloaded library cannot bring them.
test -z "${WEFT_SANITIZED-}" || tap_skip_all "sanitizers cannot be preloaded"
test -e "$plugins/libuct_weft.so" || tap_skip_all "libuct_weft.so is not built"

# From 1.21 on UCX else spins for 0.4 s of each start, lest a thread that it has not
# yet is in one of the functions that it patches.
export UCX_MEM_BISTRO_GRACE_DURATION=0us

# Fills versions and prefix_of: the builds of WEFT_UCX_BUILDS ("VERSION=PREFIX
# ..."), then the releases, oldest first. One that the system and a package both
# have is tested twice.
find_builds()
{
	local version prefix pair offline=${WEFT_OFFLINE-}
	for pair in ${WEFT_UCX_BUILDS-}; do
		versions+=("${pair%%=*}")
		prefix_of[${pair%%=*}]=${pair#*=}
	done
	# to weft itself these are no settings
	export -n WEFT_UCX_BUILDS WEFT_OFFLINE
	while read -r version prefix; do
		test -z "${prefix_of[$version]-}" || version+=-${prefix##*/}
		versions+=("$version")
		prefix_of[$version]=$prefix
	done < <(bash "$WEFT_SRC/tests/tools/fetch-ucx.sh" ${offline:+--list})
	test ${#versions[@]} -gt 0 || tap_skip_all "no UCX here"
}

# Fills capable: those whose CUDA modules run on the fake driver, 1.18 and later
# (before, they use CUDA's runtime, which needs a real one).  Those between the
# oldest and the newest take a minute more: with ./quickstart test --long.
builds_with_cuda()
{
	local v
	capable=()
	for v in "${versions[@]}"; do
		test "$(minor_of "$v")" -ge 18 && capable+=("$v")
	done
	test ${#capable[@]} -gt 0 || tap_skip_all "no UCX of 1.18 or later here"
	test -n "${WEFT_TEST_LONG-}" || test ${#capable[@]} -lt 3 ||
		capable=("${capable[0]}" "${capable[-1]}")
}

lib_of() # VERSION: its library folder, nothing for the system's own
{
	test "${prefix_of[$1]}" = /usr || echo "${prefix_of[$1]}/lib"
}

minor_of() # VERSION
{
	local v=${1#*.}
	echo "${v%%.*}"
}

# One program for all versions: the oldest headers here, any libucp later.
# One that WEFT_TEST_PROGRAMS has, as in an emulated machine, where compiling
# takes half a minute, is taken as it is.
build_program() # NAME SOURCE...
{
	local name=$1 v headers='' lib
	shift
	if test -x "${WEFT_TEST_PROGRAMS-}/$name"; then
		ln -s "$WEFT_TEST_PROGRAMS/$name" "$tap_tmp/$name"
		return
	fi
	for v in "${versions[@]}"; do
		test -e "${prefix_of[$v]}/include/ucp/api/ucp.h" || continue
		headers=${prefix_of[$v]}/include
		lib=$(lib_of "$v")
		break
	done
	test -n "$headers" || tap_skip_all "no UCX headers here (libucx-dev)"
	(cd "$WEFT_SRC/tests/host/programs" &&
	 ${CC:-cc} -std=gnu11 -O2 -Wall -rdynamic -o "$tap_tmp/$name" "$@" \
		-I "$headers" -I "$WEFT_SRC" ${lib:+-L "$lib"} \
		-Wl,--unresolved-symbols=ignore-in-shared-libs -lucp -lucs -ldl)
}

# Runs a command under one UCX; PRELOAD=no leaves weft out.
under() # VERSION COMMAND...
{
	local lib
	lib=$(lib_of "$1")
	shift
	env ${lib:+LD_LIBRARY_PATH="$lib"} \
		${PRELOAD-"LD_PRELOAD=$preload"} "$@"
}

# Two sides, each under its version; their words are in $tap_tmp/{wait,come}.
# Fails when the side that waits fails, or the other one unless it is killed.
exchange() # VERSION_WAIT VERSION_COME ARGUMENT...
{
	local waits=$1 comes=$2 pid rc
	shift 2
	PRELOAD=${PRELOAD_WAIT-$PRELOAD_BOTH} under "$waits" \
		"$tap_tmp/exchange" wait "$tap_tmp/meet" "$@" \
		>"$tap_tmp/wait" 2>&1 &
	pid=$!
	PRELOAD=${PRELOAD_COME-$PRELOAD_BOTH} under "$comes" \
		"$tap_tmp/exchange" come "$tap_tmp/meet" "$@" \
		>"$tap_tmp/come" 2>&1
	rc=$?
	wait "$pid" || return 1
	test "$rc" = 0 || { test "$rc" = 137 && test "${*: -1}" = killed; }
}
PRELOAD_BOTH="LD_PRELOAD=$preload"

words() # what both sides of the last exchange said
{
	sed 's/^/wait: /' "$tap_tmp/wait"
	sed 's/^/come: /' "$tap_tmp/come"
}

# After two sides have ended well: no warning but those that match PATTERN.
says_nothing() # NAME PATTERN
{
	if grep -h 'weft: \|UCX  *\(WARN\|ERROR\)' "$tap_tmp"/{wait,come} |
			grep -qv "$2"; then
		tap_not_ok "$1: prints nothing" "$(words)"
	else
		tap_ok "$1"
	fi
}

# The sum of a counter over all lines of a WEFT_STATS file.
counter() # FILE NAME
{
	sed -n 's/.*"'"$2"'":\([0-9]*\).*/\1/p' "$1" |
		awk '{ n += $1 } END { printf "%d\n", n }'
}

of() # DEVICE COUNTER: its sum over both sides, of $tap_tmp/stats
{
	grep "\"weft\":\"$1\"" "$tap_tmp/stats" >"$tap_tmp/part"
	counter "$tap_tmp/part" "$2"
}

# Is LOW <= VALUE <= HIGH?
between() # NAME LOW VALUE HIGH
{
	if test "$3" -ge "$2" && test "$3" -le "$4"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$3 is not in $2 to $4"
	fi
}

# Two network namespaces, ${netns}a and ${netns}b, with a cable between them, as
# 10.78.0.1 and 10.78.0.2; needs root.
cable()
{
	local n
	netns=weft$$
	ip netns add ${netns}a 2>/dev/null || return 1
	# which needs a mount point at /
	ip netns exec ${netns}a true 2>/dev/null || {
		ip netns del ${netns}a
		return 1
	}
	trap 'ip netns del ${netns}a; ip netns del ${netns}b
		rm -rf "$tap_tmp"' EXIT
	ip netns add ${netns}b &&
		ip link add eth0 netns ${netns}a type veth \
			peer name eth0 netns ${netns}b || return 1
	for n in a b; do
		ip -n $netns$n address add 10.78.0.$((1 + (0x$n - 10)))/24 \
			dev eth0 &&
			ip -n $netns$n link set eth0 up &&
			ip -n $netns$n link set lo up || return 1
	done
	# the second end's carrier comes a little later
	for ((n = 0; n < 500; n++)); do
		test "$(ip -n ${netns}a link show eth0 up |
			grep -c 'state UP')$(ip -n ${netns}b link show eth0 |
			grep -c 'state UP')" = 11 && return 0
		sleep 0.02
	done
	return 1
}

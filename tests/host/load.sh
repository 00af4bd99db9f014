#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The ways into UCX, and that weft changes nothing where it is not asked for.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
build_program load load.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n

listed() # VERSION [ASSIGNMENT...]: does ucx_info list weft_tcp? No preload.
{
	local v=$1
	shift
	PRELOAD=UCX_TLS=weft_tcp under "$v" env "$@" \
		"${prefix_of[$v]}/bin/ucx_info" -d 2>&1 |
		grep -q 'Transport: weft_tcp' && echo yes || echo no
}

# Not those that tests beside this one make and take away.
nets=lo
for net in /sys/class/net/*/device; do
	test ! -e "$net" || nets+=,$(basename "$(dirname "$net")")
done

# Lanes of an endpoint and, from UCX 1.16 on, which protocol takes which sizes,
# without what differs from run to run.
lanes() # UCX_TLS of both sides, or "" for none
{
	(test -z "$1" || export UCX_TLS="$1"
	 UCX_PROTO_INFO=y UCX_NET_DEVICES=$nets exchange "$v" "$v" connect)
	sed -e 's/^\[[0-9.]*\] *\[[^]]*\]//' -e 's/0x[0-9a-f]*//g' -e 's/[0-9a-f]\{8,\}//g' \
		-e '/transfers\|peer_name/d' "$tap_tmp/wait"
}

# Opened with RTLD_LOCAL, by the names that Python's loader uses.
for v in "${versions[@]}"; do
	lib=$(lib_of "$v")
	test -n "$lib" || lib=$(dirname "$(ldconfig -p |
		sed -n 's/.*libucp\.so\.0 .*=> //p' | head -1)")
	for ending in .so.0 .so -*.so.0.0.0; do
		compgen -G "$lib/libucp$ending" >/dev/null || continue
		tap_equal "$v: preloaded, libuc*$ending opened with RTLD_LOCAL" \
			"$(UCX_TLS=weft_tcp LD_PRELOAD=$preload \
				"$tap_tmp/load" talk "$lib:$ending" 2>&1)" talked
	done
done

# Linked so that the list of components is the program's.
if build_program copied copied.c -no-pie -luct; then
	for v in "${versions[@]}"; do
		tap_equal "$v: the program has a copy of UCX's list" \
			"$(under "$v" env UCX_TLS=weft_tcp timeout 20 \
				"$tap_tmp/copied" | grep weft_tcp)" weft_tcp
	done
else
	tap_skip "the program has a copy of UCX's list" "cannot build it"
fi

# Files of its own, for UCX >= 1.22.
plugin_path() # VERSION
{
	local v=$1 lib ending dir
	lib=$(lib_of "$v")
	tap_equal "$v: UCX_PLUGIN_PATH" \
		"$(listed "$v" UCX_PLUGIN_PATH="$plugins")" yes
	tap_equal "$v: neither plugin path nor preload" "$(listed "$v")" no
	# by the names of programs, of the Python package, and of NIXL's wheel
	for ending in .so.0 .so -*.so.0.0.0; do
		compgen -G "$lib/libucp$ending" >/dev/null || continue
		dir=$tap_tmp/$v$ending
		mkdir -p "$dir/ucx"
		cp -P "$lib"/libuc*.so* "$dir"
		ln -s "$plugins/libuct_weft.so" "$dir/ucx/libuct_weft.${ending#*.}"
		tap_equal "$v: the library's ucx folder, libuct_weft.${ending#*.}" \
			"$(UCX_TLS=weft_tcp LD_LIBRARY_PATH=$dir \
				"$tap_tmp/load" components "$dir:$ending" |
			   grep -o weft_tcp)" weft_tcp
		tap_equal "$v: UCX_PLUGIN_PATH, libuc*$ending" \
			"$(UCX_TLS=weft_tcp UCX_PLUGIN_PATH=$plugins \
				"$tap_tmp/load" components "$lib:$ending" |
			   grep -o weft_tcp)" weft_tcp
	done
	tap_equal "$v: preload and plugin path together register once" \
		"$(PRELOAD=LD_PRELOAD=$preload under "$v" env \
			UCX_TLS=weft_tcp UCX_PLUGIN_PATH="$plugins" \
			"${prefix_of[$v]}/bin/ucx_info" -d |
		   grep -c 'Memory domain: weft_tcp')" 1
}
for v in "${versions[@]}"; do
	test "$(minor_of "$v")" -lt 22 || plugin_path "$v"
done

# A UCX from the future: the version that its libucp tells, one higher.
unknown()
{
	local v=$1 minor lib dir out
	minor=$(minor_of "$v")
	lib=$(lib_of "$v")
	dir=$tap_tmp/unknown
	mkdir -p "$dir"
	cp -P "$lib"/libuc*.so* "$dir"
	python3 - "$dir/libucp.so.0" "$minor" <<-'PY' || return 1
	import sys
	path, minor = sys.argv[1], int(sys.argv[2])
	data = open(path, "rb").read()
	# movl $minor, (%rsi): the second argument of ucp_get_version()
	old = b"\xc7\x06" + minor.to_bytes(4, "little")
	new = b"\xc7\x06" + (minor + 1).to_bytes(4, "little")
	if data.count(old) != 1:
	    sys.exit(1)
	open(path, "wb").write(data.replace(old, new))
	PY
	out=$(LD_LIBRARY_PATH=$dir LD_PRELOAD=$preload UCX_TLS=weft_tcp \
		"${prefix_of[$v]}/bin/ucx_info" -d 2>&1 >/dev/null |
		grep 'weft: ')
	tap_equal "1.$((minor + 1)): one line" "$(wc -l <<<"$out")" 1
	case $out in
	*"UCX 1.$((minor + 1)) in"*"install a weft and a UCX that match"*WEFT_UCX_FORCE=$minor*)
		tap_ok "1.$((minor + 1)): it names version, cure and override" ;;
	*)	tap_not_ok "1.$((minor + 1)): it names version, cure and override" \
			"$out" ;;
	esac
	tap_equal "1.$((minor + 1)): no line for who did not ask" \
		"$(LD_LIBRARY_PATH=$dir LD_PRELOAD=$preload \
			"${prefix_of[$v]}/bin/ucx_info" -d 2>&1 | grep weft)" ""
	out=$(LD_LIBRARY_PATH=$dir LD_PRELOAD=$preload UCX_TLS=weft_tcp \
		WEFT_UCX_FORCE=$minor "${prefix_of[$v]}/bin/ucx_info" -d 2>&1)
	tap_equal "1.$((minor + 1)): WEFT_UCX_FORCE=$minor" \
		"$(grep -c 'Memory domain: weft_tcp' <<<"$out")" 1
	warns_of_force "1.$((minor + 1)): WEFT_UCX_FORCE=$minor is logged" \
		"$minor: UCX 1.$((minor + 1)) in" "$out"
}

# One line, with both versions, what may happen and what to do.
warns_of_force() # NAME FORCED-AND-FOUND OUTPUT
{
	local line
	line=$(grep 'weft: ' <<<"$3")
	case $line in
	*$'\n'*) tap_not_ok "$1" "$line" ;;
	*"warning: WEFT_UCX_FORCE=$2 '"*"may crash"*"unset WEFT_UCX_FORCE"*)
		tap_ok "$1" ;;
	*)	tap_not_ok "$1" "${line:-nothing}" ;;
	esac
}
newest=${versions[-1]}
unknown "$newest" || tap_skip "a UCX from the future" "cannot make one here"

forced() # VERSION MINOR [UCX_TLS]: what ucx_info lists, and weft logs
{
	PRELOAD="LD_PRELOAD=$preload UCX_TLS=${3-weft_tcp}" under "$1" \
		env WEFT_UCX_FORCE="$2" "${prefix_of[$1]}/bin/ucx_info" -d 2>&1
}
minor=$(minor_of "$newest")
warns_of_force "1.$minor: WEFT_UCX_FORCE=$((minor - 1)) is logged" \
	"$((minor - 1)): UCX 1.$minor in" "$(forced "$newest" $((minor - 1)))"
tap_nothing "1.$minor: WEFT_UCX_FORCE=$minor changes nothing" \
	"$(forced "$newest" "$minor" | grep 'weft: ')"
tap_nothing "1.$minor: WEFT_UCX_FORCE=$((minor - 1)), and weft is not selected" \
	"$(forced "$newest" $((minor - 1)) tcp | grep 'weft: ')"

# Asked for, and there is no interface for it: which, who said so, what to do.
no_interface() # NAME WORDS COMMAND...: one line, which matches WORDS
{
	local name=$1 words=$2 out
	shift 2
	out=$(PRELOAD="LD_PRELOAD=$preload" under "$newest" "$@" \
		"${prefix_of[$newest]}/bin/ucx_info" -d 2>&1 | grep 'weft: ')
	if test "$(wc -l <<<"$out")" = 1 && grep -q "$words" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "$out"
	fi
}
for name in WEFT_NET_DEVICES UCX_NET_DEVICES; do
	no_interface "no interface: $name" \
		"weft_tcp has no interface: $name='nosuch0' matches none .*lo).*name one" \
		env UCX_TLS=weft_tcp $name=nosuch0
done
if unshare -n ip link set lo up 2>/dev/null; then
	no_interface "no interface is up" "none here is up and has an address" \
		env UCX_TLS=weft_tcp unshare -n
	no_interface "no interface of that family" \
		"WEFT_FAMILY='ipv6', and those that are up (lo) have no such" \
		env UCX_TLS=weft_tcp WEFT_FAMILY=ipv6 unshare -n sh -c \
			'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
			ip link set lo up && "$0" "$@"'
else
	tap_skip "no interface is up" "no network namespace to be had here"
fi
tap_nothing "no interface, and none asked for" \
	"$(WEFT_NET_DEVICES=nosuch0 LD_PRELOAD=$preload UCX_TLS=tcp \
		under "$newest" "${prefix_of[$newest]}/bin/ucx_info" -d 2>&1 |
		grep 'weft: ')"

# A peer of a release that speaks other versions: by address alone UCX says no
# more than that there is no way.
ns=$("$WEFT_BUILD/tools/weft" info |
	sed -n 's/.*network namespace \([0-9a-f]*\),.*/\1/p')
if UCX_TLS=weft_tcp exchange "$newest" "$newest" later="$ns" connect; then
	tap_not_ok "a peer of another wire version is not reached" "$(words)"
fi
for side in wait come; do
	tap_equal "$side: the peer's wire version is logged, once" \
		"$(grep -c 'weft: .*127.0.0.1:.* wire versions 250 to 250, this weft [0-9]* to [0-9]*:.*install' \
			"$tap_tmp/$side")" 1
	tap_equal "$side: UCX learns why" \
		"$(grep -c 'weft_tcp/lo - its weft has no wire version in common' \
			"$tap_tmp/$side")" 1
done

# A peer without weft: who has it says so, once, and what to do; from where weft
# has refused a peer, or reached one, there is nothing to report.
lonely="offers no weft transport, and no other transport here reaches it: start"
for v in "${versions[@]}"; do
	if UCX_TLS=weft_tcp PRELOAD_COME="A=1 UCX_TLS=tcp" \
			exchange "$v" "$v" connect; then
		tap_not_ok "$v: a peer without weft is not reached" "$(words)"
		continue
	fi
	tap_equal "$v: a peer without weft is logged, once" \
		"$(grep -c "weft: .*$lonely" "$tap_tmp/wait")" 1
	UCX_TLS=weft_tcp PRELOAD_COME="A=1 UCX_TLS=tcp" \
		exchange "$v" "$v" sock peer connect
	tap_equal "$v: so by socket address, where a peer listens" \
		"$(grep -c "weft: .*$lonely" "$tap_tmp/wait")" 1
	# (by lo alone 1.20's own tcp reaches no peer)
	if UCX_TLS=weft_tcp,tcp UCX_NET_DEVICES=all \
			PRELOAD_COME="A=1 UCX_TLS=tcp" \
			exchange "$v" "$v" connect; then
		tap_nothing "$v: what is advised works, without a word" \
			"$(grep "$lonely" "$tap_tmp"/{wait,come})"
	else
		tap_not_ok "$v: what is advised works" "$(words)"
	fi
	UCX_TLS=weft_tcp exchange "$v" "$v" later="$ns" connect
	tap_nothing "$v: not of a peer that weft refuses" \
		"$(grep "$lonely" "$tap_tmp"/{wait,come})"
	UCX_TLS=weft_tcp PRELOAD_BOTH="LD_PRELOAD=$preload WEFT_LOG=info" \
		exchange "$v" "$v" connect
	tap_equal "$v: WEFT_LOG=info: where weft is, and that it is used" \
		"$(grep -ch "weft: .*weft_tcp.* registered with UCX 1.$(minor_of "$v") in '/.*libuct\|weft: first used: weft_tcp over 'lo', to 127" \
			"$tap_tmp"/{wait,come} | paste -sd' ')" "2 2"
done

# Two copies in one process. The dynamic linker tells libraries by their soname,
# so the second copy gets names of its own.
two_copies() # VERSION VERSION
{
	local first second=$tap_tmp/second l
	first=$(lib_of "$1")
	mkdir -p "$second"
	cp "$(lib_of "$2")"/libuc*.so.0 "$second"
	sed -i 's/libuc\([mstp]\)\.so\.0/libuX\1.so.0/g' "$second"/*
	for l in m s t p; do
		ln -s "libuc$l.so.0" "$second/libuX$l.so.0"
	done
	tap_equal "$1 and $2 in one process" \
		"$(UCX_TLS=weft_tcp LD_PRELOAD=$preload \
			"$tap_tmp/load" talk "$first" "$second" 2>&1)" \
		"talked
talked"
}
others=()
for v in "${versions[@]}"; do
	test -z "$(lib_of "$v")" || others+=("$v")
done
if test ${#others[@]} -ge 2; then
	two_copies "${others[-1]}" "${others[-2]}"
else
	tap_skip "two copies in one process" "one UCX here"
fi

# Loaded and not chosen: nothing changes and nothing is logged, for both sides or
# one, also where others' variables hold what weft could not take.
export NCCL_IB_TC=none
for v in "${versions[@]}"; do
	for tls in "" all ^sm,self; do
		without=$(PRELOAD_BOTH=A=1 lanes "$tls")
		case $without in
		*lane\[0\]*) ;;
		*) tap_not_ok "$v: UCX_TLS='$tls': lanes" "$without"; continue ;;
		esac
		tap_equal "$v: UCX_TLS='$tls': same lanes" "$(lanes "$tls")" \
			"$without"
		tap_equal "$v: UCX_TLS='$tls': same lanes, one side has weft" \
			"$(PRELOAD_COME=A=1 lanes "$tls")" "$without"
	done
	# the comparison sees it where weft is let in
	case $(WEFT_UCX=on lanes ^sm,self) in
	*NCCL_IB_TC*lane*:weft_*) tap_ok "$v: WEFT_UCX=on: other lanes" ;;
	*) tap_not_ok "$v: WEFT_UCX=on: other lanes" "$(words)" ;;
	esac
done
tap_done

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gcc's analyzer, cppcheck and clang-tidy find no fault in the product: `make
# analyze`. What is checked is written here and in .clang-tidy; releases differ
# in what they find, so one of each is asked, Debian 12's.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/rooms.sh"
tap_folder
cd "$WEFT_SRC" || exit 99
src=$(pwd -P)
unbuilt='^$'
grep -q 'HAVE_VERBS_H 1' "$WEFT_BUILD/config.h" ||
	unbuilt='^devices/ib/|^util/drivers/verbs[.]'
mapfile -t files < <(product_files | grep '\.c$' | grep -vE "$unbuilt")
flags=(-DHAVE_CONFIG_H -D_GNU_SOURCE -I"$src" -I"$WEFT_BUILD"
	-DWEFT_BINDIR='"/bin"' -DWEFT_LIBDIR='"/lib"')
gcc_flags=(-std=gnu11 -fno-strict-aliasing -include "$src/util/compat.h"
	"${flags[@]}")

# False finds: where, which check, and why.  Remove those that are not found any
# more.
cat >"$tap_tmp/known" <<'END'
gcc host/netif.c analyzer-use-of-uninitialized-value: weft_fail() is below 0
gcc nccl_net/net/ports.c analyzer-use-of-uninitialized-value: weft_fail() is below 0
gcc ucx_tl/resolve.c analyzer-use-of-uninitialized-value: memcpy() reads all of it
gcc devices/ib/ib_mem.c analyzer-null-dereference: dev[i] is set where mr[i] is
gcc devices/common/region.c analyzer-null-dereference: a slot that was taken has a block
gcc devices/nvlink/nvl_part.c analyzer-use-of-uninitialized-value: what a function returned
cppcheck host/samehost.c resourceLeak: stays open, for its lock
cppcheck devices/local/folder.c resourceLeak: is returned
cppcheck util/drivers/nvml.c resourceLeak: stays loaded
cppcheck util/drivers/verbs.c resourceLeak: stays loaded
cppcheck devices/ib/ib_qp.c returnDanglingLifetime: the queue pair keeps no pointer
cppcheck devices/tcp/tcp_fail.c nullPointer: recv() with MSG_TRUNC needs no buffer
clang-tidy tools/check/check_peer.c bugprone-integer-division: of an index, not a time
clang-tidy tools/info/info_install.c misc-redundant-expression: reads two characters
END

# What an analyzer says of FILE:LINE:... [CHECK] and is not known above.
findings() # TOOL LOG
{
	awk -v tool="$1" -v src="$src/" -v unbuilt="$unbuilt" '
		FILENAME == ARGV[1] {
			sub(/:$/, "", $3)
			known[$2, $3] = $2 " " $3
			of[$2, $3] = $1
			next
		}
		index($0, src) == 1 { $0 = substr($0, length(src) + 1) }
		{ sub(/^\.\//, "") }
		/: note: / { next }
		/^[a-z_0-9\/]+\.[ch]:[0-9]+:.*\[[^]]*\]$/ {
			file = $0
			sub(/:.*/, "", file)
			check = $0
			sub(/.*\[/, "", check)
			sub(/\]$/, "", check)
			sub(/^-W/, "", check)
			seen[file, check]
			if (!((file, check) in known) && !line[$0]++)
				print
		}
		END {
			for (k in known)
				if (of[k] == tool && !(k in seen) &&
				    known[k] !~ unbuilt)
					print known[k] ": not found any more"
		}' "$tap_tmp/known" "$2"
}

release() # PATTERN PROGRAM...: the first of them that is of this release
{
	local pattern=$1 program
	shift
	for program in "$@"; do
		"$program" --version 2>/dev/null | grep -qE -- "$pattern" &&
			echo "$program" && return
	done
}

run() # NAME COMMAND...: COMMAND with some of the files, on each processor
{
	local name=$1
	shift
	printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" "$@" \
		>"$tap_tmp/$name" 2>&1 || {
		tap_not_ok "$name runs" "$(tail -5 "$tap_tmp/$name")"
		return
	}
	tap_nothing "$name finds nothing" "$(findings "$name" "$tap_tmp/$name")"
}

# An operation that waits is in a list by a member: to gcc it has leaked.
gcc=$(release '^[^(]*gcc.* 12\.' gcc-12 gcc)
if test -n "$gcc"; then
	run gcc -n 1 "$gcc" "${gcc_flags[@]}" -fanalyzer \
		-Wno-analyzer-malloc-leak -fdiagnostics-path-format=none \
		-fno-diagnostics-show-caret -S -o /dev/null
else
	tap_skip "gcc finds nothing" "needs gcc 12"
fi

# A stream of directory entries is read by one thread: readdir() will do.
if test -n "$(release ' 2\.10' cppcheck)"; then
	run cppcheck -n 24 cppcheck --quiet --std=c11 --language=c \
		--library=posix,gnu --enable=warning,performance,portability \
		--suppress=readdirCalled \
		--template='{file}:{line}: {severity}: {message} [{id}]' \
		-D__x86_64__ -D__linux__ '-DElfW(x)=Elf64_##x' "${flags[@]}"
else
	tap_skip "cppcheck finds nothing" "needs cppcheck 2.10"
fi

tidy=$(release ' version 14\.' clang-tidy-14 clang-tidy)
if test -n "$tidy"; then
	# the files go before these
	printf '%s\n' "${gcc_flags[@]}" >"$tap_tmp/compile_flags.txt"
	run clang-tidy -n 8 "$tidy" --quiet -p "$tap_tmp"
else
	tap_skip "clang-tidy finds nothing" "needs clang-tidy 14"
fi
tap_done

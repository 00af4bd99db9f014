#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Import slots of the other processors that NCCL is or was made for:
# nccl_net/introduce/slots.c, cross-built and run by an emulator, over a library linked in
# each way that there is. tests/unit/nccl_net/slots_test.c has the cases; here
# they are few.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
cat >"$tap_tmp/slots.c" <<'EOC'
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "nccl_net/introduce/slots.h"

static int my_pid(void)
{
	return -1;
}

static int my_parent(void)
{
	return -2;
}

#define WANT(cond)						\
	do {							\
		if (!(cond))					\
			return printf("not so: %s\n", #cond);	\
	} while (0)

int main(int argc, char **argv)
{
	static const struct weft_slot slots[] = {
		{ "getpid", my_pid, 1 },
		{ "getppid", my_parent, 2 },
		{ "getpgid", my_parent, 4 },
	};
	void *lib = dlopen(argv[1], RTLD_LAZY);
	int (*pid)(void), (*parent)(void), (*by_pointer)(void);

	WANT(lib);
	*(void **)&pid = dlsym(lib, "lib_pid");
	*(void **)&parent = dlsym(lib, "lib_parent");
	*(void **)&by_pointer = dlsym(lib, "lib_parent_by_pointer");
	WANT(pid() == getpid());
	WANT(weft_slots_write((void *)pid, slots, 3, 1 | 4));
	WANT(pid() == getpid());
	WANT(!weft_slots_write((void *)pid, slots, 3, 1 | 2));
	WANT(pid() == -1 && parent() == -2 && by_pointer() == -2);
	WANT(getpid() > 0 && getppid() > 0);
	WANT(!weft_slots_write((void *)pid, slots, 3, 1));
	puts("right");
	return 0;
}
EOC
build() # OUTPUT OPTION...
{
	"$host-gcc" -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Werror -I"$WEFT_SRC" \
		-o "$tap_tmp/$1" "${@:2}" || {
		tap_not_ok "$cpu: cannot build $1"
		tap_done
	}
}

try() # CPU COMPILER EMULATOR
{
	local cpu=$1 host=$2-linux-gnu emulator=$3 kind tool
	local lib=$WEFT_SRC/tests/unit/nccl_net/slots_lib.c
	for tool in "$host-gcc" "$emulator"; do
		command -v "$tool" >/dev/null || {
			tap_skip "$cpu" "there is no $tool (gcc-$host, qemu-user)"
			return
		}
	done
	test -e "/usr/$host/lib/libc.so.6" || {
		tap_skip "$cpu" "there is no libc in /usr/$host"
		return
	}
	build slots "$tap_tmp/slots.c" "$WEFT_SRC/nccl_net/introduce/slots.c"
	build lazy.so "$lib" -shared -fPIC -Wl,-z,lazy,-z,relro
	build now.so "$lib" -shared -fPIC -Wl,-z,now,-z,relro
	build open.so "$lib" -shared -fPIC -Wl,-z,lazy,-z,norelro
	build no-plt.so "$lib" -shared -fPIC -fno-plt -Wl,-z,now,-z,relro
	for kind in lazy now open no-plt; do
		tap_equal "$cpu, $kind" "$("$emulator" -L "/usr/$host" \
			"$tap_tmp/slots" "$tap_tmp/$kind.so" 2>&1)" right
	done
}

try aarch64 aarch64 qemu-aarch64
test -z "$WEFT_TEST_LONG" || try ppc64le powerpc64le qemu-ppc64le
tap_done

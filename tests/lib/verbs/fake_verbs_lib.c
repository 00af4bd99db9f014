/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake as a library in libibverbs' place, for programs that load it as they
 * do everywhere.  Those that share the file FAKE_VERBS_FILE are on one fabric;
 * the devices must be shown to them in /sys.
 */
#include <stdlib.h>

#include "tests/lib/verbs/fake_verbs_int.h"

#define FAKE_VERBS_FILE "WEFT_TEST_VERBS"

/* Under the names of libibverbs, of which its header has macros, too. */
#define X(field, symbol, type, args)                                   \
	typedef type call_##field args;                                \
	static call_##field *find_##field(void)                        \
	{                                                              \
		return fake_table.field;                               \
	}                                                              \
	__attribute__((visibility("default"),                          \
		       ifunc("find_" #field))) extern type lib_##field \
		args __asm__(#symbol);
WEFT_VERBS_CALLS(X)
#undef X

__attribute__((constructor)) static void attach(void)
{
	const char *path = getenv(FAKE_VERBS_FILE);

	if (path)
		fake_verbs_attach(path);
}

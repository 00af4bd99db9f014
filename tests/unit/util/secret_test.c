/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/caught.h"
#include "tests/lib/smaps.h"
#include "util/secret.h"

#define SIZE 5000u

static unsigned char *watched;
static unsigned int left, seen;

/* munmap() of this program: what is still there when it is called? */
int munmap(void *p, size_t n)
{
	unsigned int i;

	if (watched && p == watched) {
		seen++;
		for (i = 0; i < SIZE; i++)
			left += watched[i] != 0;
	}
	return syscall(SYS_munmap, p, n);
}

static bool refused;

/* madvise() of this program: as where a sandbox has none. */
int madvise(void *p, size_t n, int advice)
{
	if (!refused)
		return (int)syscall(SYS_madvise, p, n, advice);
	errno = EINVAL;
	return -1;
}

/* A program may run without that, but not without a word. */
Test(secret, memory_that_is_dumped_is_said_once)
{
	void *p[2];

	catch_log();
	refused = true;
	p[0] = weft_secret_alloc(SIZE);
	p[1] = weft_secret_alloc(SIZE);
	cr_assert(p[0] && p[1]);
	cr_expect(eq(int, caught.count, 1));
	cr_expect(eq(int, (int)caught.level, WEFT_LOG_WARN));
	expect_caught("core dumps");
	weft_secret_free(p[0], SIZE);
	weft_secret_free(p[1], SIZE);
}

Test(secret, memory_is_not_dumped_and_is_wiped)
{
	unsigned char *p = weft_secret_alloc(SIZE);
	unsigned int i;

	cr_assert(p != NULL);
	for (i = 0; i < SIZE; i++) {
		cr_assert(eq(int, p[i], 0));
		p[i] = 0xff;
	}
	cr_expect(smaps_undumped(p));
	cr_expect(smaps_undumped(p + SIZE - 1));
	cr_expect(not(smaps_undumped(&left)), "everything seems to be");
	watched = p;
	weft_secret_free(p, SIZE);
	watched = NULL;
	cr_expect(eq(uint, seen, 1));
	cr_expect(eq(uint, left, 0));
	cr_expect(not(smaps_undumped(p)), "it is still mapped");
	weft_secret_free(NULL, SIZE);
}

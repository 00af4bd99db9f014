/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies from and to memory that may be gone. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "devices/common/bounce.h"
#include "tests/lib/fds.h"

#define SIZE ((size_t)100000) /* more than the buffer, and no whole pages */

/* @at: how far behind a page's begin the peer's memory lies */
static void copies_both_ways(struct weft_bounce *b, size_t at)
{
	static uint8_t room[2][26 << 12] __attribute__((aligned(4096)));
	uint8_t *ours = room[0], *peers = room[1] + at;
	void *gone =
		mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(room, 0xa5, sizeof(room));
	for (size_t i = 0; i < SIZE; i++)
		ours[i] = (uint8_t)(i * 7 + i / 251);
	cr_expect(zero(int, weft_bounce_out(b, peers, ours, SIZE)));
	cr_expect(zero(int, memcmp(peers, ours, SIZE)));
	memset(ours, 0xa5, SIZE);
	cr_expect(zero(int, weft_bounce_in(b, ours, peers, SIZE)));
	cr_expect(zero(int, memcmp(peers, ours, SIZE)));
	cr_expect(eq(int, peers[-1] + peers[SIZE] + ours[SIZE], 3 * 0xa5));
	cr_expect(eq(int, weft_bounce_out(b, gone, ours, SIZE), -EACCES));
	cr_expect(eq(int, weft_bounce_in(b, ours, gone, SIZE), -EACCES));
	munmap(gone, SIZE);
}

Test(bounce, copies_with_descriptors_and_without)
{
	struct weft_bounce with = { NULL, -1 }, without = { NULL, -1 };

	for (size_t at = 1; at < 4096; at *= 3)
		copies_both_ways(&with, at);
	cr_expect(not(zero(ptr, with.map)));
	weft_bounce_close(&with);
	allow_fds(false);
	copies_both_ways(&without, 0);
	allow_fds(true); /* Criterion has a socket */
	cr_expect(zero(ptr, without.map));
}

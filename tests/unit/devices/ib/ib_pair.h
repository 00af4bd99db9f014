/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two interfaces of the InfiniBand device on the fake adapter, in one process.
 */
#ifndef WEFT_TESTS_UNIT_IB_PAIR_H
#define WEFT_TESTS_UNIT_IB_PAIR_H

#include "settings/settings.h"
#include "tests/lib/verbs/fake_verbs.h"
#include "tests/unit/devices/sides.h"

#define LEN 3000000

extern const struct weft_dev_ops *const ib;
extern bool disorder; /* a side received numbers in another order */
extern uint8_t src[LEN], dst[LEN]; /* begin() fills them with 7 and 0 */

void begin(void);
void end(void);
/* Messages of the side are expected to be numbers, see send_number(). */
int open_side(struct side *s, const char *name);
void pair_up(void);
void pair_down(void);
void nothing_lives(const char *when);
/* Messages carry their number, from 0 on. */
int send_number(struct side *s, uint32_t n);
/* Puts all of src, of a, into dst, of b; its status, or why it was not taken.
 */
int put_all(struct weft_mem *mem);
/* Without inline data is as good. */
bool unneeded(const char *call);
/* That, and what gives something back at the end. */
bool survived(const char *call);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of one side that the other one maps. */
#ifndef WEFT_TESTS_UNIT_NVL_MAPPED_H
#define WEFT_TESTS_UNIT_NVL_MAPPED_H

#include "devices/nvlink/nvl.h"
#include "tests/unit/devices/nvl_pair.h"

#define SEGMENT (2u << 20)
#define LEN	(3 * SEGMENT)
#define POISON	0xa5

/* Of LEN bytes, on GPU 0 and 1; @to is registered. */
extern uint8_t *from, *to;
extern struct weft_mem *mem;
extern uint8_t key[WEFT_RKEY_MAX];

/* @to, for @mem and @key. */
void register_all(void);
/* What @key says; has it a way to be mapped? */
struct nvl_key unpack(const uint8_t *packed);
bool may_be_mapped(void);
/* Is all of @to POISON? */
bool is_poison(void);

/* The only one. */
struct nvl_conn *conn_of(struct side *s);
#define counter(s, name) ((unsigned long)conn_of(s)->stats->name)

#endif

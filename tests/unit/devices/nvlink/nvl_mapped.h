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
/* Its release; a second call does nothing. */
void release_all(void);
/* end_pair(), and the same if the test has not done it. */
void end_mapped(void);
/* What @key says; has it a way to be mapped? */
struct nvl_key unpack(const uint8_t *packed);
bool may_be_mapped(void);
/* Is all of @to POISON? */
bool is_poison(void);

/* Opens a and b, which meet; @to's three parts may be mapped as @types. */
void pair_up(int types);
/* What lived then in the driver. */
extern struct fake_cuda_live before;
/* The same, and a has it mapped. */
void pair_up_mapped(void);
void put_all(void);
int start_put(struct wait_op *w);
/* A put that fails with @status, and ends the connection on both sides. */
void put_fails(int status);
/* Streams and their marks stay. */
bool is_unmapped(void);

/* The only one. */
struct nvl_conn *conn_of(struct side *s);
#define EXPORT "cuMemExportToShareableHandle"
#define IMPORT "cuMemImportFromShareableHandle"

#define counter(s, name) ((unsigned long)conn_of(s)->stats->name)

#endif

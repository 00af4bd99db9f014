/* SPDX-License-Identifier: BSD-3-Clause */
/* Two sides of weft_shm on the fake driver, with memory of both kinds. */
#ifndef WEFT_TESTS_UNIT_SHM_GPU_H
#define WEFT_TESTS_UNIT_SHM_GPU_H

#include "devices/shm/shm_ring.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN (20u << 20) /* more than fits a window at a time */

extern const struct weft_dev_ops *const dev;
/* Of LEN bytes, on GPU 0 and 1 and here; both targets are registered. */
extern uint8_t *from, *to, *host, *host_to;
extern struct weft_mem *mem, *host_mem; /* mem: NULL where it was released */
extern uint8_t key[WEFT_RKEY_MAX], host_key[WEFT_RKEY_MAX];

void shm_gpu_begin(void);
void shm_gpu_end(void);
struct shm_conn *conn_of(struct side *s);
int start_put(uint8_t *src, uint8_t *dst, size_t len, const void *k,
	      struct wait_op *w);
/* Fills @src, poisons @dst, and looks at every byte. */
void put_all(uint8_t *src, uint8_t *dst, size_t len, const void *k,
	     unsigned int seed);
void get_all(uint8_t *dst, uint8_t *src, size_t len, const void *k,
	     unsigned int seed);

#endif

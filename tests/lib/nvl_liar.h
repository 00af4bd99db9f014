/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the NVLink device that has proven itself and then says what its
 * user wants, by frames.
 */
#ifndef WEFT_TESTS_NVL_LIAR_H
#define WEFT_TESTS_NVL_LIAR_H

#include "devices/device.h"
#include "devices/nvlink/nvl_proto.h"
#include "util/clock.h"

#define LIAR_WAIT_MS 30000
#define LIAR_PART    (2u << 20) /* as large as all that the driver has */

struct liar {
	struct weft_iface *iface; /* whom it lies to */
	int fd;
	/* its own, whose first life is its connection's */
	struct nvl_table *table;
	unsigned int frames[NVL_FRAME_TYPES]; /* that came */
	int none;			      /* of the last NONE */
};

extern const uint8_t liar_key[WEFT_KEY_LEN];

/*
 * Whom they lie to: an interface that says nothing, on the fake driver, and
 * GPU memory that peers may map.
 */
struct liar_victim {
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	struct weft_mem *mem;
	struct nvl_key key;
	struct weft_address liar; /* for its endpoint towards them */
};
/* Calls that @cb leaves out do nothing. */
void liar_victim_open(struct liar_victim *v, const struct weft_iface_cb *cb);
void liar_victim_close(struct liar_victim *v);

/* For tests of Criterion's: progresses the victim until @cond. */
#define liar_wait(v, cond)                                                 \
	do {                                                               \
		uint64_t end_ = weft_now_ms() + LIAR_WAIT_MS;              \
		while (!(cond)) {                                          \
			(v)->iface->ops->progress((v)->iface);             \
			cr_assert(weft_now_ms() < end_, "no '%s' in time", \
				  #cond);                                  \
		}                                                          \
	} while (0)

/* A sealed memfd, as the device makes them. */
int liar_memfd(size_t size, bool seal);
/* A descriptor of GPU 0's memory, as the fake driver exports it. */
int liar_part(size_t size);
/* Dials the @number-th time and proves itself; liar_close() ends it. */
void liar_dial(struct liar *l, struct weft_iface *iface,
	       const struct weft_address *addr, uint32_t number);
/* All that an honest one sends before it may be used. */
void liar_join(struct liar *l);
void liar_table(struct liar *l);
void liar_marks(struct liar *l);
void liar_close(struct liar *l);
/* A frame with one descriptor, or @fd -1: none.  0 when it was sent whole. */
int liar_frame(struct liar *l, struct nvl_frame *f, int fd);
/* The same with several. */
int liar_frame_fds(struct liar *l, struct nvl_frame *f, const int *fds,
		   unsigned int nfds);
/* Takes what came. */
void liar_read(struct liar *l);
/* A key for @size bytes at @base, all of them one living allocation. */
struct nvl_key liar_pack(const struct liar *l, uint64_t base, uint64_t size);

#endif

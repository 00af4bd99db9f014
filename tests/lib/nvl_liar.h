/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the NVLink device that has proven itself and then says what its
 * user wants: by records, counters and frames, on host memory.
 */
#ifndef WEFT_TESTS_NVL_LIAR_H
#define WEFT_TESTS_NVL_LIAR_H

#include "devices/device.h"
#include "devices/nvlink/nvl_proto.h"
#include "devices/region.h"
#include "util/clock.h"

#define LIAR_WAIT_MS 30000

struct liar {
	struct weft_iface *iface; /* whom it lies to */
	int fd;
	uint8_t *theirs, *ours;	    /* inboxes; theirs is what we fill */
	uint64_t op_tail, msg_tail; /* the victim's */
	int ring_fd;		    /* of the ring we were offered; -1 */
	uint8_t ring;
	uint64_t ring_pos;
	unsigned int frames[NVL_FRAME_TYPES]; /* that came */
};

extern const uint8_t liar_key[WEFT_KEY_LEN];

/*
 * Whom they lie to: an interface of a process without a GPU that says nothing,
 * and memory that peers may write to.
 */
struct liar_victim {
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	struct weft_mem *mem;
	struct weft_rkey key;
	struct weft_address liar; /* for its endpoint towards them */
};
/* Calls that @cb leaves out do nothing. */
void liar_victim_open(struct liar_victim *v, const struct weft_iface_cb *cb,
		      void *buf, size_t len);

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
/*
 * Dials the @number-th time, proves itself and sends its inbox; 0, or -errno
 * when the other side has hung up.  @mine: the inbox to send; -1: a proper one.
 * liar_close() in any case.
 */
int liar_dial(struct liar *l, struct weft_iface *iface,
	      const struct weft_address *addr, uint32_t number, int mine);
void liar_close(struct liar *l);
/* 0 when it was sent whole. */
int liar_frame(struct liar *l, struct nvl_frame *f, const int *fds,
	       unsigned int nfds);
/* Takes what came; a host ring that is offered is accepted. */
void liar_read(struct liar *l);
/* Asks for a ring to host memory and waits for it; false: none came. */
bool liar_ring(struct liar *l);
void liar_op(struct liar *l, const struct nvl_op *op);
void liar_message(struct liar *l, const struct nvl_msg *m, const void *data,
		  size_t len);

static inline struct nvl_inbox_head *liar_head(uint8_t *inbox)
{
	return (struct nvl_inbox_head *)inbox;
}

#endif

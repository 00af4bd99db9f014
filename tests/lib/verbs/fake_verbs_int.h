/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of the fake share. */
#ifndef WEFT_TESTS_FAKE_VERBS_INT_H
#define WEFT_TESTS_FAKE_VERBS_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/lib/verbs/fake_verbs.h"
#include "util/drivers/verbs.h"

#define FAKE_DEVICES  2
#define FAKE_CONTEXTS 16
#define FAKE_QPS      4096
#define FAKE_MRS      16384
#define FAKE_CQS      64
#define FAKE_CQE      32768
#define FAKE_SQ	      128
#define FAKE_RQ	      32
#define FAKE_INLINE   64
#define FAKE_UNPOLLED 4 /* completions of a queue pair ahead of a poll */

struct fake_wr {
	struct ibv_send_wr wr; /* its lists are copied below */
	struct ibv_sge sge;
	bool has_sge, executed;
	enum ibv_wc_status status;
	uint32_t done; /* bytes moved so far */
	uint8_t data[FAKE_INLINE];
};

struct fake_rr {
	uint64_t wr_id;
	struct ibv_sge sge;
};

struct fake_sqp {
	bool used;
	pid_t pid;
	int ctx; /* of the owner: its number there */
	unsigned int dev, pd;
	enum ibv_qp_state state;
	uint32_t qpn, dest_qpn, sq_psn, rq_psn;
	unsigned int dest; /* its GID's last byte, or its LID */
	unsigned int scq, rcq, max_send, max_recv, max_inline;
	unsigned int sq_head, sq_n, rq_head, rq_n, unpolled;
	struct fake_wr sq[FAKE_SQ];
	struct fake_rr rq[FAKE_RQ];
};

struct fake_smr {
	bool used;
	pid_t pid;
	unsigned int pd;
	uint32_t key;
	uint64_t addr, len;
	int access;
};

struct fake_cqe {
	struct ibv_wc wc;
	uint32_t qp; /* whose unpolled it counts in, + 1 */
};

struct fake_scq {
	bool used, armed, ring; /* ring: notify its owner */
	bool broken;		/* nothing comes any more */
	pid_t pid;
	int ctx;
	unsigned int size, head, n, users;
	struct fake_cqe cqe[FAKE_CQE];
};

struct fake_shared {
	pthread_mutex_t lock;  /* robust: its holder may be killed */
	_Atomic uint32_t kick; /* futex: something changed */
	bool cut;
	int next_status; /* of a READ or WRITE, not a SEND */
	int all_status;
	struct fake_verbs_path path;
	unsigned int immediates, inlines;
	bool infiniband[FAKE_DEVICES], grh[FAKE_DEVICES];
	uint32_t next_pd;
	unsigned int qp_end; /* none was used from here on */
	struct fake_sqp qp[FAKE_QPS];
	struct fake_smr mr[FAKE_MRS];
	struct fake_scq cq[FAKE_CQS];
};

extern struct fake_shared *fake_shm;
void fake_lock(void);
void fake_unlock(void);
void fake_kick(void);

struct fake_channel {
	struct ibv_comp_channel base;
	int in; /* what base.fd reads from; -1: cut */
	unsigned int users;
};

struct fake_cq {
	struct ibv_cq base;
	unsigned int index;	     /* in fake_shm->cq */
	_Atomic unsigned int events; /* not fetched yet */
	_Atomic bool unacked;	     /* an asynchronous event of it */
};

struct fake_context {
	struct ibv_context base;
	int number;
	unsigned int dev, users;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic unsigned int down, up; /* events not fetched yet */
	_Atomic int other;	       /* another one, + 1 */
	struct fake_cq *failed;	       /* what IBV_EVENT_CQ_ERR is of */
	_Atomic unsigned int asked;    /* for events */
	struct fake_cq *cqs[FAKE_CQS];
};

extern struct fake_verbs_live fake_live;
extern struct fake_context *fake_contexts[FAKE_CONTEXTS];
extern const struct weft_verbs fake_table;
/* fake_verbs_mem.c */
struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			   int access);
int fake_dereg_mr(struct ibv_mr *mr);
/* Is this the call that is to fail?  Sets errno. */
bool fake_fails(const char *name);
/* Too many to count: fail these only by name. */
bool fake_fails_named(const char *name);

/* fake_verbs_wire.c */
void *fake_wire_thread(void *context);
void fake_complete(struct fake_sqp *qp, unsigned int cq, bool send,
		   const struct ibv_wc *wc);
struct fake_smr *fake_mr_find(uint32_t key);

#endif

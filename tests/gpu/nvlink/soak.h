/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The soak of the NVLink device, in the order in which to read: nvlink_soak.c,
 * which starts and ends the processes; soak_life.c, one of them; soak_peers.c,
 * its endpoints; soak_jobs.c, the puts and gets; soak_notes.c, the notes that
 * say what to do with which memory, in memory that all inherit; soak_memory.c.
 */
#ifndef WEFT_TESTS_GPU_SOAK_H
#define WEFT_TESTS_GPU_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/common/ep.h"
#include "devices/nvlink/nvl.h"

#define RANKS	3
#define KINDS	3	    /* of memory */
#define SIZE	(4ul << 20) /* two of the fake driver's parts */
#define POISON	7u	    /* seed of what was never written */
#define STUCK_S 60.0
#define QUEUE	64u

enum what {
	REGION = 1, /* here is memory of mine, of this kind and key */
	CHECK,	    /* look at what I have put into it... */
	FILL,	    /* fill it, I am going to get it... */
	EMPTY,	    /* nor do I need it any more... */
	READY,	    /* done */
};

struct note {
	uint32_t seq, life, to; /* lives of both */
	uint8_t what, kind;
	uint64_t off, len, seed;
	uint64_t addr;
	uint8_t key[WEFT_RKEY_MAX];
};

/* What all processes see. */
extern struct board {
	struct {
		struct weft_address addr;
		_Atomic unsigned int life; /* of @addr; 0: none yet */
		/* on its way out: errors are expected of it from now on */
		_Atomic bool leaves;
		_Atomic unsigned long puts, gets, notes;
	} rank[RANKS];
	/* the life of the second one to which the first has an endpoint */
	_Atomic unsigned int met[RANKS][RANKS];
	_Atomic bool stop;
	_Atomic unsigned int arrived[RANKS]; /* at barriers */
	/* notes of the first one for the second */
	struct box {
		_Atomic unsigned int head, tail;
		struct note note[QUEUE];
	} box[RANKS][RANKS];
} * board;

/* ---- this process -------------------------------------------------------- */

struct memory {
	unsigned int kind;
	char *p;
	struct weft_mem *mem;
};

enum state { IDLE, PUTTING, CHECKING, FILLING, GETTING, EMPTYING };

/* What this process does with one region of a peer. */
struct job {
	struct weft_op op;
	struct peer *peer;
	enum state state;
	bool done, ready;
	int status;
	double began;
	struct memory local;
	struct there {
		uint64_t addr; /* 0: not known yet */
		uint8_t key[WEFT_RKEY_MAX];
	} there, next; /* used now, and by what starts next */
	size_t off, len;
	uint64_t seed;
};

extern struct peer {
	int rank;
	unsigned int life; /* met, or failed to */
	struct weft_ep *ep;
	bool failed;
	uint32_t sent, received;
	struct job job[KINDS];
	struct memory mine[KINDS]; /* for its use */
	struct note queue[QUEUE];
	unsigned int head, tail;
	unsigned long put_bytes, get_bytes;
} peers[RANKS];

static const struct weft_dev_ops *const ops = &weft_nvlink_ops;
extern struct weft_iface *iface;
extern int me;
extern uint32_t rnd_state;

double now(void);
uint32_t rnd(uint32_t below);
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));

/* A life of @rank, in a process of its own; its exit status. */
int live(int rank, unsigned int life, uint32_t seed);

/* ---- soak_peers.c -------------------------------------------------------- */

extern const struct weft_iface_cb peer_callbacks;
void step_peer(struct peer *p);
/* Is its process on its way out, or gone? */
bool is_leaving(const struct peer *p);
/* Have both met, and is nothing under way or waiting? */
bool is_idle(const struct peer *p);

/* ---- soak_jobs.c --------------------------------------------------------- */

void step_job(struct job *job);
/* All of the endpoint's: nothing lands here once they are. */
void cancel_jobs(struct peer *p);
const struct nvl_conn *conn_of(const struct peer *p);

/* ---- soak_notes.c -------------------------------------------------------- */

struct note *queue_note(struct peer *p, enum what what, unsigned int kind);
void queue_region(struct peer *p, unsigned int kind);
void send_notes(struct peer *p);
void take_notes(struct peer *p);

/* ---- soak_memory.c ------------------------------------------------------- */

void mem_open(struct memory *m, unsigned int kind);
void mem_close(struct memory *m);
void mem_fill(struct memory *m, size_t off, size_t len, uint64_t seed);
/* [@off, @off + @len) has @seed's, and its surroundings what they had. */
void mem_check_all(struct memory *m, size_t off, size_t len, uint64_t seed,
		   const char *what);
/* It has POISON, and keeps it. */
void mem_stays_clear(struct memory *m, const char *what);
/* Registers it again; nothing lands after its release. */
void mem_renew(struct memory *m);

#endif

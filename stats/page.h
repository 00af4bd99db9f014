/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page of counters that a process shares in its run folder, for `weft
 * status` to read: c-<random>, 0600, flocked as long as the process lives, of
 * one fixed size and layout.  The process only writes to it, and never maps or
 * reads it: others that write to the folder may cut it short or change it, so a
 * reader checks it.
 */
#ifndef WEFT_STATS_PAGE_H
#define WEFT_STATS_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/log.h"

/*
 * X(name, help): payload bytes are the caller's, wire bytes include headers.
 * tx_message_bytes + tx_put_bytes + tx_get_bytes of one side equal
 * rx_message_bytes + rx_put_bytes + get_bytes of the other, except for gets of
 * weft_ib: there the adapter answers, and tx_gets does not count.
 */
#define WEFT_COUNTERS(X)                                              \
	X(tx_messages, "messages sent")                               \
	X(tx_message_bytes, "payload bytes of messages sent")         \
	X(rx_messages, "messages delivered")                          \
	X(rx_message_bytes, "payload bytes of messages delivered")    \
	X(tx_puts, "puts completed at their source")                  \
	X(tx_put_bytes, "payload bytes of puts completed")            \
	X(rx_puts, "puts of the peer placed here")                    \
	X(rx_put_bytes, "payload bytes of puts placed")               \
	X(gets, "gets completed")                                     \
	X(get_bytes, "payload bytes of gets completed")               \
	X(tx_gets, "gets of the peer answered")                       \
	X(tx_get_bytes, "payload bytes of gets answered")             \
	X(wire_tx_bytes, "bytes given to the wire, headers included") \
	X(wire_rx_bytes, "bytes taken from the wire")                 \
	X(key_errors, "pieces refused because of their key")          \
	X(streams_max, "most bulk streams open at once")              \
	X(streams_given_up, "bulk streams far slower than their siblings")

struct weft_counters {
#define X(name, help) _Atomic uint64_t name;
	WEFT_COUNTERS(X)
#undef X
};

#define WEFT_PAGE_MAGIC	  0x6567617074666577 /* "weftpage" */
#define WEFT_PAGE_VERSION 2		     /* of all that follows */
#define WEFT_PAGE_ROWS	  1024

struct weft_page_head {
	uint64_t magic;
	uint32_t version;
	uint32_t head_size;
	uint32_t row_size;
	uint32_t rows;
	uint64_t pid;	  /* as the process itself sees it */
	uint64_t pid_ns;  /* the inode of that PID namespace */
	uint64_t since_s; /* both in seconds since 1970 */
	uint64_t message_s;
	uint64_t errors;   /* messages of that level */
	uint32_t used;	   /* no row behind these was ever taken */
	uint32_t unlisted; /* peers for which there was no row */
	char runtime[16];
	char program[32];
	char host[64];
	char introduced[40]; /* as what NCCL is, WEFT_SAMEHOST_ID; "": not */
	char message[288];   /* the last one of weft's */
};

/* One peer of one interface; the texts end with a zero. */
struct weft_page_row {
	uint64_t serial; /* identifies the user of the row; 0: free */
	uint64_t id;	 /* of the interface */
	uint64_t peer;	 /* of the peer's interface */
	char device[15];
	uint8_t barrier; /* enum weft_barrier (stats/neighbour.h) */
	char netdev[64];
	char where[80];
	struct weft_counters c;
};

#define WEFT_PAGE_SIZE                   \
	(sizeof(struct weft_page_head) + \
	 WEFT_PAGE_ROWS * sizeof(struct weft_page_row))

_Static_assert(sizeof(struct weft_page_head) == 512, "part of the layout");
_Static_assert(sizeof(struct weft_page_row) == 320, "part of the layout");

/*
 * The calls down to weft_page_leave() are for stats/stats.c, whose lock is
 * held.
 *
 * A user of this process's page, which is created for the first one if
 * possible, and removed with the last one.
 */
void weft_page_open(const char *runtime);
void weft_page_close(void);
/* In a forked child: the page is its parent's. */
void weft_page_forget(void);

/* Shows @row, with its counters at each weft_page_write(), until it is hidden.
 */
void weft_page_show(struct weft_page_row *row);
void weft_page_hide(struct weft_page_row *row);
/*
 * Writes what has changed; had anything?  What cannot be written is tried the
 * next time.
 */
bool weft_page_write(void);
void weft_page_introduced(const char *id);
/* Takes a message that weft has logged, and writes it; it logs nothing. */
void weft_page_note(enum weft_level level, const char *text);

/* At the end of the process: removes the file. */
void weft_page_leave(void);

/* What `ps` calls this process. */
void weft_page_program(char *to, size_t len);

/*
 * For readers: is it a head of this layout?  If not, @why is the reason, in
 * which "it" is the page.
 */
bool weft_page_head_ok(const struct weft_page_head *page, const char **why);

#endif

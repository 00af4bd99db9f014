/* SPDX-License-Identifier: BSD-3-Clause */
/* An owner of memory, and a peer in another process that does as it is bid. */
#ifndef WEFT_TESTS_UNIT_NVL_HANDLE_H
#define WEFT_TESTS_UNIT_NVL_HANDLE_H

#include <sys/types.h>

#include "tests/unit/devices/nvlink/nvl_mapped.h"

#define OPEN  "cuIpcOpenMemHandle_v2"
#define CLOSE "cuIpcCloseMemHandle"

enum command {
	NONE,
	PUT,
	GET,
	REACHES,
	REFUSE,
	FAIL_ONCE,
	STALL,
	MAP,
	OTHER,
	REPORT,
};

/* The peer's memory: of each context. */
enum { GPU_0, GPU_1, GREEN_0, FROMS };

/* What the owner has the peer do, and what came of it. */
extern struct shared {
	volatile int command, ready;
	struct weft_address addr;
	uint8_t key[WEFT_RKEY_MAX];
	uint64_t to;
	size_t len;
	int from, seed, status;
	struct weft_cu_ipc handle;
	unsigned int opened, open, mapped;
	bool right;
} * sh;

extern pid_t peer;

void nvl_handle_end(void);
void have_peer(void);
/* Waits until the peer has done it. */
void command(enum command what);
/* What the next command is about. */
void name(uint8_t *at, size_t len, const uint8_t *packed);
/* 0, and every byte is there, or why not. */
int put_there(uint8_t *at, size_t len, const uint8_t *packed);
void expect_put(uint8_t *at, size_t len, const uint8_t *packed, int status);
/* Allocates and registers @to. */
void own(size_t len);
/* Has the peer nothing mapped? */
bool is_closed(void);
/* May the peer put with this key? */
int reaches(const uint8_t *packed);

#endif

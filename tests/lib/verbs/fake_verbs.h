/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verbs without an adapter: a table for weft_verbs_set(), two RoCE devices,
 * fake0 and fake1, on one fabric, and the sysfs that shows them.
 *
 * All of it lies in memory that processes share which fork after
 * fake_verbs_begin(), so that a peer may be killed.  A thread per opened
 * device executes requests, late and in an order of its own between queue
 * pairs, and bulk stops ahead of completions that are not polled.  It refuses
 * what adapters refuse: a key or a range that is not registered ends both queue
 * pairs, a SEND without a receive buffer ends them too, objects in use are not
 * destroyed, states are not skipped, RoCE wants a GID and InfiniBand a LID.
 * Completions of a destroyed queue pair stay in the queue.  A peer that is not
 * there is no error (it is retried), as with an adapter that never gives up.
 */
#ifndef WEFT_TESTS_FAKE_VERBS_H
#define WEFT_TESTS_FAKE_VERBS_H

#include <stdbool.h>
#include <stddef.h>

struct fake_verbs_live {
	unsigned int contexts, pds, mrs, channels, cqs, qps;
};

/* Sets the table, and weft_sysfs_root to a folder that end() removes. */
void fake_verbs_begin(void);
void fake_verbs_end(void);
/*
 * In a library in libibverbs' place: shares what lies in file @path with all
 * that do so, too; the sysfs is the caller's.
 */
void fake_verbs_attach(const char *path);

/*
 * The @n-th call of any kind from now on (1: the next) fails; 0: none.  Calls
 * that give something back tell an error, and have done it, as those of a
 * device that was taken out; poll_cq and req_notify_cq are not counted.
 */
void fake_verbs_fail(unsigned int n);
/* The next call of this name fails. */
void fake_verbs_fail_call(const char *name);
/* How many were made since fake_verbs_fail(), and which one was to fail. */
unsigned int fake_verbs_calls(void);
const char *fake_verbs_failed(void);

void fake_verbs_live(struct fake_verbs_live *live);

/*
 * Another GID, written as sysfs does, for @device (0 or 1), which is on
 * InfiniBand from now on unless @roce.  Its last byte stays @device + 1.
 */
void fake_verbs_gid(unsigned int device, bool roce, const char *gid);

/* On InfiniBand, @device wants a global route header from now on. */
void fake_verbs_grh(unsigned int device);

/* One more, of RoCE v2; what is missing before it is empty. */
void fake_verbs_add_gid(unsigned int device, unsigned int index,
			const char *gid);

/* An entry of its table of partition keys. */
void fake_verbs_pkey(unsigned int device, unsigned int index, unsigned int key);
/* How the last queue pair was connected. */
struct fake_verbs_path {
	unsigned int timeout, retries, service_level, traffic_class, mtu;
	unsigned int pkey_index, gid_index, access, hop_limit;
};
void fake_verbs_path(struct fake_verbs_path *path);

/* Immediates that were delivered since fake_verbs_begin(). */
unsigned int fake_verbs_immediates(void);

/* SENDs whose bytes were inside the request. */
unsigned int fake_verbs_inlines(void);

/*
 * The device reports this (enum ibv_event_type), and goes on; but the oldest
 * completion queue here, of which IBV_EVENT_CQ_ERR is, has none any more.
 */
void fake_verbs_event(unsigned int device, int type);
/*
 * The device is taken out: its context's and channels' descriptors poll an
 * error from now on, and there is nothing to be read from them.
 */
void fake_verbs_unplug(unsigned int device);
/* How often the device was asked for an event. */
unsigned int fake_verbs_asked(unsigned int device);
/* Port events as an adapter reports them; traffic stops meanwhile. */
void fake_verbs_link(bool up);
/* Nothing passes any more, without any event. */
void fake_verbs_cut(bool cut);
/* The next READ or WRITE that has bytes completes so (enum ibv_wc_status). */
void fake_verbs_next_status(int status);
/* Every request does, until this is called with 0. */
void fake_verbs_all_status(int status);

#endif

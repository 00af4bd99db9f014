/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hello: what two processes say before anything else is believed.
 *
 *   dialer   -> HELLO    magic, version range, nonce, its own address key id,
 *                        purpose (16 caller bytes)
 *   listener -> CHALLENGE version chosen, nonce, proof that it has the
 *                        listener's key
 *   dialer   -> PROOF    proof that it has its own address's key (checked by
 *                        the listener once it learns that key,
 *                        weft_hello_owns()); proof that it has the listener's
 *   listener -> VERDICT  accepted, or why not
 *
 * A proof is a keyed BLAKE2b (libsodium's crypto_generichash) of the whole
 * transcript and of the role, keyed with the listener's key and, where there
 * is a job secret, with that.  The state machine does no I/O: bytes in, bytes
 * out; so every device and every kind of socket uses it.  It never blocks,
 * allocates nothing, and reads no byte past what the message takes.
 */
#ifndef WEFT_BOOTSTRAP_HELLO_H
#define WEFT_BOOTSTRAP_HELLO_H

#include "bootstrap/address.h"

#define WEFT_HELLO_PURPOSE 16 /* bytes that travel for the caller */
#define WEFT_HELLO_MAX	   96 /* no message is longer */

enum weft_hello_verdict {
	WEFT_HELLO_ACCEPTED = 0,
	WEFT_HELLO_YIELD = 1, /* simultaneous dial: the listener's stays */
	WEFT_HELLO_BUSY = 2,  /* no room; try again later */
};

enum weft_hello_state {
	WEFT_HELLO_SENDING, /* out[] holds bytes to be written */
	WEFT_HELLO_READING, /* needs `want` bytes in in[] */
	WEFT_HELLO_DECIDE,  /* listener: dialer proven, call _verdict() */
	WEFT_HELLO_DONE,    /* both sides proven, verdict known */
	WEFT_HELLO_FAILED,  /* close; err says why */
};

struct weft_hello {
	enum weft_hello_state state;
	int err; /* -EPROTO: garbage, -EPROTONOSUPPORT: no
		    common version, -EACCES: wrong key;
		    else reading the job secret or random
		    numbers failed */
	uint8_t step;
	bool dialer;
	uint8_t version; /* the common wire version */
	enum weft_hello_verdict verdict;
	uint64_t peer_id; /* weft_key_id() of the other side */
	uint8_t purpose[WEFT_HELLO_PURPOSE]; /* listener: the dialer's */
	const uint8_t *key;	/* the listener's; borrowed until done */
	const uint8_t *own_key; /* the dialer's; borrowed until done */
	uint8_t transcript[32];
	uint8_t owner_proof[16];
	uint8_t peer_min, peer_max; /* the peer's version range */
	size_t out_len, out_done;   /* bytes to write, written by caller */
	size_t want, have;	    /* bytes to read, read by caller */
	uint8_t out[WEFT_HELLO_MAX];
	uint8_t in[WEFT_HELLO_MAX];
};

/*
 * The caller's loop, for both sides:
 *   SENDING: write out[out_done..out_len), and call weft_hello_moved()
 *   READING: read at most want-have bytes to in+have, and call
 *            weft_hello_moved()
 *   DECIDE:  (listener) weft_hello_verdict(h, v); goes to SENDING
 */
void weft_hello_dial(struct weft_hello *h, const uint8_t *listener_key,
		     const uint8_t *own_key,
		     const uint8_t purpose[WEFT_HELLO_PURPOSE]);
void weft_hello_listen(struct weft_hello *h, const uint8_t *listener_key);
/* @n more bytes were written or read. */
void weft_hello_moved(struct weft_hello *h, size_t n);
/* All that is wanted was. */
void weft_hello_step(struct weft_hello *h);
void weft_hello_verdict(struct weft_hello *h, enum weft_hello_verdict v);

/* Listener, in DECIDE or after DONE: has the dialer proven the key @key? */
bool weft_hello_owns(const struct weft_hello *h, const uint8_t *key);

#endif

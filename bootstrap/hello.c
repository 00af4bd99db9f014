/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "bootstrap/hello.h"
#include "settings/settings.h"
#include "util/hash.h"
#include "util/util.h"

/*
 * Every message starts with a header of 8 bytes:
 *   0 magic "WEFT"   4 type   5 its whole length   6, 7 two bytes by type
 * A HELLO may be longer than this build knows: the rest is hashed and ignored,
 * so that a newer peer is refused by version and not as garbage.
 */
enum {
	HDR_TYPE = 4,
	HDR_LEN = 5,
	HDR_A = 6,
	HDR_B = 7,
	HDR_SIZE = 8,
};

enum type {
	TYPE_HELLO = 1,	    /* A, B: version range; nonce, id, purpose */
	TYPE_CHALLENGE = 2, /* A, B: version range; nonce, proof */
	TYPE_PROOF = 3,	    /* A: chosen version; owner's proof, proof */
	TYPE_VERDICT = 4,   /* A: verdict; proof */
	TYPE_REFUSAL = 5,   /* A, B: version range; nothing more */
};

#define NONCE_LEN 16
#define PROOF_LEN 16

enum {
	HELLO_NONCE = HDR_SIZE,
	HELLO_ID = HELLO_NONCE + NONCE_LEN,
	HELLO_PURPOSE = HELLO_ID + 8,
	HELLO_LEN = HELLO_PURPOSE + WEFT_HELLO_PURPOSE,

	CHALLENGE_NONCE = HDR_SIZE,
	CHALLENGE_PROOF = CHALLENGE_NONCE + NONCE_LEN,
	CHALLENGE_LEN = CHALLENGE_PROOF + PROOF_LEN,

	PROOF_OWNER = HDR_SIZE,
	PROOF_PROOF = PROOF_OWNER + PROOF_LEN, /* covers the owner's */
	PROOF_ALL = PROOF_PROOF + PROOF_LEN,

	VERDICT_PROOF = HDR_SIZE,
	VERDICT_LEN = VERDICT_PROOF + PROOF_LEN,
};
_Static_assert(HELLO_LEN <= WEFT_HELLO_MAX, "a hello fits");
_Static_assert(CHALLENGE_LEN <= WEFT_HELLO_MAX, "a challenge fits");

/* The message being sent or awaited. */
enum step {
	STEP_HELLO,
	STEP_CHALLENGE,
	STEP_PROOF,
	STEP_VERDICT,
	STEP_REFUSAL, /* sent only; the connection ends with it */
};

static const char magic[4] = { 'W', 'E', 'F', 'T' };

static void fail_hello(struct weft_hello *h, int err)
{
	h->state = WEFT_HELLO_FAILED;
	h->err = err;
	h->key = h->own_key = NULL;
}

static void hash_transcript(const uint8_t transcript[32], const uint8_t *msg,
			    size_t len, uint8_t out[32])
{
	const struct weft_bytes parts[] = { { transcript, 32 }, { msg, len } };

	weft_hash(out, 32, NULL, 0, parts, ARRAY_SIZE(parts));
}

static void hash_message(struct weft_hello *h, const uint8_t *msg, size_t len)
{
	hash_transcript(h->transcript, msg, len, h->transcript);
}

/*
 * PROOF_LEN bytes that prove possession of @key, and of the job secret if there
 * is one, in this handshake and this role.
 */
static int make_proof(const uint8_t transcript[32], const uint8_t *key,
		      char role, uint8_t out[PROOF_LEN])
{
	struct weft_bytes parts[2] = { { "weft hello 1", 12 } };
	const uint8_t *secret;
	uint8_t both[32];
	size_t len;
	int err;

	err = weft_settings_secret(&secret, &len);
	if (err)
		return err;
	parts[1] = (struct weft_bytes){ secret, len };
	weft_hash(both, sizeof(both), key, WEFT_KEY_LEN, parts, 2);
	parts[0] = (struct weft_bytes){ &role, 1 };
	parts[1] = (struct weft_bytes){ transcript, 32 };
	weft_hash(out, PROOF_LEN, both, sizeof(both), parts, 2);
	weft_wipe(both, sizeof(both));
	return 0;
}

/* 0, -EACCES, or the error of the job secret. */
static int check_proof(const uint8_t transcript[32], const uint8_t *key,
		       char role, const uint8_t *proof)
{
	uint8_t expected[PROOF_LEN];
	const int err = make_proof(transcript, key, role, expected);

	if (err)
		return err;
	return weft_hash_equal(expected, proof, PROOF_LEN) ? 0 : -EACCES;
}

static void write_header(struct weft_hello *h, enum type type, size_t len,
			 uint8_t a, uint8_t b)
{
	memset(h->out, 0, sizeof(h->out));
	memcpy(h->out, magic, sizeof(magic));
	h->out[HDR_TYPE] = type;
	h->out[HDR_LEN] = (uint8_t)len;
	h->out[HDR_A] = a;
	h->out[HDR_B] = b;
	h->out_len = len;
	h->out_done = 0;
	h->state = WEFT_HELLO_SENDING;
}

static void expect_message(struct weft_hello *h, enum step step)
{
	h->step = step;
	h->have = 0;
	h->want = HDR_SIZE;
	h->state = WEFT_HELLO_READING;
}

/* The highest common version; 0: none. */
static uint8_t choose_version(uint8_t min, uint8_t max)
{
	if (!min || max < min || min > WEFT_WIRE_MAX || max < WEFT_WIRE_MIN)
		return 0;
	return max < WEFT_WIRE_MAX ? max : WEFT_WIRE_MAX;
}

static bool init_hello(struct weft_hello *h, const uint8_t *listener_key,
		       bool dialer)
{
	const uint8_t *secret;
	size_t len;
	int err;

	memset(h, 0, sizeof(*h));
	h->dialer = dialer;
	h->key = listener_key;
	err = weft_settings_secret(&secret, &len);
	if (err)
		fail_hello(h, err);
	return !err;
}

void weft_hello_dial(struct weft_hello *h, const uint8_t *listener_key,
		     const uint8_t *own_key,
		     const uint8_t purpose[WEFT_HELLO_PURPOSE])
{
	const uint64_t id = weft_key_id(own_key);
	int i, err;

	if (!init_hello(h, listener_key, true))
		return;
	h->own_key = own_key;
	h->peer_id = weft_key_id(listener_key);
	memcpy(h->purpose, purpose, WEFT_HELLO_PURPOSE);
	write_header(h, TYPE_HELLO, HELLO_LEN, WEFT_WIRE_MIN, WEFT_WIRE_MAX);
	h->step = STEP_HELLO;
	err = weft_random(h->out + HELLO_NONCE, NONCE_LEN);
	if (err) {
		fail_hello(h, err);
		return;
	}
	for (i = 0; i < 8; i++)
		h->out[HELLO_ID + i] = (uint8_t)(id >> (8 * i));
	memcpy(h->out + HELLO_PURPOSE, purpose, WEFT_HELLO_PURPOSE);
	hash_message(h, h->out, h->out_len);
}

void weft_hello_listen(struct weft_hello *h, const uint8_t *listener_key)
{
	if (init_hello(h, listener_key, false))
		expect_message(h, STEP_HELLO);
}

/* Check that the header in in[] is the expected one; set want to its length. */
static int parse_header(struct weft_hello *h)
{
	static const struct {
		uint8_t type, len;
	} expected[] = {
		[STEP_HELLO] = { TYPE_HELLO, HELLO_LEN },
		[STEP_CHALLENGE] = { TYPE_CHALLENGE, CHALLENGE_LEN },
		[STEP_PROOF] = { TYPE_PROOF, PROOF_ALL },
		[STEP_VERDICT] = { TYPE_VERDICT, VERDICT_LEN },
	};
	const uint8_t type = h->in[HDR_TYPE], len = h->in[HDR_LEN];

	if (memcmp(h->in, magic, sizeof(magic)))
		return -EPROTO;
	if (h->step == STEP_CHALLENGE && type == TYPE_REFUSAL) {
		if (len != HDR_SIZE)
			return -EPROTO;
		h->peer_min = h->in[HDR_A];
		h->peer_max = h->in[HDR_B];
		return -EPROTONOSUPPORT;
	}
	if (type != expected[h->step].type)
		return -EPROTO;
	if (h->step == STEP_HELLO ? len < HELLO_LEN || len > WEFT_HELLO_MAX
				  : len != expected[h->step].len)
		return -EPROTO;
	h->want = len;
	return 0;
}

static void handle_hello(struct weft_hello *h)
{
	int i, err;

	h->peer_min = h->in[HDR_A];
	h->peer_max = h->in[HDR_B];
	hash_message(h, h->in, h->want);
	h->version = choose_version(h->peer_min, h->peer_max);
	if (!h->version) {
		write_header(h, TYPE_REFUSAL, HDR_SIZE, WEFT_WIRE_MIN,
			     WEFT_WIRE_MAX);
		h->step = STEP_REFUSAL;
		return;
	}
	for (i = 7; i >= 0; i--)
		h->peer_id = h->peer_id << 8 | h->in[HELLO_ID + i];
	memcpy(h->purpose, h->in + HELLO_PURPOSE, WEFT_HELLO_PURPOSE);

	write_header(h, TYPE_CHALLENGE, CHALLENGE_LEN, WEFT_WIRE_MIN,
		     WEFT_WIRE_MAX);
	h->step = STEP_CHALLENGE;
	err = weft_random(h->out + CHALLENGE_NONCE, NONCE_LEN);
	if (err) {
		fail_hello(h, err);
		return;
	}
	hash_message(h, h->out, CHALLENGE_PROOF);
	err = make_proof(h->transcript, h->key, 'L', h->out + CHALLENGE_PROOF);
	if (err)
		fail_hello(h, err);
}

static void handle_challenge(struct weft_hello *h)
{
	uint8_t t[32];
	int err;

	h->peer_min = h->in[HDR_A];
	h->peer_max = h->in[HDR_B];
	h->version = choose_version(h->peer_min, h->peer_max);
	if (!h->version) {
		fail_hello(h, -EPROTONOSUPPORT);
		return;
	}
	hash_message(h, h->in, CHALLENGE_PROOF);
	err = check_proof(h->transcript, h->key, 'L', h->in + CHALLENGE_PROOF);
	if (err) {
		fail_hello(h, err);
		return;
	}
	write_header(h, TYPE_PROOF, PROOF_ALL, h->version, 0);
	h->step = STEP_PROOF;
	hash_message(h, h->out, PROOF_OWNER);
	err = make_proof(h->transcript, h->own_key, 'O', h->out + PROOF_OWNER);
	if (!err) {
		hash_transcript(h->transcript, h->out + PROOF_OWNER, PROOF_LEN,
				t);
		err = make_proof(t, h->key, 'D', h->out + PROOF_PROOF);
	}
	if (err)
		fail_hello(h, err);
}

static void handle_proof(struct weft_hello *h)
{
	uint8_t t[32];
	int err;

	if (h->in[HDR_A] != h->version || h->in[HDR_B]) {
		fail_hello(h, -EPROTO);
		return;
	}
	hash_message(h, h->in, PROOF_OWNER);
	hash_transcript(h->transcript, h->in + PROOF_OWNER, PROOF_LEN, t);
	err = check_proof(t, h->key, 'D', h->in + PROOF_PROOF);
	if (err) {
		fail_hello(h, err);
		return;
	}
	memcpy(h->owner_proof, h->in + PROOF_OWNER, PROOF_LEN);
	h->state = WEFT_HELLO_DECIDE;
}

/*
 * The verdict's proof covers a separate transcript: weft_hello_owns() needs
 * h->transcript as it was when the owner's proof was made.
 */
static int make_verdict_proof(const struct weft_hello *h, const uint8_t *header,
			      uint8_t out[PROOF_LEN])
{
	uint8_t t[32];

	hash_transcript(h->transcript, header, HDR_SIZE, t);
	return make_proof(t, h->key, 'V', out);
}

static void handle_verdict(struct weft_hello *h)
{
	uint8_t expected[PROOF_LEN];
	int err;

	err = make_verdict_proof(h, h->in, expected);
	if (!err &&
	    !weft_hash_equal(expected, h->in + VERDICT_PROOF, PROOF_LEN))
		err = -EACCES;
	if (!err && (h->in[HDR_A] > WEFT_HELLO_BUSY || h->in[HDR_B]))
		err = -EPROTO;
	if (err) {
		fail_hello(h, err);
		return;
	}
	h->verdict = h->in[HDR_A];
	h->key = h->own_key = NULL;
	h->state = WEFT_HELLO_DONE;
}

void weft_hello_verdict(struct weft_hello *h, enum weft_hello_verdict v)
{
	int err;

	if (h->state != WEFT_HELLO_DECIDE)
		return;
	h->verdict = v;
	write_header(h, TYPE_VERDICT, VERDICT_LEN, (uint8_t)v, 0);
	h->step = STEP_VERDICT;
	err = make_verdict_proof(h, h->out, h->out + VERDICT_PROOF);
	if (err)
		fail_hello(h, err);
}

static void handle_sent(struct weft_hello *h)
{
	switch ((enum step)h->step) {
	case STEP_HELLO:
		expect_message(h, STEP_CHALLENGE);
		break;
	case STEP_CHALLENGE:
		expect_message(h, STEP_PROOF);
		break;
	case STEP_PROOF:
		expect_message(h, STEP_VERDICT);
		break;
	case STEP_VERDICT:
		h->key = NULL;
		h->state = WEFT_HELLO_DONE;
		break;
	case STEP_REFUSAL:
		fail_hello(h, -EPROTONOSUPPORT);
		break;
	}
}

static void handle_received(struct weft_hello *h)
{
	int err;

	if (h->want == HDR_SIZE) {
		err = parse_header(h);
		if (err)
			fail_hello(h, err);
		return;
	}
	switch ((enum step)h->step) {
	case STEP_HELLO:
		handle_hello(h);
		break;
	case STEP_CHALLENGE:
		handle_challenge(h);
		break;
	case STEP_PROOF:
		handle_proof(h);
		break;
	case STEP_VERDICT:
		handle_verdict(h);
		break;
	case STEP_REFUSAL:
		fail_hello(h, -EPROTO);
		break;
	}
}

void weft_hello_step(struct weft_hello *h)
{
	if (h->state == WEFT_HELLO_SENDING && h->out_done >= h->out_len)
		handle_sent(h);
	else if (h->state == WEFT_HELLO_READING && h->have >= h->want)
		handle_received(h);
}

void weft_hello_moved(struct weft_hello *h, size_t n)
{
	if (h->state == WEFT_HELLO_SENDING) {
		h->out_done += n;
		if (h->out_done == h->out_len)
			weft_hello_step(h);
	} else {
		h->have += n;
		if (h->have == h->want)
			weft_hello_step(h);
	}
}

bool weft_hello_owns(const struct weft_hello *h, const uint8_t *key)
{
	return (h->state == WEFT_HELLO_DECIDE || h->state == WEFT_HELLO_DONE) &&
	       !h->dialer && h->peer_id == weft_key_id(key) &&
	       !check_proof(h->transcript, key, 'O', h->owner_proof);
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "settings/settings.h"
#include "tests/lib/quiet.h"
#include "util/bytes.h"
#include "util/hash.h"

static const uint8_t listener_key[WEFT_KEY_LEN] = "listener's key!";
static const uint8_t dialer_key[WEFT_KEY_LEN] = "the dialer's key";
static const uint8_t wrong_key[WEFT_KEY_LEN] = "listener's key?";
static const uint8_t purpose[WEFT_HELLO_PURPOSE] = "why I am calling";

/* Sees each message before it arrives; may change it, or drop it: returns 0. */
typedef size_t (*wire_fn)(bool to_listener, int nth, uint8_t *bytes,
			  size_t len);

static size_t clean(bool to_listener, int nth, uint8_t *bytes, size_t len)
{
	return len;
}

/* All that is written, delivered @grain bytes at a time. */
static void deliver(struct weft_hello *from, struct weft_hello *to, int nth,
		    wire_fn wire, size_t grain)
{
	uint8_t bytes[WEFT_HELLO_MAX];
	size_t len = from->out_len - from->out_done, done = 0, n;

	memcpy(bytes, from->out + from->out_done, len);
	from->out_done = from->out_len;
	weft_hello_step(from);
	len = wire(!to->dialer, nth, bytes, len);
	while (done < len && to->state == WEFT_HELLO_READING) {
		cr_assert(lt(sz, to->have, to->want), "wants nothing");
		cr_assert(le(sz, to->want, WEFT_HELLO_MAX));
		n = to->want - to->have;
		n = n < len - done ? n : len - done;
		n = n < grain ? n : grain;
		memcpy(to->in + to->have, bytes + done, n);
		to->have += n;
		done += n;
		if (to->have == to->want)
			weft_hello_step(to);
	}
}

/* Until both are done or nothing moves any more. */
static void talk(struct weft_hello *d, struct weft_hello *l, wire_fn wire,
		 size_t grain, enum weft_hello_verdict verdict)
{
	int i;

	for (i = 0; i < 8; i++) {
		if (d->state == WEFT_HELLO_SENDING)
			deliver(d, l, i, wire, grain);
		if (l->state == WEFT_HELLO_DECIDE)
			weft_hello_verdict(l, verdict);
		if (l->state == WEFT_HELLO_SENDING)
			deliver(l, d, i, wire, grain);
	}
}

static void meet(struct weft_hello *d, struct weft_hello *l, wire_fn wire)
{
	weft_hello_listen(l, listener_key);
	weft_hello_dial(d, listener_key, dialer_key, purpose);
	talk(d, l, wire, WEFT_HELLO_MAX, WEFT_HELLO_ACCEPTED);
}

Test(hello, both_sides_are_proven)
{
	static const enum weft_hello_verdict all[] = {
		WEFT_HELLO_ACCEPTED,
		WEFT_HELLO_YIELD,
		WEFT_HELLO_BUSY,
	};
	static const size_t grains[] = { 1, 3, 7, 8, 47, 96 };
	struct weft_hello d, l;
	size_t i, j;

	for (i = 0; i < 3; i++)
		for (j = 0; j < 6; j++) {
			weft_hello_listen(&l, listener_key);
			weft_hello_dial(&d, listener_key, dialer_key, purpose);
			talk(&d, &l, clean, grains[j], all[i]);
			cr_assert(eq(int, d.state, WEFT_HELLO_DONE));
			cr_assert(eq(int, l.state, WEFT_HELLO_DONE));
			cr_expect(eq(int, d.verdict, all[i]));
			cr_expect(eq(int, l.verdict, all[i]));
			cr_expect(eq(u64, l.peer_id, weft_key_id(dialer_key)));
			cr_expect(
				eq(u64, d.peer_id, weft_key_id(listener_key)));
			cr_expect(eq(u8, d.version, WEFT_WIRE_MAX));
			cr_expect(eq(u8, l.version, WEFT_WIRE_MAX));
			cr_expect(zero(int, memcmp(l.purpose, purpose,
						   sizeof(purpose))));
			cr_expect(weft_hello_owns(&l, dialer_key));
			cr_expect(not(weft_hello_owns(&l, wrong_key)));
			cr_expect(not(weft_hello_owns(&d, listener_key)),
				  "only a listener can say so");
		}
}

Test(hello, handshakes_never_repeat_bytes)
{
	struct weft_hello d1, l1, d2, l2;

	meet(&d1, &l1, clean);
	meet(&d2, &l2, clean);
	cr_expect(ne(int, memcmp(d1.transcript, d2.transcript, 32), 0));
	cr_expect(zero(int, memcmp(d1.transcript, l1.transcript, 32)));
}

Test(hello, wrong_key_is_refused_by_the_dialer)
{
	struct weft_hello d, l;

	weft_hello_listen(&l, wrong_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	talk(&d, &l, clean, WEFT_HELLO_MAX, WEFT_HELLO_ACCEPTED);
	cr_expect(eq(int, d.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, d.err, -EACCES));
	cr_expect(ne(int, l.state, WEFT_HELLO_DONE));
	cr_expect(ne(int, l.state, WEFT_HELLO_DECIDE));
}

/* A dialer that only guesses: it ignores the listener's proof. */
Test(hello, wrong_key_is_refused_by_the_listener)
{
	struct weft_hello d, l, liar;

	weft_hello_listen(&l, listener_key);
	weft_hello_dial(&d, wrong_key, dialer_key, purpose);
	deliver(&d, &l, 0, clean, WEFT_HELLO_MAX);
	cr_assert(eq(int, l.state, WEFT_HELLO_SENDING));
	/* Let one who has some other key make its proof for it. */
	weft_hello_listen(&liar, wrong_key);
	meet(&d, &liar, clean);
	l.out_done = l.out_len;
	weft_hello_step(&l);
	d.out_done = 0;
	memcpy(l.in, d.out, 40);
	l.have = 8;
	weft_hello_step(&l);
	cr_assert(eq(sz, l.want, 40));
	l.have = 40;
	weft_hello_step(&l);
	cr_expect(eq(int, l.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, l.err, -EACCES));
}

/* The dialer has the listener's key but lies about its own. */
Test(hello, dialer_proves_its_own_key)
{
	struct weft_hello d, l;
	uint8_t claimed[WEFT_KEY_LEN];

	meet(&d, &l, clean);
	memcpy(claimed, wrong_key, sizeof(claimed));
	l.peer_id = weft_key_id(claimed);
	cr_expect(eq(int, l.state, WEFT_HELLO_DONE));
	cr_expect(not(weft_hello_owns(&l, claimed)),
		  "the name alone must not do");
	l.peer_id = weft_key_id(dialer_key);
	l.owner_proof[3] ^= 1;
	cr_expect(not(weft_hello_owns(&l, dialer_key)));
}

/* The dialer proves its own key, but said another one's name before. */
Test(hello, dialers_id_must_match_its_proof)
{
	const uint64_t other = weft_key_id(wrong_key);
	struct weft_hello d, l;
	uint8_t start[32] = { 0 };
	struct weft_bytes parts[] = { { start, 32 }, { d.out, 48 } };

	weft_hello_listen(&l, listener_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	weft_put_le64(d.out + 24, other);
	weft_hash(d.transcript, 32, NULL, 0, parts, 2);
	talk(&d, &l, clean, WEFT_HELLO_MAX, WEFT_HELLO_ACCEPTED);
	cr_assert(eq(int, l.state, WEFT_HELLO_DONE), "the fake is well made");
	cr_assert(eq(u64, l.peer_id, other));
	cr_expect(not(weft_hello_owns(&l, dialer_key)));
	cr_expect(not(weft_hello_owns(&l, wrong_key)));
}

static struct {
	bool to_listener;
	int nth;
	size_t at;
	uint8_t mask;
	size_t cut;
	bool hit;
} fault;

static size_t flip(bool to_listener, int nth, uint8_t *bytes, size_t len)
{
	if (to_listener == fault.to_listener && nth == fault.nth &&
	    fault.at < len) {
		bytes[fault.at] ^= fault.mask;
		fault.hit = true;
	}
	return len;
}

/* Every bit of every message counts: changing one is detected. */
Test(hello, every_flipped_bit_fails_the_handshake, .timeout = 60)
{
	struct weft_hello d, l;
	int message, bit, flips = 0;

	for (message = 0; message < 4; message++)
		for (fault.at = 0, fault.hit = true; fault.hit; fault.at++) {
			fault.hit = false;
			for (bit = 0; bit < 8; bit++) {
				fault.to_listener = message % 2 == 0;
				fault.nth = message / 2;
				fault.mask = (uint8_t)(1 << bit);
				meet(&d, &l, flip);
				if (!fault.hit)
					break;
				flips++;
				cr_expect(d.state != WEFT_HELLO_DONE,
					  "message %d, byte %zu, bit %d",
					  message, fault.at, bit);
				cr_expect(message == 3 ||
						  l.state != WEFT_HELLO_DONE,
					  "message %d, byte %zu, bit %d",
					  message, fault.at, bit);
			}
		}
	cr_expect(eq(int, flips, 8 * (48 + 40 + 40 + 24)),
		  "the messages' lengths");
}

static size_t cut(bool to_listener, int nth, uint8_t *bytes, size_t len)
{
	return to_listener == fault.to_listener && nth == fault.nth &&
			       fault.cut < len
		       ? fault.cut
		       : len;
}

/* It waits for the rest (the caller has a deadline), and believes nothing. */
Test(hello, truncated_message_keeps_reading)
{
	struct weft_hello d, l, *reader;
	int message;

	for (message = 0; message < 4; message++)
		for (fault.cut = 0; fault.cut < 24; fault.cut++) {
			fault.to_listener = message % 2 == 0;
			fault.nth = message / 2;
			meet(&d, &l, cut);
			reader = fault.to_listener ? &l : &d;
			cr_expect(eq(int, reader->state, WEFT_HELLO_READING));
			cr_expect(lt(sz, reader->have, reader->want));
		}
}

Test(hello, wrong_magic_fails_after_the_header)
{
	static const char *const words[] = {
		"GET / HTTP/1.1\r\n",
		"SSH-2.0-OpenSSH",
		"\x16\x03\x01\x02\x00"
		"\x01\x00\x01\xfc\x03",
		"WEFTgarbage.....",
		"WEFU\x01\x30\x01\x01",
	};
	struct weft_hello l;
	size_t i;

	for (i = 0; i < 5; i++) {
		weft_hello_listen(&l, listener_key);
		cr_assert(eq(sz, l.want, 8));
		memcpy(l.in, words[i], 8);
		l.have = 8;
		weft_hello_step(&l);
		cr_expect(eq(int, l.state, WEFT_HELLO_FAILED), "%s", words[i]);
		cr_expect(eq(int, l.err, -EPROTO));
	}
}

static size_t newer_dialer(bool to_listener, int nth, uint8_t *bytes,
			   size_t len)
{
	if (to_listener && nth == 0) {
		bytes[6] = WEFT_WIRE_MAX + 1;
		bytes[7] = WEFT_WIRE_MAX + 5;
	}
	return len;
}

Test(hello, version_mismatch_fails_both_sides)
{
	struct weft_hello d, l;

	meet(&d, &l, newer_dialer);
	cr_expect(eq(int, l.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, l.err, -EPROTONOSUPPORT));
	cr_expect(eq(u8, l.peer_min, WEFT_WIRE_MAX + 1));
	cr_expect(eq(u8, l.peer_max, WEFT_WIRE_MAX + 5));
	cr_expect(eq(int, d.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, d.err, -EPROTONOSUPPORT));
	cr_expect(eq(u8, d.peer_min, WEFT_WIRE_MIN));
	cr_expect(eq(u8, d.peer_max, WEFT_WIRE_MAX));
}

/* A later release may say more in its hello. */
Test(hello, longer_hello_of_newer_peer_is_accepted)
{
	struct weft_hello d, l;

	weft_hello_listen(&l, listener_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	d.out[5] = 80;
	d.out[6] = WEFT_WIRE_MAX + 1;
	d.out[7] = WEFT_WIRE_MAX + 1;
	d.out_len = 80;
	deliver(&d, &l, 0, clean, WEFT_HELLO_MAX);
	cr_expect(eq(int, l.state, WEFT_HELLO_SENDING), "a refusal");
	cr_expect(eq(sz, l.out_len, 8));
	l.out_done = l.out_len;
	weft_hello_step(&l);
	cr_expect(eq(int, l.err, -EPROTONOSUPPORT));
}

/* The dialer's own bytes sent back to it, and one listener's to another. */
Test(hello, reflection_fails)
{
	struct weft_hello d, l, l2;

	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	memcpy(l.out, d.out, sizeof(d.out));
	d.out_done = d.out_len;
	weft_hello_step(&d);
	memcpy(d.in, l.out, 8);
	d.have = 8;
	weft_hello_step(&d);
	cr_expect(eq(int, d.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, d.err, -EPROTO));

	/* A challenge proof of the listener is no dialer's proof. */
	weft_hello_listen(&l, listener_key);
	weft_hello_listen(&l2, listener_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	deliver(&d, &l, 0, clean, WEFT_HELLO_MAX);
	memcpy(l2.out, l.out, sizeof(l.out));
	l.out_done = l.out_len;
	weft_hello_step(&l);
	memcpy(l.in, "WEFT\x03\x28", 6);
	l.in[6] = WEFT_WIRE_MAX;
	l.in[7] = 0;
	l.have = 8;
	weft_hello_step(&l);
	cr_assert(eq(sz, l.want, 40));
	memset(l.in + 8, 0, 16);
	memcpy(l.in + 24, l2.out + 24, 16); /* its own proof */
	l.have = 40;
	weft_hello_step(&l);
	cr_expect(eq(int, l.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, l.err, -EACCES));
}

/* A proof of one conversation is worth nothing in the next. */
Test(hello, replay_fails)
{
	struct weft_hello d, l, l2;
	uint8_t hello[48], proof[40];

	weft_hello_listen(&l, listener_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	memcpy(hello, d.out, sizeof(hello));
	deliver(&d, &l, 0, clean, WEFT_HELLO_MAX);
	deliver(&l, &d, 0, clean, WEFT_HELLO_MAX);
	cr_assert(eq(int, d.state, WEFT_HELLO_SENDING));
	memcpy(proof, d.out, sizeof(proof));

	weft_hello_listen(&l2, listener_key);
	memcpy(l2.in, hello, 8);
	l2.have = 8;
	weft_hello_step(&l2);
	memcpy(l2.in, hello, 48);
	l2.have = 48;
	weft_hello_step(&l2);
	l2.out_done = l2.out_len;
	weft_hello_step(&l2);
	memcpy(l2.in, proof, 8);
	l2.have = 8;
	weft_hello_step(&l2);
	memcpy(l2.in, proof, 40);
	l2.have = 40;
	weft_hello_step(&l2);
	cr_expect(eq(int, l2.err, -EACCES));
}

static char secret_path[] = "/tmp/weft-hello-test-XXXXXX";

static void use_secret(const char *text)
{
	static bool made;
	int fd = made ? open(secret_path, O_WRONLY | O_TRUNC)
		      : mkstemp(secret_path);

	made = true;
	cr_assert(ge(int, fd, 0));
	cr_assert(eq(sz, (size_t)write(fd, text, strlen(text)), strlen(text)));
	close(fd);
	setenv("WEFT_SECRET_FILE", secret_path, 1);
	weft_settings_reset();
}

Test(hello, job_secret_must_be_the_same)
{
	struct weft_hello d, l;

	use_secret("correct horse battery staple");
	meet(&d, &l, clean);
	cr_expect(eq(int, d.state, WEFT_HELLO_DONE));
	cr_expect(weft_hello_owns(&l, dialer_key));

	weft_hello_listen(&l, listener_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	deliver(&d, &l, 0, clean, WEFT_HELLO_MAX);
	use_secret("correct horse battery stable");
	deliver(&l, &d, 0, clean, WEFT_HELLO_MAX);
	cr_expect(eq(int, d.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, d.err, -EACCES));
	unlink(secret_path);
}

Test(hello, unusable_secret_file_fails_the_handshake)
{
	struct weft_hello d, l;

	log_quiet();
	setenv("WEFT_SECRET_FILE", "/nonexistent/secret", 1);
	weft_settings_reset();
	weft_hello_listen(&l, listener_key);
	weft_hello_dial(&d, listener_key, dialer_key, purpose);
	cr_expect(eq(int, l.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, d.state, WEFT_HELLO_FAILED));
	cr_expect(eq(int, d.err, -ENOENT));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP device and peers that prove themselves, then break the protocol. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/conformance/cases/cheat.h"
#include "util/bytes.h"

void cheat_begin(struct side *victim, struct tcp_peer *p)
{
	if (!row->sockets)
		skip_test("its peers speak otherwise");
	setenv("WEFT_TCP_SNDBUF", "8k", 0);
	log_keep();
	side_open(victim);
	memset(p, 0, sizeof(*p));
	p->iface = victim->iface;
	p->addr = victim->attr.addr;
}

int cheat_meet(struct side *victim, struct tcp_peer *p, uint64_t *token)
{
	int fd;

	cheat_begin(victim, p);
	fd = tcp_peer_meet(p, token);
	check(fd >= 0, "the meeting ended with %d", fd);
	return fd;
}

int cheat_bulk(struct tcp_peer *p, uint64_t token, int rcvbuf)
{
	int fd = tcp_peer_join(p, TCP_PURPOSE_BULK_OUT, token, rcvbuf);

	check(fd >= 0, "the bulk stream ended with %d", fd);
	return fd;
}

void cheat_say(int fd, const void *bytes, size_t len)
{
	check(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len, "send");
}

/* The victim hung up, told why in one line, and serves others. */
static void check_ended(struct side *victim, int fd, const char *why)
{
	struct side friend;
	uint8_t byte;
	ssize_t n;

	do {
		struct pollfd pfd = { fd, POLLIN, 0 };

		wait_for(victim, NULL, poll(&pfd, 1, 0) > 0);
		n = recv(fd, &byte, 1, MSG_DONTWAIT);
	} while (n > 0);
	check(log_lines(why) == 1 && log_lines("") == 1,
	      "%u of %u lines say '%s'", log_lines(why), log_lines(""), why);
	check_int(victim->errors, 0); /* no endpoint was on it */
	side_open(&friend);
	friend.ep = side_connect(&friend, victim, NULL);
	send_pattern(&friend, victim, friend.ep, 1, 100, 7);
	wait_for(&friend, victim, victim->first);
	check_message(victim, 1, 100, 7);
	side_close(&friend);
	side_close(victim);
}

/* A peer that sends puts but reads no replies cannot exhaust memory here. */
static void unread_answers(void)
{
	enum { MANY = 200000 };
	uint8_t chunk[TCP_CHUNK_LEN] = { 0 };
	struct side victim;
	struct tcp_peer p;
	uint64_t token, i;
	int fd, bulk_fd;

	fd = cheat_meet(&victim, &p, &token);
	bulk_fd = cheat_bulk(&p, token, 4096);
	for (i = 0; i < MANY; i++) {
		weft_put_le64(chunk, i); /* of no bytes: placed at once */
		tcp_peer_wait(&p, bulk_fd, POLLOUT);
		if (send(bulk_fd, chunk, sizeof(chunk), MSG_NOSIGNAL) !=
		    sizeof(chunk))
			break;
	}
	check(i < MANY, "%d puts were accepted without reading replies", MANY);
	check_ended(&victim, fd, "sent a bulk chunk that breaks the protocol");
	close(bulk_fd);
	close(fd);
}

/* Nor if the puts come in frames, whose acknowledgements are gathered. */
static void unread_acks(void)
{
	enum { MANY = 1000, FRAME = TCP_FRAME_LEN + TCP_CHUNK_LEN };
	static uint8_t puts[256][FRAME];
	struct side victim;
	struct tcp_peer p;
	uint64_t token, seq = 0;
	size_t at = sizeof(puts);
	ssize_t n = 0;
	int fd, i, k;

	fd = cheat_meet(&victim, &p, &token);
	for (i = 0; i < MANY && n >= 0; i += at == sizeof(puts)) {
		for (k = 0; k < 256 && at == sizeof(puts); k++) {
			puts[k][0] = TCP_FRAME_PUT;
			weft_put_le32(puts[k] + 4, TCP_CHUNK_LEN);
			weft_put_le64(puts[k] + TCP_FRAME_LEN, seq++);
		}
		at %= sizeof(puts);
		tcp_peer_wait(&p, fd, POLLOUT);
		n = send(fd, (uint8_t *)puts + at, sizeof(puts) - at,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		at += n > 0 ? n : 0;
	}
	check(n < 0, "%d puts were accepted without reading replies",
	      256 * MANY);
	check_ended(&victim, fd, "sends requests and reads no replies");
	close(fd);
}

/* Nor can one that asks for bytes and reads none. */
static void unread_gets(void)
{
	/* twice what it may ask for: the sockets' buffers hold some, too */
	enum { MANY = 4 * TCP_WINDOW };
	uint8_t get[TCP_FRAME_LEN + TCP_GET_SMALL_LEN] = { TCP_FRAME_GET };
	static uint8_t bytes[TCP_SMALL];
	struct weft_mem *mem;
	struct side victim;
	struct tcp_peer p;
	int fd, i, size = 4096;

	setenv("WEFT_TCP_RCVBUF", "8k", 1);
	cheat_begin(&victim, &p);
	check_int(victim.ops->mem_register(bytes, sizeof(bytes), WEFT_MEM_HOST,
					   &mem),
		  0);
	weft_put_le32(get + 4, TCP_GET_SMALL_LEN);
	weft_put_le64(get + TCP_FRAME_LEN, (uintptr_t)bytes);
	victim.ops->mem_pack(mem, get + TCP_FRAME_LEN + 8);
	weft_put_le64(get + TCP_FRAME_LEN + 24, sizeof(bytes));
	fd = tcp_peer_join(&p, TCP_PURPOSE_MESSAGES, 0, size);
	check(fd >= 0, "the meeting ended with %d", fd);
	check(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)),
	      "SO_SNDBUF");
	for (i = 0; i < MANY; i++) {
		tcp_peer_wait(&p, fd, POLLOUT);
		if (send(fd, get, sizeof(get), MSG_NOSIGNAL) != sizeof(get))
			break;
	}
	check(i > 2 * TCP_WINDOW, "ended after %d gets", i);
	check(i < MANY, "%d gets were accepted without reading answers", MANY);
	check_ended(&victim, fd, "sent a frame that breaks the protocol");
	victim.ops->mem_release(mem);
	close(fd);
}

/* Nor can one with many tiny puts keep progress() from returning. */
static void tiny_puts(void)
{
	enum { MANY = 4000, MOST = 1000 };
	static uint8_t chunks[MANY][TCP_CHUNK_LEN];
	uint8_t acks[1024];
	struct side victim;
	struct tcp_peer p;
	uint64_t token, i;
	size_t placed = 0, before;
	ssize_t n;
	int fd, bulk_fd;

	setenv("WEFT_TCP_THREADS", "0", 1);
	setenv("WEFT_TCP_SNDBUF", "1m", 1); /* of all replies to one call */
	fd = cheat_meet(&victim, &p, &token);
	bulk_fd = cheat_bulk(&p, token, 0);
	for (i = 0; i < MANY; i++) /* of no bytes */
		weft_put_le64(chunks[i], i);
	i = 0;
	while (placed < MANY * TCP_ACK_LEN) {
		n = send(bulk_fd, (uint8_t *)chunks + i, sizeof(chunks) - i,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		i += n > 0 ? n : 0;
		before = placed;
		both_progress(&victim, NULL);
		while ((n = recv(bulk_fd, acks, sizeof(acks), MSG_DONTWAIT)) >
		       0)
			placed += n;
		check(n < 0 && errno == EAGAIN, "the stream ended");
		check(placed - before < MOST * TCP_ACK_LEN,
		      "%zu puts in one progress()",
		      (placed - before) / TCP_ACK_LEN);
	}
	close(bulk_fd);
	close(fd);
	side_close(&victim);
}

/* Nor can one with many streams, of 2 MiB each. */
static void many_streams(void)
{
	enum { MANY = 60, MOST = 16 };
	uint8_t chunk[TCP_CHUNK_LEN] = { 0 }, acks[TCP_ACK_LEN];
	unsigned int i, calls = 0, now, placed = 0;
	int fd, fds[MANY];
	struct side victim;
	struct tcp_peer p;
	uint64_t token;

	setenv("WEFT_TCP_THREADS", "0", 1);
	fd = cheat_meet(&victim, &p, &token);
	for (i = 0; i < MANY; i++)
		fds[i] = cheat_bulk(&p, token, 0);
	run_for(&victim, NULL, 10);
	for (i = 0; i < MANY; i++) { /* of no bytes */
		weft_put_le64(chunk, i);
		cheat_say(fds[i], chunk, sizeof(chunk));
	}
	while (placed < MANY) {
		now = victim.ops->progress(victim.iface);
		check(now < MOST, "%u streams in one progress()", now);
		calls += now > 0;
		for (i = 0; i < MANY; i++)
			placed += recv(fds[i], acks, sizeof(acks),
				       MSG_DONTWAIT) == sizeof(acks);
	}
	check(calls >= MANY / MOST, "all in %u calls", calls);
	for (i = 0; i < MANY; i++)
		close(fds[i]);
	close(fd);
	side_close(&victim);
}

/* Nor can one with many small frames. */
static void tiny_frames(void)
{
	enum {
		FRAME = TCP_FRAME_LEN + TCP_CHUNK_LEN,
		MANY = 20000,
		MOST = 1000
	};
	static uint8_t puts[MANY][FRAME];
	uint8_t acks[4096];
	struct side victim;
	struct tcp_peer p;
	uint64_t token, i;
	unsigned int seen = 0, now;
	ssize_t n;
	int fd;

	setenv("WEFT_TCP_RCVBUF", "4m", 1);
	setenv("WEFT_TCP_SNDBUF", "1m", 1);
	fd = cheat_meet(&victim, &p, &token);
	for (i = 0; i < MANY; i++) { /* of no bytes */
		puts[i][0] = TCP_FRAME_PUT;
		weft_put_le32(puts[i] + 4, TCP_CHUNK_LEN);
		weft_put_le64(puts[i] + TCP_FRAME_LEN, i);
	}
	i = 0;
	while (seen < MANY) {
		n = send(fd, (uint8_t *)puts + i, sizeof(puts) - i,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		i += n > 0 ? n : 0;
		now = victim.ops->progress(victim.iface);
		check(now < MOST, "%u frames in one progress()", now);
		seen += now;
		while ((n = recv(fd, acks, sizeof(acks), MSG_DONTWAIT)) > 0)
			;
		check(n < 0 && errno == EAGAIN, "the stream ended");
	}
	close(fd);
	side_close(&victim);
}

/*
 * Nor keep arm() busy, if it leaves in the progress() in which so many
 * notifications are delivered that its stream may be read on.
 */
static void left_with_notifications(void)
{
	enum { MANY = 4 * TCP_WINDOW };
	static uint8_t chunks[MANY][TCP_CHUNK_LEN];
	uint8_t acks[1024];
	struct side victim;
	struct tcp_peer p;
	uint64_t token, i;
	size_t placed = 0;
	ssize_t n;
	int fd, bulk_fd;

	setenv("WEFT_TCP_THREADS", "0", 1);
	setenv("WEFT_TCP_SNDBUF", "1m", 1); /* of all replies to one call */
	fd = cheat_meet(&victim, &p, &token);
	bulk_fd = cheat_bulk(&p, token, 0);
	for (i = 0; i < MANY; i++) {
		weft_put_le64(chunks[i], i);
		weft_put_le32(chunks[i] + 60, TCP_CHUNK_NOTIFY);
	}
	i = 0;
	while (placed < MANY * TCP_ACK_LEN ||
	       MANY - victim.notifies >= 2 * TCP_WINDOW + WEFT_PROGRESS_MAX) {
		n = send(bulk_fd, (uint8_t *)chunks + i, sizeof(chunks) - i,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		i += n > 0 ? n : 0;
		both_progress(&victim, NULL);
		while ((n = recv(bulk_fd, acks, sizeof(acks), MSG_DONTWAIT)) >
		       0)
			placed += n;
	}
	check(MANY - victim.notifies >= 2 * TCP_WINDOW,
	      "only %u notifications wait", MANY - victim.notifies);
	close(fd);
	wait_for(&victim, NULL, victim.notifies == MANY);
	wait_for(&victim, NULL, !victim.ops->arm(victim.iface));
	close(bulk_fd);
	side_close(&victim);
}

static void bad_frame(uint8_t type, uint32_t len, uint32_t rest)
{
	uint8_t frame[TCP_FRAME_LEN + 64] = { type };
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd;

	fd = cheat_meet(&victim, &p, &token);
	weft_put_le32(frame + 4, len);
	cheat_say(fd, frame, TCP_FRAME_LEN + rest);
	check_ended(&victim, fd, "sent a frame that breaks the protocol");
	close(fd);
}

/* Longer than any frame is: seen by its head, before there is room for it. */
static void long_frame(void)
{
	bad_frame(TCP_FRAME_MESSAGE, 0x7fffffff, 0);
}

static void unknown_frame(void)
{
	bad_frame(TCP_FRAME_TYPES, 8, 8);
}

/* A frame of a known length that has another. */
static void short_frame(void)
{
	bad_frame(TCP_FRAME_GET, TCP_GET_LEN - 16, TCP_GET_LEN - 16);
}

/* A chunk that reaches past the end of its put. */
static void long_chunk(void)
{
	uint8_t chunk[TCP_CHUNK_LEN] = { 0 };
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd, bulk_fd;

	fd = cheat_meet(&victim, &p, &token);
	bulk_fd = cheat_bulk(&p, token, 0);
	weft_put_le64(chunk + 8, 1000);
	weft_put_le64(chunk + 16, 900);
	weft_put_le32(chunk + 56, 101);
	cheat_say(bulk_fd, chunk, sizeof(chunk));
	check_ended(&victim, fd, "sent a bulk chunk that breaks the protocol");
	close(bulk_fd);
	close(fd);
}

/* To whom no stream is owed, none can be lost: no news, and no offence. */
static void uncalled_answer(void)
{
	uint8_t frame[TCP_FRAME_LEN + 4] = { TCP_FRAME_STREAMS };
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd;

	fd = cheat_meet(&victim, &p, &token);
	weft_put_le32(frame + 4, 4);
	cheat_say(fd, frame, sizeof(frame));
	frame[0] = TCP_FRAME_MESSAGE;
	cheat_say(fd, frame, sizeof(frame));
	wait_for(&victim, NULL, victim.messages == 1);
	check_int(log_lines(""), 0);
	close(fd);
	side_close(&victim);
}

/* Messages that wait for puts which never come: not kept without end. */
static void endless_wait(void)
{
	enum { LEN = 64 << 10, MANY = 1000 };
	uint8_t frame[TCP_FRAME_LEN] = { TCP_FRAME_MESSAGE, 1 };
	static uint8_t body[LEN];
	struct side victim;
	struct tcp_peer p;
	size_t sent = 0, at;
	uint64_t token;
	ssize_t n = 0;
	int fd;

	fd = cheat_meet(&victim, &p, &token);
	weft_put_le32(frame + 4, LEN);
	weft_put_le64(frame + 8, 5);
	while (n >= 0 && sent < MANY * (size_t)(LEN + TCP_FRAME_LEN)) {
		at = sent % (LEN + TCP_FRAME_LEN);
		tcp_peer_wait(&p, fd, POLLOUT);
		n = at < TCP_FRAME_LEN
			    ? send(fd, frame + at, TCP_FRAME_LEN - at,
				   MSG_NOSIGNAL | MSG_DONTWAIT)
			    : send(fd, body, LEN + TCP_FRAME_LEN - at,
				   MSG_NOSIGNAL | MSG_DONTWAIT);
		sent += n > 0 ? n : 0;
	}
	check(n < 0, "%d messages were kept", MANY);
	check_ended(&victim, fd, "sent a frame that breaks the protocol");
	close(fd);
}

const struct conformance_test cheat_tests[] = {
	{ "a peer that reads no replies cannot fill our memory",
	  unread_answers },
	{ "a peer that reads no acknowledgements of its frames cannot either",
	  unread_acks },
	{ "a peer that reads no bytes it asked for cannot either",
	  unread_gets },
	{ "many tiny puts do not keep progress() from returning", tiny_puts },
	{ "many bulk streams do not either", many_streams },
	{ "many tiny frames do not either", tiny_frames },
	{ "a peer that leaves as its notifications come lets arm() sleep",
	  left_with_notifications },
	{ "messages that wait forever are bounded", endless_wait },
	{ "a frame that is too long ends the connection", long_frame },
	{ "a frame of unknown type ends the connection", unknown_frame },
	{ "a frame of wrong length ends the connection", short_frame },
	{ "a chunk beyond its put ends the connection", long_chunk },
	{ "a reply without a request ends the connection", uncalled_answer },
	{ NULL, NULL },
};

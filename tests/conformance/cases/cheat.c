/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP device and peers that prove themselves, then break the protocol. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "tests/lib/tcp_peer.h"
#include "util/bytes.h"

static void cheat(struct side *victim, struct tcp_peer *p)
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

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	bulk_fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 4096);
	check(bulk_fd >= 0, "the bulk stream ended with %d", bulk_fd);
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

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
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
	cheat(&victim, &p);
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
	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	bulk_fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
	check(bulk_fd >= 0, "the bulk stream ended with %d", bulk_fd);
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
	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	for (i = 0; i < MANY; i++) {
		fds[i] = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
		check(fds[i] >= 0, "stream %u ended with %d", i, fds[i]);
	}
	run_for(&victim, NULL, 10);
	for (i = 0; i < MANY; i++) { /* of no bytes */
		weft_put_le64(chunk, i);
		check(send(fds[i], chunk, sizeof(chunk), MSG_NOSIGNAL) ==
			      sizeof(chunk),
		      "send");
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
	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
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
	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	bulk_fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
	check(bulk_fd >= 0, "the bulk stream ended with %d", bulk_fd);
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

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	weft_put_le32(frame + 4, len);
	check(send(fd, frame, TCP_FRAME_LEN + rest, MSG_NOSIGNAL) ==
		      TCP_FRAME_LEN + rest,
	      "send");
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

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	bulk_fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
	check(bulk_fd >= 0, "the bulk stream ended with %d", bulk_fd);
	weft_put_le64(chunk + 8, 1000);
	weft_put_le64(chunk + 16, 900);
	weft_put_le32(chunk + 56, 101);
	check(send(bulk_fd, chunk, sizeof(chunk), MSG_NOSIGNAL) ==
		      sizeof(chunk),
	      "send");
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

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	weft_put_le32(frame + 4, 4);
	check(send(fd, frame, sizeof(frame), MSG_NOSIGNAL) == sizeof(frame),
	      "send");
	frame[0] = TCP_FRAME_MESSAGE;
	check(send(fd, frame, sizeof(frame), MSG_NOSIGNAL) == sizeof(frame),
	      "send");
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

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
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

/* A listener that proves itself: the socket that @victim dialled. */
static int meet_at(struct side *victim, const uint8_t *key)
{
	struct weft_address where = victim->attr.addr;
	socklen_t len = weft_sockaddr_len(&where.sa);
	struct weft_hello h;
	int listener, fd;
	ssize_t n;

	if (where.sa.sa.sa_family == AF_INET6)
		where.sa.in6.sin6_port = 0;
	else
		where.sa.in.sin_port = 0;
	listener = socket(where.sa.sa.sa_family, SOCK_STREAM, 0);
	check(!bind(listener, &where.sa.sa, len) && !listen(listener, 4096) &&
		      !getsockname(listener, &where.sa.sa, &len),
	      "no listener");
	memcpy(where.key, key, WEFT_KEY_LEN);
	check_int(victim->ops->ep_create(victim->iface, &where, NULL,
					 &victim->ep),
		  0);
	fd = accept(listener, NULL, NULL);
	weft_hello_listen(&h, key);
	while (h.state != WEFT_HELLO_DONE && h.state != WEFT_HELLO_FAILED) {
		both_progress(victim, NULL);
		if (h.state == WEFT_HELLO_DECIDE) {
			weft_hello_verdict(&h, WEFT_HELLO_ACCEPTED);
			continue;
		}
		if (h.state == WEFT_HELLO_SENDING) {
			n = send(fd, h.out, h.out_len, MSG_NOSIGNAL);
			h.out_done = n > 0 ? n : 0;
		} else {
			n = recv(fd, h.in + h.have, h.want - h.have,
				 MSG_DONTWAIT);
			h.have += n > 0 ? n : 0;
		}
		weft_hello_step(&h);
	}
	check(h.state == WEFT_HELLO_DONE, "the meeting ended with %d", h.err);
	return fd;
}

/* The dialer is asked for more sockets than a pair may have. */
static void endless_streams(void)
{
	enum { MANY = 100 };
	static const uint8_t key[WEFT_KEY_LEN] = "a cheat's own";
	uint8_t welcome[TCP_FRAME_LEN + 8] = { TCP_FRAME_WELCOME };
	uint8_t ask[TCP_FRAME_LEN + 4] = { TCP_FRAME_STREAMS };
	unsigned int i, before, most = 0;
	struct side victim;
	struct tcp_peer p;
	int fd;

	cheat(&victim, &p);
	fd = meet_at(&victim, key);
	before = count_descriptors();
	weft_put_le32(welcome + 4, 8);
	weft_put_le64(welcome + TCP_FRAME_LEN, 1);
	check(send(fd, welcome, sizeof(welcome), MSG_NOSIGNAL) > 0, "send");
	weft_put_le32(ask + 4, 4);
	weft_put_le32(ask + TCP_FRAME_LEN, 64);
	for (i = 0; i < MANY && !victim.errors; i++) {
		if (send(fd, ask, sizeof(ask), MSG_NOSIGNAL) < 0)
			break;
		both_progress(&victim, NULL);
		most = count_descriptors() > most ? count_descriptors() : most;
	}
	wait_for(&victim, NULL, victim.errors);
	check(most <= before + 2 * 64, "%u sockets for one peer",
	      most - before);
	check_int(log_lines("breaks the protocol"), 1);
	check_int(victim.error, -EPROTO);
	close(fd);
	side_close(&victim);
}

/*
 * The accepting side gets more streams than a pair may have, or unrequested
 * ones.
 */
static void uncalled_streams(void)
{
	enum { MANY = 300 };
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd, fds[MANY];
	unsigned int n;

	cheat(&victim, &p);
	fd = tcp_peer_meet(&p, &token);
	check(fd >= 0, "the meeting ended with %d", fd);
	check_int(tcp_peer_join(&p, TCP_PURPOSE_BULK_IN, token, 0),
		  -ECONNREFUSED);
	for (n = 0; n < MANY; n++) {
		fds[n] = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
		if (fds[n] < 0)
			break;
	}
	check(n >= 64 && n <= 128, "%u streams from one peer", n);
	check_int(fds[n], -ECONNREFUSED);
	while (n--)
		close(fds[n]);
	close(fd);
	side_close(&victim);
}

/* A peer with the key connects until descriptors run out. */
static void endless_connections(void)
{
	enum { FDS = 400, MOST = FDS / 4 * 3, BATCH = 40 };
	struct rlimit lim = { FDS, FDS };
	int fds[BATCH], leave[2];
	unsigned int n = 0, i;
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	char c;

	cheat(&victim, &p);
	check(!setrlimit(RLIMIT_NOFILE, &lim) && !pipe(leave), "no pipe");
	for (;;) {
		for (i = 0; i < BATCH; i++) {
			fds[i] = tcp_peer_meet(&p, &token);
			if (fds[i] < 0)
				break;
		}
		n += i;
		if (i < BATCH)
			break;
		/* its ends go on in a child, so that only ours count here */
		if (!fork()) {
			close(leave[1]);
			_exit(read(leave[0], &c, 1));
		}
		while (i--)
			close(fds[i]);
	}
	check_int(fds[i], -ECONNREFUSED);
	check_int(n, MOST);
	check_int(log_lines("'ulimit -n'"), 1);
	check_int(log_lines(""), 1);
	close(leave[1]);
	side_close(&victim);
}

/* As many as the lowest free number. */
static unsigned int descriptors_in_use(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/*
 * Peers with the key open bulk streams: one takes no more than half of the
 * descriptors, the next one stream each, and a quarter is left.
 */
static void endless_bulk(void)
{
	enum { FDS = 200, PEERS = 40, NEAR = 8 };
	struct rlimit lim = { FDS, FDS };
	unsigned int n, used;
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd;

	cheat(&victim, &p);
	check(!setrlimit(RLIMIT_NOFILE, &lim), "no limit");
	check(tcp_peer_meet(&p, &token) >= 0, "no meeting");
	while ((fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0)) >= 0)
		;
	check_int(fd, -ECONNREFUSED);
	used = descriptors_in_use();
	check(used <= FDS / 2 + 1 && used > FDS / 2 - NEAR,
	      "one peer takes %u of %u descriptors", used, FDS);
	check_int(log_lines(""), 0);
	for (n = 0; n < PEERS; n++) {
		check(tcp_peer_meet(&p, &token) >= 0, "no meeting");
		fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
		if (fd < 0)
			break;
		check_int(tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0),
			  -ECONNREFUSED);
	}
	check_int(fd, -ECONNREFUSED);
	used = descriptors_in_use();
	check(used <= FDS / 4 * 3 + 2 && used > FDS / 4 * 3 - NEAR,
	      "%u peers take %u of %u descriptors", n, used, FDS);
	check_int(log_lines("'ulimit -n'"), 1);
	check_int(log_lines(""), 1);
	side_close(&victim);
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
	{ "a listener gets no more streams than a pair may have",
	  endless_streams },
	{ "unrequested streams are refused", uncalled_streams },
	{ "a peer cannot take all descriptors", endless_connections },
	{ "a peer's streams cannot either", endless_bulk },
	{ NULL, NULL },
};

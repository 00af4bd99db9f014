/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP device and peers that prove themselves, then break the protocol. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/tcp_peer.h"
#include "util/bytes.h"
#include "util/log.h"

static char last_line[256];
static unsigned int lines;

static void on_log(void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	(void)arg;
	(void)file;
	(void)line;
	if (level > WEFT_LOG_WARN)
		return;
	snprintf(last_line, sizeof(last_line), "%s", text);
	lines++;
}

static void cheat(struct side *victim, struct tcp_peer *p)
{
	if (strncmp(row->name, "tcp", 3))
		skip_test("its peers speak otherwise");
	setenv("WEFT_TCP_SNDBUF", "8k", 1);
	weft_log_set_sink(on_log, NULL);
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
	check(strstr(last_line, why), "said '%s', not '%s'", last_line, why);
	check_int(lines, 1);
	check_int(victim->errors, 0);	/* no endpoint was on it */
	side_open(&friend);
	friend.ep = side_connect(&friend, victim, NULL);
	send_pattern(&friend, victim, friend.ep, 1, 100, 7);
	wait_for(&friend, victim, victim->first);
	check_message(victim, 1, 100, 7);
	side_close(&friend);
	side_close(victim);
}

/* One that puts on and on and reads no answer cannot make us keep them all. */
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
		weft_put_le64(chunk, i);	/* of no bytes: placed at once */
		tcp_peer_wait(&p, bulk_fd, POLLOUT);
		if (send(bulk_fd, chunk, sizeof(chunk), MSG_NOSIGNAL) !=
		    sizeof(chunk))
			break;
	}
	check(i < MANY, "%d puts were answered to nobody", MANY);
	check_ended(&victim, fd, "sent a bulk chunk that breaks the protocol");
	close(bulk_fd);
	close(fd);
}

const struct conformance_test cheat_tests[] = {
	{ "a peer that reads no answers", unread_answers },
	{ NULL, NULL },
};

/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/parse.h"

#define MAX_EPOLLS 64u /* how many instances of this process to examine */

struct set {
	int fds[WEFT_LOOP_MAX + 1]; /* the first is the descriptor itself */
	unsigned int n;
};

static bool has_fd(const struct set *set, int fd)
{
	for (unsigned int i = 0; i < set->n; i++)
		if (set->fds[i] == fd)
			return true;
	return false;
}

/* The number in @text up to the first blank; -1: none. */
static int parse_number(char *text)
{
	uint64_t value;

	text[strcspn(text, " \t\n")] = '\0';
	return weft_parse_u64(text, 0, INT_MAX, &value) ? -1 : (int)value;
}

/* The number behind @name in @line, whose radix is that of @prefix. */
static bool find_number(const char *line, const char *name, const char *prefix,
			uint64_t *value)
{
	const char *at = strstr(line, name);
	char text[32];

	if (!at)
		return false;
	at += strlen(name);
	at += strspn(at, " \t");
	snprintf(text, sizeof(text), "%s%.*s", prefix,
		 (int)strcspn(at, " \t\n"), at);
	return !weft_parse_u64(text, 0, UINT64_MAX, value);
}

static FILE *open_info(int epfd)
{
	char name[40];

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", epfd);
	return fopen(name, "re");
}

/* Does @epfd watch fds of @set (*@members), and any others (*@others)? */
static void read_watched(int epfd, const struct set *set, bool *members,
			 bool *others)
{
	FILE *info = open_info(epfd);
	char line[160];
	uint64_t fd;

	*members = *others = false;
	if (!info)
		return;
	/* "tfd:       12 events:       19 data: ...", proc(5) */
	while (fgets(line, sizeof(line), info)) {
		if (!find_number(line, "tfd:", "", &fd))
			continue;
		if (has_fd(set, (int)fd))
			*members = true;
		else
			*others = true;
	}
	fclose(info);
}

/* All epoll instances of this process, in no order. */
static unsigned int list_epolls(int epolls[MAX_EPOLLS])
{
	const char kind[] = "anon_inode:[eventpoll]";
	char link[sizeof(kind)];
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned int n = 0;

	if (!dir)
		return 0;
	while (n < MAX_EPOLLS && (entry = readdir(dir)))
		if (readlinkat(dirfd(dir), entry->d_name, link, sizeof(link)) ==
			    sizeof(kind) - 1 &&
		    !memcmp(link, kind, sizeof(kind) - 1))
			epolls[n++] = parse_number(entry->d_name);
	closedir(dir);
	return n;
}

unsigned int weft_loop_find(int fd, int epfds[WEFT_LOOP_MAX], bool *more)
{
	struct set set = { .fds = { fd }, .n = 1 };
	int epolls[MAX_EPOLLS];
	const unsigned int n = list_epolls(epolls);
	bool members, others;
	unsigned int before;

	*more = false;
	do {
		before = set.n;
		for (unsigned int i = 0; i < n; i++) {
			if (has_fd(&set, epolls[i]))
				continue;
			read_watched(epolls[i], &set, &members, &others);
			if (!members)
				continue;
			if (set.n > WEFT_LOOP_MAX)
				return 0;
			set.fds[set.n++] = epolls[i];
		}
	} while (set.n > before);
	for (unsigned int i = 1; i < set.n; i++) {
		read_watched(set.fds[i], &set, &members, &others);
		*more |= others;
		epfds[i - 1] = set.fds[i];
	}
	return set.n - 1;
}

void weft_loop_own(int epfd)
{
	FILE *info = open_info(epfd);
	struct epoll_event event;
	uint64_t fd, events, data;
	char line[160];
	int own = -1;

	if (!info)
		return;
	while (fgets(line, sizeof(line), info)) {
		if (!find_number(line, "tfd:", "", &fd) ||
		    !find_number(line, "events:", "0x", &events) ||
		    !find_number(line, "data:", "0x", &data))
			continue;
		event.events = (uint32_t)events;
		event.data.u64 = data;
		if (own < 0)
			own = epoll_create1(EPOLL_CLOEXEC);
		/* fails if only the parent has it open */
		(void)epoll_ctl(own, EPOLL_CTL_ADD, (int)fd, &event);
	}
	fclose(info);
	if (own < 0)
		return;
	(void)dup3(own, epfd, O_CLOEXEC);
	close(own);
}

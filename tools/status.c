/* SPDX-License-Identifier: BSD-3-Clause */
/* weft status and weft top: what the processes of this user carry now. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "stats/neighbour.h"
#include "tools/pages.h"
#include "tools/tool.h"
#include "util/util.h"

#define FOLDERS_MAX 2
#define EVERY_MS    1000

static const char status_help[] =
	"usage: weft status [--json]\n"
	"\n"
	"Show the processes of this user and host that have weft open: their peers,\n"
	"the way to each, and the bytes that it has carried.\n"
	"\n"
	"  -j, --json  print one line of JSON\n"
	"  -h, --help  show this\n";

static const char top_help[] =
	"usage: weft top\n"
	"\n"
	"Show what 'weft status' shows, and how fast, once a second; q ends it.\n"
	"\n"
	"  -h, --help  show this\n";

/* All run folders at one time. */
struct look {
	struct pages folders[FOLDERS_MAX];
	int err[FOLDERS_MAX];
	unsigned int n;
};

static void look_now(struct look *look, bool report)
{
	unsigned int i;

	memset(look, 0, sizeof(*look));
	for (i = 0; i < FOLDERS_MAX; i++) {
		look->err[i] = pages_read(i, report, &look->folders[i]);
		if (look->err[i] == -ERANGE)
			return;
		look->n++;
	}
}

static void free_look(struct look *look)
{
	unsigned int i;

	for (i = 0; i < look->n; i++)
		pages_free(&look->folders[i]);
}

/* ---- words --------------------------------------------------------------- */

static void format_age(uint64_t since_s, char *to, size_t len)
{
	const uint64_t now = (uint64_t)time(NULL);
	const uint64_t s = now > since_s ? now - since_s : 0;

	if (s < 120)
		snprintf(to, len, "%u s", (unsigned int)s);
	else if (s < 120 * 60)
		snprintf(to, len, "%u min", (unsigned int)(s / 60));
	else if (s < 48 * 3600)
		snprintf(to, len, "%u h", (unsigned int)(s / 3600));
	else
		snprintf(to, len, "%" PRIu64 " days", s / 86400);
}

static void format_peer(const struct pages *pages, const struct page *page,
			const struct weft_page_row *row, char *to, size_t len)
{
	const struct page *peer = pages_find(pages, row->peer);

	if (peer == page)
		snprintf(to, len, "itself");
	else if (peer)
		page_format(peer, to, len);
	else
		snprintf(to, len, "%s", row->where);
}

static void format_way(const struct page *page, const struct weft_page_row *row,
		       char *to, size_t len)
{
	const uint64_t streams = row->c.streams_max;
	size_t n;

	tool_format_path(page->head.runtime, row->device, to, len);
	n = strlen(to);
	/* devices of the host's memory have no interfaces to distinguish */
	if (!strcmp(row->device, "tcp") || !strcmp(row->device, "ib"))
		n += (size_t)snprintf(to + n, len - n, ", %s", row->netdev);
	if (streams && n < len)
		snprintf(to + n, len - n, ", %" PRIu64 " stream%s", streams,
			 streams > 1 ? "s" : "");
}

/* ---- the table ----------------------------------------------------------- */

#define TEXT_LEN 128

static const struct page *find_before(const struct pages *before,
				      const struct page *page)
{
	unsigned int i;

	for (i = 0; before && i < before->n; i++)
		if (!strcmp(before->list[i].name, page->name))
			return &before->list[i];
	return NULL;
}

/* Bytes per second since @before; a new row started at 0. */
static void print_rates(FILE *to, const struct page *before, double seconds,
			const struct weft_page_row *row)
{
	uint64_t out = page_row_out(row), in = page_row_in(row);
	const struct weft_page_row *old;
	unsigned int i;

	for (i = 0; before && i < before->nrows; i++) {
		old = &before->rows[i];
		if (old->serial != row->serial)
			continue;
		out -= weft_min(out, page_row_out(old));
		in -= weft_min(in, page_row_in(old));
	}
	if (!before)
		out = in = 0;
	fprintf(to, "  %8.3f %8.3f", (double)out / seconds / 1e9,
		(double)in / seconds / 1e9);
}

/* Why a peer of this host is not reached within it. */
static void print_barrier(FILE *to, const struct weft_page_row *row)
{
	const char *text = weft_barrier_text(row->barrier);

	if (text)
		fprintf(to, "    on this host: %s\n", text);
}

static void print_peers(FILE *to, const struct pages *pages,
			const struct pages *before, const struct page *page)
{
	const struct page *old = find_before(before, page);
	const double seconds =
		before && before != pages
			? (double)(pages->read_ns - before->read_ns) / 1e9
			: 1;
	char text[TEXT_LEN], out[TOOL_BYTES_LEN], in[TOOL_BYTES_LEN];
	int peer = 4, way = 3;
	unsigned int i;

	for (i = 0; i < page->nrows; i++) {
		format_peer(pages, page, &page->rows[i], text, sizeof(text));
		peer = (int)weft_max((size_t)peer, strlen(text));
		format_way(page, &page->rows[i], text, sizeof(text));
		way = (int)weft_max((size_t)way, strlen(text));
	}
	fprintf(to, "  %-*s  %-*s  %8s %8s%s\n", peer, "peer", way, "way",
		"sent", "received", before ? "  GB/s out  GB/s in" : "");
	for (i = 0; i < page->nrows; i++) {
		format_peer(pages, page, &page->rows[i], text, sizeof(text));
		fprintf(to, "  %-*s", peer, text);
		format_way(page, &page->rows[i], text, sizeof(text));
		fprintf(to, "  %-*s  %8s %8s", way, text,
			tool_format_bytes(page_row_out(&page->rows[i]), out),
			tool_format_bytes(page_row_in(&page->rows[i]), in));
		if (before)
			print_rates(to, old, seconds, &page->rows[i]);
		fputc('\n', to);
		print_barrier(to, &page->rows[i]);
	}
}

static const char *runtime_name(const char *runtime)
{
	if (!strcmp(runtime, "ucx"))
		return "UCX";
	return !strcmp(runtime, "nccl") ? "NCCL" : "weft";
}

static void print_message(FILE *to, const struct weft_page_head *head)
{
	char age[32];

	if (!*head->message)
		return;
	format_age(head->message_s, age, sizeof(age));
	fprintf(to, "  ");
	if (head->errors)
		fprintf(to, "%" PRIu64 " error%s; ", (uint64_t)head->errors,
			head->errors > 1 ? "s" : "");
	fprintf(to, "%s ago: %s\n", age, head->message);
}

/* Ranks of NCCL's that weft has introduced to each other have the same id. */
static void print_introduced(FILE *to, const struct pages *pages,
			     const struct page *page)
{
	char name[TEXT_LEN];
	unsigned int i, n = 0;

	if (!*page->head.introduced)
		return;
	for (i = 0; i < pages->n; i++) {
		if (&pages->list[i] == page ||
		    !pages_introduced(page, &pages->list[i]))
			continue;
		page_format(&pages->list[i], name, sizeof(name));
		fprintf(to, "%s%s", n++ ? ", " : "  introduced to ", name);
	}
	fputs(n ? ": NCCL goes its own ways there\n"
		: "  introduced, but to no process that is here\n",
	      to);
}

static void print_process(FILE *to, const struct pages *pages,
			  const struct pages *before, const struct page *page)
{
	char name[TEXT_LEN], age[32];

	page_format(page, name, sizeof(name));
	format_age(page->head.since_s, age, sizeof(age));
	fprintf(to, "\n%s: %s, for %s%s\n", name,
		runtime_name(page->head.runtime), age,
		page->nrows || *page->head.introduced ? "" : ", no peers");
	if (page->nrows)
		print_peers(to, pages, before, page);
	if (page->head.unlisted)
		fprintf(to, "  and %u peers for which its page has no room\n",
			page->head.unlisted);
	print_introduced(to, pages, page);
	print_message(to, &page->head);
}

static void print_look(FILE *to, const struct look *look,
		       const struct look *before)
{
	const struct pages *pages;
	unsigned int i, k, n = 0;

	for (i = 0; i < look->n; i++) {
		pages = &look->folders[i];
		if (!pages->n)
			continue;
		fprintf(to, "%s%s: %u process%s\n", n++ ? "\n" : "",
			pages->path, pages->n, pages->n > 1 ? "es" : "");
		for (k = 0; k < pages->n; k++)
			print_process(to, pages,
				      before ? &before->folders[i] : NULL,
				      &pages->list[k]);
	}
	if (n)
		return;
	fputs("no process of this user has weft open\n", to);
}

/* ---- JSON ---------------------------------------------------------------- */

static void print_json_row(const struct pages *pages,
			   const struct weft_page_row *row)
{
	const struct page *peer = pages_find(pages, row->peer);

	printf("{\"weft\":");
	tool_print_json(row->device);
	printf(",\"netdev\":");
	tool_print_json(row->netdev);
	printf(",\"id\":\"%016" PRIx64 "\",\"peer\":\"%016" PRIx64
	       "\",\"where\":",
	       row->id, row->peer);
	tool_print_json(row->where);
	if (peer)
		printf(",\"process\":%d", (int)(peer - pages->list));
	if (weft_barrier_text(row->barrier)) {
		printf(",\"barrier\":");
		tool_print_json(weft_barrier_text(row->barrier));
	}
#define X(name, help) printf(",\"" #name "\":%" PRIu64, (uint64_t)row->c.name);
	WEFT_COUNTERS(X)
#undef X
	putchar('}');
}

static void print_json_process(const struct pages *pages,
			       const struct page *page)
{
	const struct weft_page_head *head = &page->head;
	unsigned int i;

	printf("{\"program\":");
	tool_print_json(head->program);
	printf(",\"pid\":%" PRIu64 ",\"own_pid\":%" PRIu64 ",\"host\":",
	       page->pid, head->pid);
	tool_print_json(head->host);
	printf(",\"runtime\":");
	tool_print_json(head->runtime);
	if (*head->introduced) {
		printf(",\"introduced\":");
		tool_print_json(head->introduced);
	}
	printf(",\"since\":%" PRIu64 ",\"errors\":%" PRIu64
	       ",\"message_at\":%" PRIu64 ",\"message\":",
	       head->since_s, (uint64_t)head->errors,
	       (uint64_t)head->message_s);
	tool_print_json(head->message);
	printf(",\"unlisted\":%u,\"peers\":[", head->unlisted);
	for (i = 0; i < page->nrows; i++) {
		if (i)
			putchar(',');
		print_json_row(pages, &page->rows[i]);
	}
	printf("]}");
}

static void print_json(const struct look *look)
{
	const struct pages *pages;
	unsigned int i, k, n = 0;

	putchar('[');
	for (i = 0; i < look->n; i++) {
		pages = &look->folders[i];
		if (look->err[i])
			continue;
		printf("%s{\"folder\":", n++ ? "," : "");
		tool_print_json(pages->path);
		printf(",\"processes\":[");
		for (k = 0; k < pages->n; k++) {
			if (k)
				putchar(',');
			print_json_process(pages, &pages->list[k]);
		}
		printf("]}");
	}
	puts("]");
}

/* ---- weft status --------------------------------------------------------- */

static int show_once(bool json)
{
	struct look look;
	unsigned int i;
	int rc = 0;

	look_now(&look, true);
	for (i = 0; i < look.n; i++) {
		if (look.err[i] && look.err[i] != -ENOENT)
			rc = tool_error("status", "cannot read '%s': %s",
					look.folders[i].path,
					strerror(-look.err[i]));
	}
	if (json)
		print_json(&look);
	else
		print_look(stdout, &look, NULL);
	free_look(&look);
	return rc;
}

int status_main(int argc, char **argv)
{
	int json = 0;
	const struct option options[] = {
		TOOL_HELP,
		{ "json", no_argument, &json, 'j' },
		{ 0 },
	};
	int rc;

	signal(SIGPIPE, SIG_DFL); /* `| head` is no error */
	rc = tool_options(argc, argv, options, false, NULL, status_help);
	if (rc >= 0)
		return rc;
	if (optind < argc)
		return usage_error("status", "'%s' is one argument too many",
				   argv[optind]);
	return show_once(json);
}

/* ---- weft top ------------------------------------------------------------ */

static volatile sig_atomic_t ended;

static void end(int sig)
{
	ended = 1;
}

/* So much of a line goes on one of the terminal's, if possible up to a space.
 */
static size_t fit(const char *text, size_t len, size_t columns)
{
	size_t n = columns;

	if (len <= columns)
		return len;
	while (n && text[n] != ' ')
		n--;
	return n ? n : columns;
}

/*
 * No more lines than the terminal shows: without it the first ones scroll away.
 * Long ones are wrapped: at their end they say what to do.
 */
static void print_screen(const char *text)
{
	const size_t indent = 6;
	struct winsize size = { 0 };
	size_t len, n, at = 0;
	unsigned int line;

	/* a serial line does not know */
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row)
		size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	fputs("\033[H", stdout);
	for (line = 1; *text && line < size.ws_row; line++) {
		len = strcspn(text, "\n");
		n = fit(text, len, size.ws_col > at ? size.ws_col - at : 1);
		printf("%*s%.*s\033[K\n", (int)at, "", (int)n, text);
		at = n < len ? indent : 0;
		text += n;
		text += *text == '\n' || *text == ' ';
	}
	printf("\033[J\033[7m%s q ends \033[0m\033[K", *text ? " more " : "");
	fflush(stdout);
}

static void show_look(const struct look *look, const struct look *before)
{
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	if (!to)
		return;
	print_look(to, look, before);
	if (!fclose(to))
		print_screen(text);
	free(text);
}

/* Waits for the next look; true: the user wants no more. */
static bool wait_key(bool keys)
{
	struct pollfd p = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
	char c;

	if (poll(&p, 1, EVERY_MS) <= 0)
		return ended;
	return read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q';
}

static void show_always(bool keys)
{
	struct look looks[2], *before = NULL, *now = &looks[0];

	do {
		look_now(now, false);
		/* compare the first one with itself */
		show_look(now, before ? before : now);
		if (before)
			free_look(before);
		before = now;
		now = now == looks ? looks + 1 : looks;
	} while (!wait_key(keys));
	free_look(before);
}

static void show_on_terminal(void)
{
	const struct sigaction on_end = { .sa_handler = end };
	struct termios was, raw;
	const bool keys = !tcgetattr(STDIN_FILENO, &was);

	sigaction(SIGINT, &on_end, NULL);
	sigaction(SIGTERM, &on_end, NULL);
	sigaction(SIGHUP, &on_end, NULL);
	if (keys) {
		raw = was;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	fputs("\033[?1049h\033[?25l", stdout); /* a screen of our own */
	show_always(keys);
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &was);
}

int top_main(int argc, char **argv)
{
	static const struct option options[] = { TOOL_HELP, { 0 } };
	int rc = tool_options(argc, argv, options, false, NULL, top_help);

	if (rc >= 0)
		return rc;
	if (optind < argc)
		return usage_error("top", "'%s' is one argument too many",
				   argv[optind]);
	if (!isatty(STDOUT_FILENO))
		return show_once(false);
	show_on_terminal();
	return 0;
}

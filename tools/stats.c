/* SPDX-License-Identifier: BSD-3-Clause */
/* weft stats: the lines that WEFT_STATS made processes write, added up. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tool.h"
#include "util/parse.h"
#include "util/util.h"

static const char help[] =
	"usage: weft stats FILE...\n"
	"\n"
	"Add up what WEFT_STATS made the processes of a job write: who carried how\n"
	"much between whom. Lines that are not weft's are counted and left out.\n"
	"\n"
	"  -h, --help  show this\n";

/* One line: a peer of an interface. */
struct line {
	uint64_t id, peer, out, in;
	char process[96]; /* "pod-a 4711" */
	char where[80];
	char path[32];
	bool done;
};

/* What two processes have sent each other over one transport. */
struct sum {
	const char *a, *b, *path;
	uint64_t out, in;
};

struct job {
	struct line *lines;
	size_t n, room;
	uint64_t unreadable;
	struct sum *sums;
	size_t nsums;
};

/* ---- reading ------------------------------------------------------------- */

static bool get_text(const char *text, const char *key, char *to, size_t len)
{
	char word[64];
	const char *at;
	size_t n;

	snprintf(word, sizeof(word), "\"%s\":\"", key);
	at = strstr(text, word);
	if (!at)
		return false;
	at += strlen(word);
	n = strcspn(at, "\"");
	if (at[n] != '"' || n >= len)
		return false;
	memcpy(to, at, n);
	to[n] = '\0';
	return true;
}

static bool get_number(const char *text, const char *key, uint64_t *n)
{
	char word[64], digits[24];
	const char *at;
	size_t len;

	snprintf(word, sizeof(word), "\"%s\":", key);
	at = strstr(text, word);
	if (!at)
		return false;
	at += strlen(word);
	len = strcspn(at, ",}");
	if (!at[len] || len >= sizeof(digits))
		return false;
	memcpy(digits, at, len);
	digits[len] = '\0';
	return !weft_parse_u64(digits, 0, UINT64_MAX, n);
}

static bool get_id(const char *text, const char *key, uint64_t *id)
{
	char word[24] = "0x";

	return get_text(text, key, word + 2, sizeof(word) - 2) &&
	       !weft_parse_u64(word, 0, UINT64_MAX, id);
}

static bool get_sum(const char *text, const char *const keys[3], uint64_t *sum)
{
	uint64_t n;
	size_t i;

	for (i = 0, *sum = 0; i < 3; i++, *sum += n)
		if (!get_number(text, keys[i], &n))
			return false;
	return true;
}

static bool read_line(const char *text, struct line *l)
{
	static const char *const out[] = { "tx_message_bytes", "tx_put_bytes",
					   "tx_get_bytes" };
	static const char *const in[] = { "rx_message_bytes", "rx_put_bytes",
					  "get_bytes" };
	char device[16], runtime[16], host[65];
	uint64_t pid;

	memset(l, 0, sizeof(*l));
	if (strncmp(text, "{\"weft\":", 8) || !strstr(text, "}\n") ||
	    !get_text(text, "weft", device, sizeof(device)) ||
	    !get_text(text, "runtime", runtime, sizeof(runtime)) ||
	    !get_text(text, "host", host, sizeof(host)) ||
	    !get_text(text, "where", l->where, sizeof(l->where)) ||
	    !get_number(text, "pid", &pid) || !get_id(text, "id", &l->id) ||
	    !get_id(text, "peer", &l->peer) || !get_sum(text, out, &l->out) ||
	    !get_sum(text, in, &l->in))
		return false;
	snprintf(l->process, sizeof(l->process), "%s %" PRIu64, host, pid);
	tool_format_path(runtime, device, l->path, sizeof(l->path));
	return true;
}

static bool add_line(struct job *job, const struct line *l)
{
	struct line *lines = job->lines;

	if (job->n == job->room) {
		job->room = job->room ? 2 * job->room : 256;
		lines = realloc(lines, job->room * sizeof(*lines));
		if (!lines)
			return false;
		job->lines = lines;
	}
	lines[job->n++] = *l;
	return true;
}

static int read_file(struct job *job, const char *name)
{
	FILE *f = fopen(name, "re");
	char *text = NULL;
	size_t size = 0;
	struct line l;
	bool ok = f;

	while (ok && getline(&text, &size, f) >= 0)
		if (read_line(text, &l))
			ok = add_line(job, &l);
		else
			job->unreadable++;
	ok = ok && !ferror(f);
	if (!ok)
		tool_error("stats", "cannot read '%s': %m", name);
	free(text);
	if (f)
		fclose(f);
	return ok ? 0 : EXIT_FAILED;
}

/* ---- adding up ----------------------------------------------------------- */

static int compare_lines(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->peer < y->peer ? -1 : x->peer > y->peer;
}

/* What the peer's own process wrote of the same pair; NULL: nothing. */
static struct line *find_other(const struct job *job, const struct line *l)
{
	const struct line key = { .id = l->peer, .peer = l->id };

	if (!l->peer || l->peer == l->id)
		return NULL;
	return bsearch(&key, job->lines, job->n, sizeof(key), compare_lines);
}

/*
 * Both sides count both directions; if they differ, one was killed, or its
 * adapter has answered a get by itself.
 */
static void add_pair(struct job *job, struct line *l)
{
	struct line *other = find_other(job, l);
	struct sum sum = { l->process, l->where, l->path, l->out, l->in };

	if (l->done)
		return;
	if (other) {
		other->done = true;
		sum.b = other->process;
		sum.out = weft_max(l->out, other->in);
		sum.in = weft_max(l->in, other->out);
	}
	if (other && strcmp(sum.a, sum.b) > 0)
		sum = (struct sum){ sum.b, sum.a, sum.path, sum.in, sum.out };
	job->sums[job->nsums++] = sum;
}

static int compare_sums(const void *x, const void *y)
{
	const struct sum *a = x, *b = y;
	int order = strcmp(a->a, b->a);

	if (!order)
		order = strcmp(a->b, b->b);
	return order ? order : strcmp(a->path, b->path);
}

/* Merges pairs of the same two processes over the same transport. */
static void merge_sums(struct job *job)
{
	const struct sum *s, *end = job->sums + job->nsums;
	struct sum *last = job->sums;

	if (!job->nsums)
		return;
	qsort(job->sums, job->nsums, sizeof(*job->sums), compare_sums);
	for (s = last + 1; s < end; s++) {
		if (compare_sums(s, last)) {
			*++last = *s;
		} else {
			last->out += s->out;
			last->in += s->in;
		}
	}
	job->nsums = (size_t)(last + 1 - job->sums);
}

static bool add_up(struct job *job)
{
	size_t i;

	job->sums = calloc(job->n ? job->n : 1, sizeof(*job->sums));
	if (!job->sums)
		return false;
	if (job->n)
		qsort(job->lines, job->n, sizeof(*job->lines), compare_lines);
	for (i = 0; i < job->n; i++)
		add_pair(job, &job->lines[i]);
	merge_sums(job);
	return true;
}

/* ---- printing ------------------------------------------------------------ */

static void print_sums(const struct job *job)
{
	char out[TOOL_BYTES_LEN], in[TOOL_BYTES_LEN];
	int a = 1, b = 1, path = 3;
	const struct sum *s, *end = job->sums + job->nsums;

	for (s = job->sums; s < end; s++) {
		a = (int)weft_max((size_t)a, strlen(s->a));
		b = (int)weft_max((size_t)b, strlen(s->b));
		path = (int)weft_max((size_t)path, strlen(s->path));
	}
	printf("%-*s  %-*s  %-*s  %8s  %8s\n", a, "A", b, "B", path, "way",
	       "A to B", "B to A");
	for (s = job->sums; s < end; s++)
		printf("%-*s  %-*s  %-*s  %8s  %8s\n", a, s->a, b, s->b, path,
		       s->path, tool_format_bytes(s->out, out),
		       tool_format_bytes(s->in, in));
}

int stats_main(int argc, char **argv)
{
	static const struct option options[] = { TOOL_HELP, { 0 } };
	struct job job = { .n = 0 };
	int rc = tool_options(argc, argv, options, false, NULL, help);

	signal(SIGPIPE, SIG_DFL); /* `| head` is no error */
	if (rc >= 0)
		return rc;
	rc = 0;
	if (optind == argc)
		return usage_error("stats", "no file given");
	for (; optind < argc; optind++)
		rc |= read_file(&job, argv[optind]);
	if (!add_up(&job))
		rc = tool_error("stats", "out of memory");
	else if (job.nsums)
		print_sums(&job);
	if (job.unreadable)
		fprintf(stderr,
			"weft stats: %" PRIu64
			" line%s left out that no process wrote for WEFT_STATS, or only in part\n",
			job.unreadable, job.unreadable > 1 ? "s" : "");
	if (!job.n && !rc)
		rc = tool_error("stats", "no line of WEFT_STATS in any file");
	free(job.sums);
	free(job.lines);
	return rc;
}

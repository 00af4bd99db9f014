/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way the processes that run here have to each other. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "stats/neighbour.h"
#include "tools/pages.h"
#include "tools/tool.h"
#include "util/util.h"

#define SHOWN 16 /* as many columns as a terminal has */

#define INTRODUCED 0

/* The first that two have is the one that carries most. */
static const struct {
	const char *device, *name, *legend;
} ways[] = {
	[INTRODUCED] = { "", "OWN", "introduced: NCCL's own ways" },
	{ "nvlink", "NVL", "GPU memory is mapped" },
	{ "shm", "SHM", "shared memory" },
	{ "ib", "IB", "an adapter" },
	{ "tcp", "TCP", "the network" },
};

/* The place in ways[], or its end. */
static size_t find_way(const struct page *from, const struct page *to)
{
	size_t way, best = ARRAY_SIZE(ways);
	unsigned int i;

	if (pages_introduced(from, to))
		return INTRODUCED;
	for (i = 0; i < from->nrows; i++)
		for (way = 0; way < best; way++)
			if (!strcmp(from->rows[i].device, ways[way].device) &&
			    page_has(to, from->rows[i].peer))
				best = way;
	return best;
}

static void print_row(const struct pages *pages, unsigned int row,
		      unsigned int n, bool seen[ARRAY_SIZE(ways)])
{
	char text[128];
	unsigned int i;
	size_t way;

	printf("  %4u", row + 1);
	for (i = 0; i < n; i++) {
		way = find_way(&pages->list[row], &pages->list[i]);
		if (i == row) {
			printf("  X  ");
		} else if (way < ARRAY_SIZE(ways)) {
			seen[way] = true;
			printf("  %-3s", ways[way].name);
		} else {
			printf("  -  ");
		}
	}
	page_format(&pages->list[row], text, sizeof(text));
	printf("  %s\n", text);
}

/* What would make more of a process's peers NVL or SHM. */
static void print_barriers(const struct pages *pages, unsigned int row)
{
	const struct page *page = &pages->list[row], *peer;
	const char *text;
	unsigned int i;

	for (i = 0; i < page->nrows; i++) {
		text = weft_barrier_text(page->rows[i].barrier);
		if (!text)
			continue;
		peer = pages_find(pages, page->rows[i].peer);
		if (peer)
			printf("  %u to %d: %s\n", row + 1,
			       (int)(peer - pages->list) + 1, text);
		else
			printf("  %u to %s: %s\n", row + 1, page->rows[i].where,
			       text);
	}
}

static void print_matrix(const struct pages *pages)
{
	const unsigned int n = (unsigned int)weft_min(pages->n, SHOWN);
	bool seen[ARRAY_SIZE(ways)] = { false };
	unsigned int i;
	size_t way;

	printf("\nProcesses in %s\n      ", pages->path);
	for (i = 0; i < n; i++)
		printf(i + 1 < n ? "  %-3u" : "  %u", i + 1);
	putchar('\n');
	for (i = 0; i < n; i++)
		print_row(pages, i, n, seen);
	if (pages->n > n)
		printf("  and %u more\n", pages->n - n);
	for (way = 0; way < ARRAY_SIZE(ways); way++)
		if (seen[way])
			printf("  %-3s  %s\n", ways[way].name,
			       ways[way].legend);
	puts("  -    no connection");
	for (i = 0; i < n; i++)
		print_barriers(pages, i);
}

void info_processes(void)
{
	struct pages pages;
	unsigned int i;

	for (i = 0; pages_read(i, false, &pages) != -ERANGE; i++) {
		if (pages.n > 1)
			print_matrix(&pages);
		pages_free(&pages);
	}
	pages_free(&pages);
}

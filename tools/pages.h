/* SPDX-License-Identifier: BSD-3-Clause */
/* The pages of counters (stats/page.h) in a run folder. */
#ifndef WEFT_TOOLS_PAGES_H
#define WEFT_TOOLS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stats/page.h"
#include "host/rundir.h"

#define PAGE_NAME 32

/* A copy of a living process's page; every text in it is printable. */
struct page {
	char name[PAGE_NAME];
	uint64_t pid; /* as this process sees it; 0: it does not */
	struct weft_page_head head;
	struct weft_page_row *rows; /* those in use */
	unsigned int nrows;
};

struct pages {
	char path[sizeof(((struct weft_rundir *)0)->path)]; /* of the folder */
	uint64_t read_ns;
	struct page *list; /* the oldest process first */
	unsigned int n;
};

/*
 * Those in the @i-th folder: what weft_rundir_find() returns, or -ENOMEM.  Call
 * pages_free() in any case.  @report: say what is skipped.
 */
int pages_read(unsigned int i, bool report, struct pages *pages);
void pages_free(struct pages *pages);
/* The process that has an interface @id; NULL: none, or @id is 0. */
const struct page *pages_find(const struct pages *pages, uint64_t id);
bool page_has(const struct page *p, uint64_t id);
/* Are both NCCL's, and has weft introduced them to each other? */
bool pages_introduced(const struct page *a, const struct page *b);

/* "python 4711", "python 4711 (17 in pod-a)", "python (17 in pod-a)" */
void page_format(const struct page *p, char *to, size_t len);

uint64_t page_row_out(const struct weft_page_row *row);
uint64_t page_row_in(const struct weft_page_row *row);

#endif

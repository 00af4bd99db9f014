/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/flush.h"

#include <errno.h>
#include <stdlib.h>

struct flush {
	struct weft_list link;
	struct weft_op *op;
};

void weft_flushes_init(struct weft_flushes *f)
{
	weft_list_init(&f->list);
	f->n = 0;
}

int weft_flushes_add(struct weft_flushes *f, struct weft_op *op)
{
	struct flush *one;

	if (!op)
		return -EINPROGRESS;
	one = malloc(sizeof(*one));
	if (!one)
		return -ENOMEM;
	one->op = op;
	weft_list_add_tail(&f->list, &one->link);
	f->n++;
	return -EINPROGRESS;
}

unsigned int weft_flushes_end(struct weft_flushes *f, int status)
{
	unsigned int left = f->n, ended = 0;
	struct flush *one;
	struct weft_op *op;

	/* a done() may end the rest itself, by cancelling the endpoint */
	while (left-- && f->n) {
		one = weft_list_first(&f->list, struct flush, link);
		weft_list_del(&one->link);
		f->n--;
		op = one->op;
		free(one);
		op->done(op, status);
		ended++;
	}
	return ended;
}

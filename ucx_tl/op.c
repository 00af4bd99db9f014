/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that the device has in progress, and their completion in UCX. */
#include <stdlib.h>
#include "ucx_tl/status.h"
#include "ucx_tl/uct.h"

static void op_done(struct weft_op *base, int status)
{
	struct weft_uct_op *op = container_of(base, struct weft_uct_op, op);
	struct weft_uct_completion *comp = op->comp;

	if (op->rma)
		op->rma->rma_out--;
	weft_uct_op_put(op); /* the callback may send again */
	if (!comp)
		return;
	if (status && comp->status == WEFT_UCS_OK)
		comp->status = weft_ucs_status(status);
	if (--comp->count == 0)
		comp->func(comp);
}

struct weft_uct_op *weft_uct_op_get(struct weft_uct_iface *iface,
				    struct weft_uct_completion *comp)
{
	struct weft_uct_op *op = iface->free_ops;

	if (op) {
		iface->free_ops = op->next;
	} else {
		op = malloc(sizeof(*op));
		if (!op)
			return NULL;
		op->iface = iface;
		op->op.done = op_done;
	}
	op->comp = comp;
	op->rma = NULL;
	return op;
}

void weft_uct_op_put(struct weft_uct_op *op)
{
	op->next = op->iface->free_ops;
	op->iface->free_ops = op;
}

void weft_uct_op_free_all(struct weft_uct_iface *iface)
{
	while (iface->free_ops) {
		struct weft_uct_op *op = iface->free_ops;

		iface->free_ops = op->next;
		free(op);
	}
}

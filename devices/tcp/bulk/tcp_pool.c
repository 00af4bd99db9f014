/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and chunks, of which some are kept for use again. */
#include "devices/tcp/bulk/tcp_pool.h"

#include <stdlib.h>

#define SPARE_PUTS   64u  /* of an interface */
#define SPARE_CHUNKS 256u /* of a connection */

struct tcp_put *tcp_put_new(struct tcp_conn *conn)
{
	struct tcp_iface *iface = conn->iface;
	struct tcp_put *put;

	if (weft_list_empty(&iface->spare_puts)) {
		put = malloc(sizeof(*put));
		if (!put)
			return NULL;
	} else {
		put = weft_list_first(&iface->spare_puts, struct tcp_put, link);
		weft_list_del(&put->link);
		iface->nspare_puts--;
	}
	memset(put, 0, offsetof(struct tcp_put, iov));
	weft_list_init(&put->link);
	weft_list_init(&put->done_link);
	weft_list_init(&put->chunks);
	put->conn = conn;
	return put;
}

void tcp_put_free(struct tcp_put *put)
{
	struct tcp_iface *iface = put->conn->iface;

	if (iface->nspare_puts == SPARE_PUTS) {
		free(put);
		return;
	}
	weft_list_add_tail(&iface->spare_puts, &put->link);
	iface->nspare_puts++;
}

void tcp_puts_spare_free(struct tcp_iface *iface)
{
	struct tcp_put *put, *next;

	weft_list_for_each (put, next, &iface->spare_puts, link)
		free(put);
}

struct tcp_chunk *tcp_chunk_new(struct tcp_bulk *b)
{
	struct tcp_chunk *c;

	if (weft_list_empty(&b->spare)) {
		c = malloc(sizeof(*c));
		if (!c)
			return NULL;
	} else {
		c = weft_list_first(&b->spare, struct tcp_chunk, link);
		weft_list_del(&c->link);
		b->nspare--;
	}
	*c = (struct tcp_chunk){ 0 };
	weft_list_init(&c->link);
	return c;
}

void tcp_chunk_free(struct tcp_bulk *b, struct tcp_chunk *c)
{
	if (b->nspare == SPARE_CHUNKS) {
		free(c);
		return;
	}
	weft_list_add_tail(&b->spare, &c->link);
	b->nspare++;
}

void tcp_chunks_spare_free(struct tcp_bulk *b)
{
	struct tcp_chunk *c, *next;

	weft_list_for_each (c, next, &b->spare, link)
		free(c);
}

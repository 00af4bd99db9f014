/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any bytes from an unproven connection, to a listener and to a dialer. Neither
 * may believe them: to be proven takes a key that the input cannot hold.
 */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(struct weft_hello *h, const uint8_t *data, size_t size)
{
	size_t n;
	int steps;

	for (steps = 0; steps < 64; steps++) {
		switch (h->state) {
		case WEFT_HELLO_SENDING:
			if (h->out_len > sizeof(h->out))
				abort();
			h->out_done = h->out_len;
			weft_hello_step(h);
			break;
		case WEFT_HELLO_READING:
			if (h->want > sizeof(h->in) || h->have >= h->want)
				abort();
			n = h->want - h->have;
			if (n > size)
				return;
			memcpy(h->in + h->have, data, n);
			h->have += n;
			data += n;
			size -= n;
			weft_hello_step(h);
			break;
		case WEFT_HELLO_DECIDE:
		case WEFT_HELLO_DONE:
			abort();
		case WEFT_HELLO_FAILED:
			if (h->err >= 0)
				abort();
			return;
		}
	}
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t key[WEFT_KEY_LEN] = "not in the input",
			     own[WEFT_KEY_LEN] = "this one neither",
			     purpose[WEFT_HELLO_PURPOSE];
	struct weft_hello h;

	weft_hello_listen(&h, key);
	feed(&h, data, size);
	weft_hello_dial(&h, key, own, purpose);
	feed(&h, data, size);
	return 0;
}

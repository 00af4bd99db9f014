/* SPDX-License-Identifier: BSD-3-Clause */
/* Any two byte strings as an address: the first byte says where they part. */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t iface[WEFT_IFACE_ADDR_LEN], dev[WEFT_DEV_ADDR_MAX];
	char text[WEFT_SOCKADDR_STR];
	struct weft_address a;
	size_t split, len;

	if (!size)
		return 0;
	split = data[0] < size - 1 ? data[0] : size - 1;
	data++;
	size--;
	if (weft_address_unpack(data, split, data + split, size - split, &a))
		return 0;
	/* What was parsed is what was sent. */
	weft_address_pack_iface(&a, iface);
	len = weft_address_pack_dev(&a, dev);
	if (memcmp(iface, data, sizeof(iface)) ||
	    memcmp(dev, data + split, len))
		abort();
	weft_sockaddr_str(&a.sa, text, sizeof(text));
	weft_address_has_version(&a);
	return 0;
}

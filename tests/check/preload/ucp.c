/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a libucp that was linked with the libuct of the same copy. */
#include <stdio.h>
#include <stdlib.h>

#define VISIBLE __attribute__((visibility("default")))

signed char uct_query_components(void **components, unsigned *count);

VISIBLE signed char ucp_config_read(const char *prefix, const char *file,
				    void **config);
VISIBLE signed char ucp_config_read(const char *prefix, const char *file,
				    void **config)
{
	const char *mapped = getenv("WEFT_TEST_MAPPED");

	*config = (void *)(mapped ? mapped : "not mapped");
	return prefix || file ? -1 : 0;
}

VISIBLE void ucp_show(void);
VISIBLE void ucp_show(void)
{
	void *text = "nothing";
	unsigned count = 0;
	int status = uct_query_components(&text, &count);

	printf("%d %u %s\n", status, count, (char *)text);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for a libuct: its list holds what was "registered" with this copy. */
#define VISIBLE __attribute__((visibility("default")))

VISIBLE const char *uct_registered;

VISIBLE signed char uct_query_components(void **components, unsigned *count);
VISIBLE signed char uct_query_components(void **components, unsigned *count)
{
	*components = (void *)(uct_registered ? uct_registered : COPY " alone");
	*count = 1;
	return 0;
}

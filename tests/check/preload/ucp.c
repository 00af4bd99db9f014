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

/* A worker is its copy's name, and progress returns the first letter of it. */
VISIBLE signed char ucp_worker_get_efd(void *worker, int *fd);
VISIBLE signed char ucp_worker_get_efd(void *worker, int *fd)
{
	*fd = 3;
	return worker ? 0 : -5;
}

VISIBLE unsigned int ucp_worker_progress(void *worker);
VISIBLE unsigned int ucp_worker_progress(void *worker)
{
	return worker ? (unsigned char)*COPY : 1;
}

VISIBLE signed char ucp_worker_arm(void *worker);
VISIBLE signed char ucp_worker_arm(void *worker)
{
	return worker ? -15 : -5;
}

VISIBLE signed char ucp_worker_signal(void *worker);
VISIBLE signed char ucp_worker_signal(void *worker)
{
	return worker ? 0 : -5;
}

VISIBLE void ucp_worker_destroy(void *worker);
VISIBLE void ucp_worker_destroy(void *worker)
{
	printf(", destroyed %s\n", (char *)worker);
}

VISIBLE void ucp_work(void);
VISIBLE void ucp_work(void)
{
	unsigned int before, after;
	signed char armed, refused;
	char copy[] = COPY;
	int fd = 0;

	refused = ucp_worker_get_efd(NULL, &fd);
	before = ucp_worker_progress(copy);
	ucp_worker_get_efd(copy, &fd);
	after = ucp_worker_progress(copy);
	armed = ucp_worker_arm(copy);
	printf(", efd %d %d, progress %u %u, arm %d", refused, fd, before,
	       after, armed);
	ucp_worker_destroy(copy);
}

VISIBLE void ucp_show(void);
VISIBLE void ucp_show(void)
{
	void *text = "nothing";
	unsigned count = 0;
	int status = uct_query_components(&text, &count);

	printf("%d %u %s\n", status, count, (char *)text);
}

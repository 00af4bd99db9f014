/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a fuzz target over the files of its corpus, so that `make check` does
 * so with any compiler.  Program NAME_replay takes corpus/NAME.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *dir, const char *name)
{
	static uint8_t buf[1 << 20];
	uint8_t *exact;
	char path[4400];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "rb");
	if (!file) {
		fprintf(stderr, "# %s: %s\n", path, strerror(errno));
		return -1;
	}
	size = fread(buf, 1, sizeof(buf), file);
	fclose(file);
	/* of its exact size, so that ASan sees a byte read behind it */
	exact = malloc(size ? size : 1);
	if (!exact)
		return -1;
	memcpy(exact, buf, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return 0;
}

/* .../tests/fuzz/NAME_replay in the build: corpus/NAME in the source tree */
static DIR *open_corpus(const char *program, char *path, size_t size)
{
	const char *src = getenv("WEFT_SRC"), *name = strrchr(program, '/');
	size_t len;

	name = name ? name + 1 : program;
	len = strlen(name);
	if (!src || len < 8 || strcmp(name + len - 7, "_replay"))
		return NULL;
	snprintf(path, size, "%s/tests/fuzz/corpus/%.*s", src, (int)len - 7,
		 name);
	return opendir(path);
}

int main(int argc, char **argv)
{
	struct dirent *entry;
	int count = 0, failed = 0;
	char path[4096];
	DIR *dir;

	setvbuf(stdout, NULL, _IOLBF, 0);
	dir = open_corpus(argv[0], path, sizeof(path));
	if (!dir) {
		fprintf(stderr, "%s: no corpus; is WEFT_SRC set?\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		if (replay(path, entry->d_name)) {
			failed = 1;
			printf("not ok %d - %s\n", count, entry->d_name);
		} else {
			printf("ok %d - %s\n", count, entry->d_name);
		}
	}
	closedir(dir);
	printf("1..%d\n", count);
	return failed || !count;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVLink device for as long as one likes: processes put to and get
 * from each other at random, GPU memory of all kinds that is mapped, while one
 * after the other is killed, or leaves, and is started again. nvlink_soak [-t
 * SECONDS] [-s SEED] Every byte is checked, and those before and behind; in the
 * end so is what each has counted.  With WEFT_LIBCUDA naming the fake driver it
 * checks itself, and that nothing is left mapped.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/nvlink/soak.h"

struct board *board;
int me;
uint32_t rnd_state;

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

uint32_t rnd(uint32_t below)
{
	rnd_state = rnd_state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)rnd_state * below >> 32);
}

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %d, %s:%d: ", me, file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

/* ---- the parent ---------------------------------------------------------- */

static pid_t pids[RANKS];
static unsigned int lives[RANKS];
static uint32_t seed = 1;

static void start(int rank)
{
	fflush(NULL);
	pids[rank] = fork();
	if (!pids[rank])
		_exit(live(rank, ++lives[rank], seed));
	lives[rank]++;
	if (pids[rank] < 0)
		fail("fork: %s", strerror(errno));
}

static void end_all(void)
{
	int i;

	for (i = 0; i < RANKS; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

/* None ends unless asked to. */
static bool is_one_gone(void)
{
	int status, i;

	for (i = 0; i < RANKS; i++) {
		if (waitpid(pids[i], &status, WNOHANG) != pids[i])
			continue;
		fprintf(stderr, "rank %d ended by itself, status %#x\n", i,
			status);
		pids[i] = 0;
		return true;
	}
	return false;
}

static bool end_one(int rank, int sig)
{
	int status;

	atomic_store(&board->rank[rank].leaves, true);
	kill(pids[rank], sig);
	if (waitpid(pids[rank], &status, 0) != pids[rank])
		return false;
	pids[rank] = 0;
	if (sig == SIGKILL || (WIFEXITED(status) && !WEXITSTATUS(status)))
		return true;
	fprintf(stderr, "rank %d could not leave, status %#x\n", rank, status);
	return false;
}

static bool is_up(int rank)
{
	return board->rank[rank].life == lives[rank];
}

static bool have_all_met(void)
{
	int i, j;

	for (i = 0; i < RANKS; i++)
		for (j = 0; j < RANKS; j++)
			if (i != j && board->met[i][j] != lives[j])
				return false;
	return true;
}

static bool has_all_happened(void)
{
	unsigned long puts = 0, gets = 0;
	int i;

	for (i = 0; i < RANKS; i++) {
		puts += board->rank[i].puts;
		gets += board->rank[i].gets;
	}
	return puts && gets;
}

static bool soak(double seconds, unsigned int *killed, unsigned int *left)
{
	const double end = now() + seconds;
	double next = now() + 1;
	int rank;

	for (rank = 0; rank < RANKS; rank++)
		start(rank);
	rnd_state = seed;
	while (now() < end || !have_all_met() || !has_all_happened()) {
		if (now() > end + STUCK_S) {
			fprintf(stderr, "too little has happened\n");
			return false;
		}
		usleep(10000);
		if (is_one_gone())
			return false;
		rank = rnd(RANKS);
		if (now() < next || now() >= end || !is_up(rank))
			continue;
		next = now() + 0.2 + rnd(800) * 1e-3;
		if (rnd(3)) {
			++*killed;
			if (!end_one(rank, SIGKILL))
				return false;
		} else {
			++*left;
			if (!end_one(rank, SIGTERM))
				return false;
		}
		start(rank);
	}
	return true;
}

static bool finish(void)
{
	int status, rank;
	bool good = true;

	atomic_store(&board->stop, true);
	for (rank = 0; rank < RANKS; rank++) {
		if (waitpid(pids[rank], &status, 0) != pids[rank] || status) {
			fprintf(stderr, "rank %d: status %#x\n", rank, status);
			good = false;
			end_all();
		}
	}
	return good;
}

int main(int argc, char **argv)
{
	unsigned long puts = 0, gets = 0, notes = 0;
	char dir[] = "/tmp/weft-soak-XXXXXX", cmd[64];
	unsigned int killed = 0, left = 0, i;
	double seconds = 5;
	bool good;
	int c;

	while ((c = getopt(argc, argv, "t:s:")) != -1) {
		if (c == 't')
			seconds = atof(optarg);
		else if (c == 's')
			seed = strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (!mkdtemp(dir) || setenv("WEFT_RUN_DIR", dir, 1))
		return 2;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		return 2;
	good = soak(seconds, &killed, &left);
	if (!good)
		end_all();
	else
		good = finish();
	for (i = 0; i < RANKS; i++) {
		puts += board->rank[i].puts;
		gets += board->rank[i].gets;
		notes += board->rank[i].notes;
	}
	printf("seed %u: %lu puts, %lu gets, %lu notes; %u killed, %u left\n",
	       seed, puts, gets, notes, killed, left);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (system(cmd))
		return 2;
	return !good;
}

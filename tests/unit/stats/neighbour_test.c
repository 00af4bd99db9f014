/* SPDX-License-Identifier: BSD-3-Clause */
/* What two processes of a host say of each other where they go over TCP. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "stats/neighbour.h"
#include "settings/settings.h"
#include "stats/stats.h"
#include "tests/lib/proc.h"
#include "util/util.h"

/* A process: what it has, and where it is. */
struct who {
	bool nccl, meets, elsewhere, no_proc;
	uint64_t place, uid;
	const char *introduce;
};

static uint64_t become(const struct who *who)
{
	if (who->introduce)
		setenv("WEFT_NCCL_INTRODUCE", who->introduce, 1);
	weft_settings_reset();
	if (who->nccl)
		weft_stats_runtime("nccl");
	if (who->meets)
		weft_neighbour_meets(who->place);
	if ((who->elsewhere && unshare(CLONE_NEWNET)) ||
	    (who->uid && seteuid((uid_t)who->uid)))
		return UINT64_MAX;
	if (who->no_proc)
		hidden = "/proc/sys";
	return weft_neighbour_word(weft_netns_id());
}

static uint64_t word_of(const struct who *who)
{
	uint64_t word = UINT64_MAX;
	int fds[2];
	pid_t pid;

	cr_assert(zero(int, pipe(fds)));
	pid = fork();
	if (!pid) {
		word = become(who);
		_exit(write(fds[1], &word, sizeof(word)) < 0);
	}
	close(fds[1]);
	cr_assert(eq(sz, (size_t)read(fds[0], &word, sizeof(word)),
		     sizeof(word)));
	close(fds[0]);
	waitpid(pid, NULL, 0);
	if (word == UINT64_MAX)
		cr_skip_test(
			"may not make network namespaces or change the user");
	return word;
}

/* Few bits tell two namespaces apart, so a pair of new ones is asked, too. */
static const char *ask(const struct who *own, const struct who *peer,
		       bool *chosen)
{
	unsigned int why =
		weft_neighbour_barrier(word_of(own), word_of(peer), chosen);

	if (!why)
		why = weft_neighbour_barrier(word_of(own), word_of(peer),
					     chosen);
	return weft_barrier_text(why);
}

#define says(own, peer, text, by_choice)                                    \
	do {                                                                \
		bool chosen_ = !(by_choice);                                \
		const char *why_ =                                          \
			ask(&(struct who)own, &(struct who)peer, &chosen_); \
		cr_assert(ne(ptr, (void *)why_, NULL));                     \
		cr_expect(ne(ptr, strstr(why_, text), NULL), "%s", why_);   \
		cr_expect(eq(int, chosen_, by_choice));                     \
	} while (0)

#define says_nothing(own, peer)                                               \
	do {                                                                  \
		bool chosen_;                                                 \
		cr_expect(eq(ptr,                                             \
			     (void *)ask(&(struct who)own, &(struct who)peer, \
					 &chosen_),                           \
			     NULL));                                          \
	} while (0)

/* braces with commas are no arguments of a macro */
#define WHO(...)            \
	{                   \
		__VA_ARGS__ \
	}
#define SHM	    WHO(.meets = true, .place = 77)
#define OTHER_POD   WHO(.meets = true, .place = 77, .elsewhere = true)
#define OTHER_PLACE WHO(.meets = true, .place = 78, .elsewhere = true)
#define NO_PLACE    WHO(.meets = true, .elsewhere = true)
#define NO_SHM	    WHO(.elsewhere = true)
#define RANK	    WHO(.nccl = true, .meets = true, .place = 5)
#define OTHER_RANK  WHO(.nccl = true, .meets = true, .place = 6)
#define ALONE	    WHO(.nccl = true)
#define OTHER_ALONE WHO(.nccl = true, .elsewhere = true)
#define OFF	    WHO(.nccl = true, .elsewhere = true, .introduce = "off")

Test(neighbour, those_that_can_meet_say_nothing)
{
	says_nothing(SHM, SHM);
	says_nothing(SHM, OTHER_POD);
	says_nothing(SHM, WHO(.meets = true, .place = 78));
	says_nothing(RANK, RANK);
	says_nothing(ALONE, ALONE);
}

Test(neighbour, of_other_hosts_or_unknown_nothing_is_said)
{
	bool chosen;

	says_nothing(SHM, WHO(.meets = true, .no_proc = true));
	says_nothing(SHM, ALONE);
	cr_expect(zero(uint, weft_neighbour_barrier(word_of(&(struct who)SHM),
						    0, &chosen)));
	cr_expect(
		zero(uint, weft_neighbour_barrier(
				   word_of(&(struct who)SHM),
				   word_of(&(struct who)OTHER_PLACE) ^ BIT(40),
				   &chosen)));
}

Test(neighbour, what_keeps_ucx_from_shared_memory)
{
	says(NO_SHM, SHM, "this process offers no weft_shm", true);
	says(SHM, NO_SHM, "the peer offers no weft_shm", true);
	says(SHM, OTHER_PLACE, "share neither the run folder", false);
	says(NO_PLACE, SHM, "this process can use no run folder", false);
	says(SHM, NO_PLACE, "the peer can use no run folder", false);
}

/* As few bits tell users apart, of whom some look like this one. */
Test(neighbour, another_user_is_named)
{
	const struct who own = SHM;
	struct who peer = OTHER_PLACE;
	bool named = false, chosen;
	const char *why;

	for (peer.uid = 4711; !named && peer.uid < 4715; peer.uid++) {
		why = ask(&own, &peer, &chosen);
		named = why && strstr(why, "runs as another user");
	}
	cr_expect(named);
}

Test(neighbour, what_keeps_nccl_from_its_own_ways)
{
	says(ALONE, OTHER_ALONE, "NCCL here is not introduced", false);
	says(ALONE, RANK, "NCCL here is not introduced", false);
	says(RANK, ALONE, "the peer's NCCL is not introduced", false);
	says(RANK, OTHER_RANK, "compare 'weft info nccl'", false);
	says(ALONE, OFF, "not introduced", true);
	says(OFF, ALONE, "not introduced", true);
}

/* Each connection wants the word: the user is looked up once in a process. */
Test(neighbour, the_user_is_looked_up_once_and_again_in_a_child)
{
	const uint64_t fresh = word_of(&(struct who)SHM);
	uint64_t word;

	hidden = "/proc/self/uid_map";
	word = become(&(struct who)SHM);
	hidden = NULL;
	cr_expect(eq(u64, become(&(struct who)SHM), word));
	cr_expect(eq(u64, word_of(&(struct who)SHM), fresh));
}

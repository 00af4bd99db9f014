/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys.  A key of the contract says nothing to an adapter, and a process may
 * have more adapters than 16 bytes have room for: what a key stands for on
 * this connection's adapter is asked of its owner, once, and kept.  A key that
 * was revoked since is refused by the adapter, and forgotten then.
 */
#include "devices/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "util/log.h"

static struct weft_list *bucket(struct ib_conn *conn, const struct weft_rkey *k)
{
	return &conn->keys[(k->slot ^ k->token) % IB_KEY_BUCKETS];
}

static struct ib_key *find(struct ib_conn *conn, const struct weft_rkey *key)
{
	struct ib_key *k, *tmp;

	if (!conn->keys)
		return NULL;
	weft_list_for_each(k, tmp, bucket(conn, key), link)
		if (weft_rkey_same(&k->key, key))
			return k;
	return NULL;
}

void ib_key_forget(struct ib_conn *conn, struct ib_key *k)
{
	if (k->state == IB_KEY_ASK)
		conn->nasks--;
	weft_list_del(&k->link);
	weft_list_del(&k->age);
	conn->nkeys--;
	free(k);
}

static bool make_buckets(struct ib_conn *conn)
{
	unsigned int i;

	if (conn->keys)
		return true;
	conn->keys = malloc(IB_KEY_BUCKETS * sizeof(*conn->keys));
	for (i = 0; conn->keys && i < IB_KEY_BUCKETS; i++)
		weft_list_init(&conn->keys[i]);
	return conn->keys;
}

/* Room for one more: the oldest that nobody waits for goes. */
static void evict(struct ib_conn *conn)
{
	struct ib_key *k, *tmp;

	if (conn->nkeys < IB_KEYS)
		return;
	weft_list_for_each(k, tmp, &conn->keys_age, age)
		if (k->state == IB_KEY_KNOWN || k->state == IB_KEY_REFUSED) {
			ib_key_forget(conn, k);
			return;
		}
}

struct ib_key *ib_key_get(struct ib_conn *conn, const struct weft_rkey *key)
{
	struct ib_key *k = find(conn, key);

	if (k)
		return k;
	if (!make_buckets(conn))
		return NULL;
	evict(conn);
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->key = *key;
	k->state = IB_KEY_ASK;
	weft_list_add_tail(bucket(conn, key), &k->link);
	weft_list_add_tail(&conn->keys_age, &k->age);
	conn->nkeys++;
	conn->nasks++;
	return k;
}

bool ib_key_allows(const struct ib_key *k, uint64_t addr, size_t len)
{
	return addr >= k->base && len <= k->len && addr - k->base <= k->len - len;
}

/* ---- questions and answers ----------------------------------------------- */

static struct ib_tx *control_tx(struct ib_conn *conn)
{
	/* one place stays free for giving credits back */
	if (!conn->credits || !ib_xfer_room(conn, 1) ||
	    conn->tx_used - conn->user_used + 1 >= IB_TX_SLOTS - IB_USER_SLOTS)
		return NULL;
	return ib_tx_take(conn, false);
}

static bool ask(struct ib_conn *conn, struct ib_key *k)
{
	struct ib_tx *tx = control_tx(conn);

	if (!tx)
		return false;
	weft_rkey_pack(&k->key, tx->buf + IB_HEAD);
	tx->len = IB_HEAD + WEFT_RKEY_LEN;
	if (ib_xfer_send(conn, tx, IB_KIND_ASK, 0, NULL)) {
		ib_tx_give(conn, tx);
		return false;
	}
	k->state = IB_KEY_ASKED;
	conn->nasks--;
	return true;
}

static bool answer(struct ib_conn *conn, const struct ib_question *q)
{
	struct ib_tx *tx = control_tx(conn);
	struct ib_key_answer a;
	uint8_t *p;
	int err;

	if (!tx)
		return false;
	/* asked now, not when the question came: it may have been revoked */
	err = ib_mem_resolve(conn->iface->dev, &q->key, &a);
	/* what is not mapped any more has no key, as the contract says */
	if (err == -EFAULT)
		err = -EACCES;
	p = tx->buf + IB_HEAD;
	weft_rkey_pack(&q->key, p);
	weft_put_le64(p + 16, a.base);
	weft_put_le64(p + 24, a.len);
	weft_put_le32(p + 32, a.rkey);
	weft_put_le32(p + 36, (uint32_t)-err);
	tx->len = IB_HEAD + IB_ANSWER_LEN;
	if (ib_xfer_send(conn, tx, IB_KIND_ANSWER, 0, NULL)) {
		ib_tx_give(conn, tx);
		return false;
	}
	return true;
}

void ib_key_pump(struct ib_conn *conn)
{
	struct ib_question *q;
	struct ib_key *k, *tmp;

	while (!weft_list_empty(&conn->questions)) {
		q = weft_list_first(&conn->questions, struct ib_question, link);
		if (!answer(conn, q))
			return;
		weft_list_del(&q->link);
		conn->nquestions--;
		free(q);
	}
	if (!conn->nasks)
		return;
	weft_list_for_each(k, tmp, &conn->keys_age, age)
		if (k->state == IB_KEY_ASK && !ask(conn, k))
			return;
}

int ib_key_question(struct ib_conn *conn, const uint8_t *body, size_t len)
{
	struct ib_question *q;

	/* it asks no more than it has operations waiting */
	if (len != WEFT_RKEY_LEN || conn->nquestions == IB_ANSWERS)
		return -EPROTO;
	q = malloc(sizeof(*q));
	if (!q)
		return -ENOMEM;
	weft_rkey_unpack(body, &q->key);
	weft_list_add_tail(&conn->questions, &q->link);
	conn->nquestions++;
	return 0;
}

/*
 * A key that is wrong is the asker's affair; that its owner has not the means
 * is told, and how: the cause is in the owner's log alone.
 */
static int why_refused(const struct ib_conn *conn, uint32_t error)
{
	if (error == EACCES)
		return -EACCES;
	weft_warn_once("'%s': peer %016llx cannot register memory that it described (%s); it has logged the cause",
		       conn->iface->port.name,
		       (unsigned long long)conn->peer->id,
		       strerror((int)error));
	return error == ENOMEM || error == EOPNOTSUPP ? -(int)error : -EIO;
}

int ib_key_answer(struct ib_conn *conn, const uint8_t *body, size_t len)
{
	struct weft_rkey key;
	struct ib_key *k;
	uint32_t error;

	if (len != IB_ANSWER_LEN)
		return -EPROTO;
	weft_rkey_unpack(body, &key);
	k = find(conn, &key);
	if (!k || k->state != IB_KEY_ASKED)
		return 0;	/* given up meanwhile */
	k->base = weft_get_le64(body + 16);
	k->len = weft_get_le64(body + 24);
	k->rkey = weft_get_le32(body + 32);
	error = weft_get_le32(body + 36);
	k->state = error ? IB_KEY_REFUSED : IB_KEY_KNOWN;
	k->err = error ? why_refused(conn, error) : 0;
	return 0;
}

void ib_keys_free(struct ib_conn *conn)
{
	struct ib_question *q;
	struct ib_key *k;

	while (!weft_list_empty(&conn->keys_age)) {
		k = weft_list_first(&conn->keys_age, struct ib_key, age);
		ib_key_forget(conn, k);
	}
	free(conn->keys);
	conn->keys = NULL;
	while (!weft_list_empty(&conn->questions)) {
		q = weft_list_first(&conn->questions, struct ib_question, link);
		weft_list_del(&q->link);
		free(q);
	}
}

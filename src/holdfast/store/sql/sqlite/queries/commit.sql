-- Queries of the hot path: appends, and what becomes of a run after them.

-- name: RUN_COLUMNS
-- The columns of a RunRow, in the order in which Python reads them.
    r.key, r.id, r.workflow, r.version, r.queue, r.priority, r.status, r.epoch, r.owner,
    r.incarnation, r.generation, r.input, r.digest, r.output, r.created_at, r.updated_at,
    r.ended_at, r.ready_at, r.deadline_at, r.session, r.while_waiting, r.parent, r.parent_step,
    r.options, r.strikes, r.resumes, r.reason, r.fairness_key

-- name: ENTRY_COLUMNS
-- The columns of an Entry, in the order of its fields.
    seq, kind, key, at, epoch, position, attempt, failed, digest, input, output, started_at, due_at,
    mail

-- name: tail
-- The epoch of an owned run and the newest place in its journal: the fence of a single append.
SELECT r.epoch, (SELECT max(j.seq) FROM journal j WHERE j.run = r.key)
FROM runs r
WHERE r.key = ? AND r.owner IS NOT NULL;

-- name: tails
-- The same for many runs at once; CROSS JOIN makes SQLite look up each run by its key.
SELECT r.key, r.epoch, (SELECT max(j.seq) FROM journal j WHERE j.run = r.key)
FROM json_each(?) wanted CROSS JOIN runs r ON r.key = wanted.value
WHERE r.owner IS NOT NULL;

-- name: insert_entry
-- Appends an entry; the reserved columns keep their defaults. -1 stands for none.
INSERT INTO journal (run, ENTRY_COLUMNS)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, -1), nullif(?, -1));

-- name: who_owns
-- Whom to name when an append is refused.
SELECT id, status, owner, epoch FROM runs WHERE key = ?;

-- name: insert_run
-- Accepts a run, claimed at once or not.
INSERT INTO runs (
    id, workflow, version, queue, priority, status, epoch, owner, incarnation, input, digest,
    created_at, updated_at, ready_at, deadline_at, session, while_waiting, parent, parent_step,
    parent_generation, options, blocked, holds_session, fairness_key
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    (SELECT generation FROM runs WHERE key = ?), ?, ?, ?, ?
);

-- name: find_join
-- The run that a start of this id joined, and the digest of what it posted.
SELECT run, digest FROM joins WHERE id = ?;

-- name: add_join
-- Remembers that a start joined a run.
INSERT INTO joins (id, run, digest, mail, spec) VALUES (?, ?, ?, ?, ?);

-- name: unread_joins
-- What joined a run that has ended, and was not received by it.
SELECT j.id, j.digest, j.spec, j.mail, i.payload, r.session
FROM joins j JOIN inbox i ON i.id = j.mail JOIN runs r ON r.key = j.run
WHERE j.run = ? AND j.spec IS NOT NULL AND r.ended_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM journal WHERE run = j.run AND mail = j.mail)
ORDER BY j.mail;

-- name: delete_join
-- Forgets that a start joined a run.
DELETE FROM joins WHERE id = ?;

-- name: delete_mail
-- Takes back what nobody received.
DELETE FROM inbox WHERE id = ?;

-- name: forget_unread
-- What joined a run that is interrupted goes with it.
UPDATE joins SET spec = NULL WHERE run = ?;

-- name: place_of
-- Where a run stands towards its session and its parent.
SELECT session, parent, parent_step, parent_generation FROM runs WHERE key = ?;

-- name: turn_of
-- What a run that suspends may leave behind: its session's slot, strikes, and a place in its queue.
SELECT session, strikes,
    EXISTS (SELECT 1 FROM queues WHERE name = runs.queue AND concurrency IS NOT NULL)
FROM runs WHERE key = ?;

-- name: forgive
-- A run that got further is no suspect any more.
UPDATE runs SET strikes = 0 WHERE key = ? AND MADE_PROGRESS;

-- name: unseen_mail
-- Whether mail came that the suspending owner has not seen.
SELECT EXISTS (SELECT 1 FROM inbox WHERE run = ? AND id > ?);

-- name: suspend
-- The run leaves memory.
UPDATE runs
SET status = ?, owner = NULL, ready_at = ?, reason = ?, updated_at = ?,
    deadline_at = CASE WHEN NOT ? THEN deadline_at END,
    holds_session = holds_session AND while_waiting = 'hold'
WHERE key = ?;

-- name: end
-- The run is over.
UPDATE runs
SET status = ?, output = ?, ended_at = ?, updated_at = ?, owner = NULL, ready_at = NULL,
    blocked = 0, holds_session = 0, reason = NULL
WHERE key = ?;

-- name: continue_as
-- The run starts afresh; its epoch keeps rising, so the appends of before stay fenced off.
UPDATE runs
SET status = 'pending', owner = NULL, ready_at = :at, updated_at = :at, generation = generation + 1,
    input = :input, digest = :digest, strikes = 0, resumes = 0, reason = NULL
WHERE key = :run;

-- name: delete_delivered_mail
-- What a journal that is about to go has delivered, and what only the old generation asked for.
DELETE FROM inbox
WHERE run = :run AND (
    kind IN ('pause', 'child')
    OR id IN (SELECT mail FROM journal WHERE run = :run AND mail IS NOT NULL)
    OR id IN (SELECT value FROM json_each(:delivered))
);

-- name: delete_journal
-- All entries of a run.
DELETE FROM journal WHERE run = ?;

-- name: delete_promises
-- All promises of a run.
DELETE FROM promises WHERE run = ?;

-- name: upsert_promise
-- Opens a promise; it may have been answered before it was opened.
INSERT INTO promises (run, name, key, kind, type, prompt, created_at, resolved)
VALUES (:run, :name, :key, :kind, :type, :prompt, :created_at,
    EXISTS (SELECT 1 FROM inbox WHERE run = :run AND kind = 'promise' AND name = :name))
ON CONFLICT (run, name) DO UPDATE SET
    key = excluded.key, kind = excluded.kind, type = excluded.type, prompt = excluded.prompt;

-- name: set_state
-- Writes one key of a session's state.
INSERT INTO session_state (session, key, value) VALUES (?, ?, ?)
ON CONFLICT (session, key) DO UPDATE SET value = excluded.value;

-- name: delete_state
-- Deletes one key of a session's state.
DELETE FROM session_state WHERE session = ? AND key = ?;

-- name: add_message
-- Adds a message to the end of a session's list.
INSERT INTO session_messages (session, payload) VALUES (?, ?);

-- name: know_session
-- A session has state or messages from now on.
INSERT OR IGNORE INTO sessions (name, used_at) VALUES (?, 0);

-- name: use_session
-- A run of a session has ended.
UPDATE sessions SET used_at = ? WHERE name = ?;

-- name: idle_sessions
-- The sessions that were used longest ago, but for those with runs that have not ended.
SELECT name FROM sessions s
WHERE used_at < ? AND NOT EXISTS (
    SELECT 1 FROM runs WHERE session = s.name AND session IS NOT NULL AND ended_at IS NULL)
ORDER BY used_at LIMIT ?;

-- name: forget_state
-- All state of many sessions.
DELETE FROM session_state WHERE session IN (SELECT value FROM json_each(?));

-- name: forget_messages
-- All messages of many sessions.
DELETE FROM session_messages WHERE session IN (SELECT value FROM json_each(?));

-- name: forget_sessions
-- The sessions themselves.
DELETE FROM sessions WHERE name IN (SELECT value FROM json_each(?));

-- name: state
-- A session's whole state.
SELECT key, value FROM session_state WHERE session = ? ORDER BY key;

-- name: messages
-- A session's messages after one of them.
SELECT id, payload FROM session_messages WHERE session = ? AND id > ? ORDER BY id;

-- Queues, the shares of their fairness keys, and limiters of steps.

-- name: queue
-- What was declared of a queue.
SELECT name, concurrency, per_worker, rate_count, rate_micros, rate_burst, next_at, paused
FROM queues WHERE name = ?;

-- name: running
-- How many runs of a queue each worker has in memory; CROSS JOIN goes from worker to worker.
SELECT w.id, count(*) FROM workers w CROSS JOIN runs r ON r.owner = w.id AND r.queue = ?
WHERE r.owner IS NOT NULL GROUP BY w.id;

-- name: pace_queue
-- Moves a queue's rate on.
UPDATE queues SET next_at = ? WHERE name = ?;

-- name: declare_queue
-- Writes what an app says of a queue; what it says not is left as it is.
INSERT INTO queues (name, concurrency, per_worker, rate_count, rate_micros, rate_burst)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    concurrency = excluded.concurrency, per_worker = excluded.per_worker,
    rate_count = excluded.rate_count, rate_micros = excluded.rate_micros,
    rate_burst = excluded.rate_burst
WHERE (concurrency, per_worker, rate_count, rate_micros, rate_burst) IS NOT (
    excluded.concurrency, excluded.per_worker, excluded.rate_count, excluded.rate_micros,
    excluded.rate_burst);

-- name: pause_queue
-- Stops or reopens a queue that is known.
UPDATE queues SET paused = ? WHERE name = ?;

-- name: pause_undeclared_queue
-- Stops a queue that nobody declared, if there are runs in it.
INSERT INTO queues (name, paused)
SELECT :name, 1 WHERE :name = 'default'
    OR EXISTS (SELECT 1 FROM runs WHERE ended_at IS NULL AND queue = :name);

-- name: queues
-- Every queue that was declared or has runs that have not ended, and how busy it is.
WITH seen (name, running, ready, oldest) AS (
    SELECT queue, count(owner), coalesce(sum(ready_at <= :now), 0),
        min(CASE WHEN ready_at <= :now THEN ready_at END)
    FROM runs WHERE ended_at IS NULL GROUP BY queue
), names (name) AS (SELECT name FROM queues UNION SELECT name FROM seen)
SELECT names.name, q.concurrency, q.per_worker, q.rate_count, q.rate_micros,
    coalesce(q.rate_burst, 1), coalesce(q.next_at, 0), coalesce(q.paused, 0),
    coalesce(seen.running, 0), coalesce(seen.ready, 0), seen.oldest
FROM names LEFT JOIN queues q ON q.name = names.name LEFT JOIN seen ON seen.name = names.name
ORDER BY names.name;

-- name: share
-- Where those that have been in line all the time are by now.
SELECT served FROM shares WHERE queue = ? AND key = '';

-- name: serve_share
-- Counts a run for its key.
INSERT INTO shares (queue, key, served) VALUES (?, ?, ?)
ON CONFLICT (queue, key) DO UPDATE SET served = excluded.served;

-- name: prune_shares
-- Keys that would start where everybody is by now, were they not known at all.
DELETE FROM shares WHERE key <> '' AND served <= (
    SELECT s.served FROM shares s WHERE s.queue = shares.queue AND s.key = '');

-- name: limit
-- Where a limiter stands.
SELECT next_at, held_until FROM limits WHERE name = ?;

-- name: pace_limit
-- Moves a limiter on.
INSERT INTO limits (name, next_at) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at;

-- name: hold_limit
-- Holds a limiter, if it is not held for longer already.
INSERT INTO limits (name, held_until) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET held_until = max(held_until, excluded.held_until);

-- name: prune_limits
-- Limiters that would be where they are, were they not known at all.
DELETE FROM limits WHERE next_at < ? AND held_until < ?;

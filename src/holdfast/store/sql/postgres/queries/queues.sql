-- Queues, as they are read; what changes them is in functions/.

-- name: queues
-- Every queue that was declared or has runs that have not ended, and how busy it is.
WITH seen AS (
    SELECT queue AS name, count(owner)::integer AS running,
        count(*) FILTER (WHERE ready_at <= $1)::integer AS ready,
        min(ready_at) FILTER (WHERE ready_at <= $1) AS oldest
    FROM "{schema}".runs WHERE ended_at IS NULL GROUP BY queue
)
SELECT name, q.concurrency, q.per_worker, q.rate_count, q.rate_micros, coalesce(q.rate_burst, 1),
    coalesce(q.next_at, 0), coalesce(q.paused, false), coalesce(seen.running, 0),
    coalesce(seen.ready, 0), seen.oldest
FROM "{schema}".queues q FULL JOIN seen USING (name)
ORDER BY name COLLATE "C";

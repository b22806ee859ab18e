-- Schedules, as they are read; what changes them is in functions/.

-- name: SCHEDULE_COLUMNS
-- The columns of a ScheduleRow, in the order in which Python reads them.
    name, workflow, input, digest, options, cron, zone, catch_up, paused, next_at, last_at, last_run,
    updated_at

-- name: schedules
-- All schedules, or those of some workflows, or those with a tick at some time or earlier.
SELECT SCHEDULE_COLUMNS FROM "{schema}".schedules
WHERE ($1::text[] IS NULL OR workflow = ANY($1::text[]))
  AND ($2::bigint IS NULL OR (NOT paused AND next_at <= $2::bigint))
ORDER BY name COLLATE "C";

-- name: next_tick
-- The next tick of the schedules of some workflows.
SELECT min(next_at) FROM "{schema}".schedules WHERE NOT paused AND workflow = ANY($1::text[]);

-- name: next_deadline
-- The next deadline of a run that nobody executes.
SELECT min(deadline_at) FROM "{schema}".untended;

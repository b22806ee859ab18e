-- Schedules, and the ticks they make.

-- name: SCHEDULE_COLUMNS
-- The columns of a ScheduleRow, in the order in which Python reads them.
    name, workflow, input, digest, options, cron, zone, catch_up, paused, next_at, last_at, last_run,
    updated_at

-- name: schedules
-- All schedules, or those of some workflows, or those with a tick at some time or earlier.
SELECT SCHEDULE_COLUMNS FROM schedules
WHERE (:workflows IS NULL OR workflow IN (SELECT value FROM json_each(:workflows)))
  AND (:due_by IS NULL OR (paused = 0 AND next_at <= :due_by))
ORDER BY name;

-- name: next_tick
-- The next tick of the schedules of some workflows.
SELECT min(next_at) FROM schedules
WHERE paused = 0 AND workflow IN (SELECT value FROM json_each(?));

-- name: add_schedule
-- A new schedule, unless there is one of this name.
INSERT INTO schedules (
    name, workflow, input, digest, options, cron, zone, catch_up, paused, next_at, updated_at)
VALUES (
    :name, :workflow, :input, :digest, :options, :cron, :zone, :catch_up, :paused, :next_at,
    :updated_at)
ON CONFLICT (name) DO NOTHING;

-- name: change_schedule
-- Changes a schedule that is still as it was when it was read.
UPDATE schedules
SET workflow = :workflow, input = :input, digest = :digest, options = :options, cron = :cron,
    zone = :zone, catch_up = :catch_up, paused = :paused, next_at = :next_at,
    updated_at = :updated_at
WHERE name = :name AND updated_at = :seen_updated_at AND next_at IS :seen_next_at;

-- name: delete_schedule
-- Forgets a schedule; the runs of its ticks stay.
DELETE FROM schedules WHERE name = ?;

-- name: move_schedule
-- Makes a tick, if nobody else has: next_at is the place that all who make it want.
UPDATE schedules
SET next_at = :next_at, last_at = coalesce(:at, last_at)
WHERE name = :name AND paused = 0 AND next_at = :seen_next_at AND updated_at = :seen_updated_at;

-- name: ran
-- Says which run a tick has become.
UPDATE schedules SET last_run = ? WHERE name = ?;

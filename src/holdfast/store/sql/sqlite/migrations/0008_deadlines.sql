-- Deadlines at which no owner looks: of runs that nobody has begun yet, or that are halted.
CREATE INDEX runs_deadline ON runs (deadline_at)
    WHERE deadline_at IS NOT NULL AND owner IS NULL AND ended_at IS NULL
      AND (epoch = 0 OR status IN ('paused', 'parked', 'quarantined'));

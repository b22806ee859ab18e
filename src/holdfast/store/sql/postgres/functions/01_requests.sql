-- Every verb that writes is one function, so that it is one statement: one round trip, no
-- transaction left open by a client that died, nothing that a pooler in transaction mode breaks.
--
-- These are put in place again at every upgrade. What a function takes, gives and means never changes,
-- because the version of Holdfast before this one calls it too: a new meaning gets a new name.
--
-- All run in READ COMMITTED, where each statement inside a function sees what was committed before it.
-- Locks are taken in one order: schedules, sessions by name, then runs by key, then places in journals.
-- Plans are made once, when the tables may still be empty, and kept: without enable_seqscan = off, to find
-- one run would be to read all, until the next ANALYZE.
-- A function that clients call takes the id of their request first, and answers with numbers.

-- Requests: a write whose answer was lost is sent again under its id, and is done once.

CREATE OR REPLACE FUNCTION answered(_request uuid, _again boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    _outcome bigint[];
BEGIN
    -- The first try may still be under way on a connection that its client has given up.
    PERFORM pg_advisory_xact_lock(hashtextextended(_request::text, 0));
    IF _again THEN
        -- Writes, so that its own commit is acknowledged by the standbys, and with it the first one's.
        UPDATE requests SET repeats = repeats + 1 WHERE id = _request RETURNING outcome INTO _outcome;
    END IF;
    RETURN _outcome;
END $$;

CREATE OR REPLACE FUNCTION answer(_request uuid, _outcome bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO requests (id, outcome) VALUES (_request, _outcome);
    RETURN _outcome;
END $$;

-- Tells everybody that there is something to do; or only, by 'end', that a run has ended or halted.
CREATE OR REPLACE FUNCTION ring(_news text DEFAULT 'work') RETURNS void
LANGUAGE sql AS $$
    SELECT pg_notify('holdfast:' || current_schema(), _news);
$$;

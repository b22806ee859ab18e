-- Claiming.

-- Makes a worker the owner of runs whose rows are locked. A claim is an entry: if a former owner takes
-- its place at this very moment, it reads again and takes the next one.
CREATE OR REPLACE FUNCTION take(_runs bigint[], _worker text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _left bigint[] := _runs;
BEGIN
    UPDATE runs
    SET status = 'running', owner = _worker, epoch = epoch + 1, ready_at = NULL, reason = NULL,
        updated_at = _now, holds_session = session IS NOT NULL
    WHERE key = ANY(_runs);
    LOOP
        WITH placed AS (
            INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed)
            SELECT r.key, coalesce((SELECT max(seq) FROM journal j WHERE j.run = r.key), 0) + 1,
                'claim', _worker, _now, r.epoch, 0, 0, false
            FROM runs r WHERE r.key = ANY(_left) ORDER BY r.key
            ON CONFLICT DO NOTHING
            RETURNING run)
        SELECT array_agg(key) INTO _left
        FROM unnest(_left) AS missing (key) WHERE key NOT IN (SELECT run FROM placed);
        EXIT WHEN _left IS NULL;
    END LOOP;
END $$;

-- Every (workflow, queue, priority) with runs that can be claimed some time, found by jumping through
-- the index: however many runs wait there, it is one step.
CREATE OR REPLACE FUNCTION ready_heads(_workflows text[])
RETURNS TABLE (workflow text, queue text, priority integer)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY WITH RECURSIVE heads AS (
        SELECT first.* FROM unnest(_workflows) AS served (name) CROSS JOIN LATERAL (
            SELECT r.workflow, r.queue, r.priority FROM ready r WHERE r.workflow = served.name
            ORDER BY r.queue, r.priority LIMIT 1) first
        UNION ALL
        SELECT other.* FROM heads CROSS JOIN LATERAL (
            SELECT r.workflow, r.queue, r.priority FROM ready r
            WHERE r.workflow = heads.workflow
              AND (r.queue, r.priority) > (heads.queue, heads.priority)
            ORDER BY r.queue, r.priority LIMIT 1) other
    )
    SELECT h.workflow, h.queue, h.priority FROM heads h;
END $$;

-- The fairness keys in line, from a certain one on.
CREATE OR REPLACE FUNCTION keyed_lanes(
    _workflow text, _queue text, _priority integer, _prefix text, _from text, _limit integer)
RETURNS TABLE (key text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE lanes AS (
        (SELECT r.lane FROM ready r
        WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _priority
          AND r.lane >= _prefix || _from AND r.lane < left(_prefix, -1) || ','
        ORDER BY r.lane LIMIT 1)
        UNION ALL
        SELECT other.lane FROM lanes CROSS JOIN LATERAL (
            SELECT r.lane FROM ready r
            WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _priority
              AND r.lane > lanes.lane AND r.lane < left(_prefix, -1) || ','
            ORDER BY r.lane LIMIT 1) other
    )
    SELECT substr(lane, length(_prefix) + 1) FROM lanes LIMIT _limit;
$$;

-- The same, of all; when there are too many to look at, from a random one on, and round to the first again.
CREATE OR REPLACE FUNCTION in_line(
    _workflow text, _queue text, _priority integer, _prefix text) RETURNS TABLE (key text)
LANGUAGE plpgsql AS $$
DECLARE
    _lanes_max constant integer := 1000;
    _keys text[] := ARRAY(
        SELECT l.key FROM keyed_lanes(_workflow, _queue, _priority, _prefix, '', _lanes_max) l);
BEGIN
    IF cardinality(_keys) >= _lanes_max THEN
        _keys := ARRAY(
            SELECT l.key FROM keyed_lanes(_workflow, _queue, _priority, _prefix,
                lpad(to_hex(floor(random() * 65536)::integer), 4, '0'), _lanes_max) l) || _keys;
    END IF;
    RETURN QUERY SELECT DISTINCT k FROM unnest(_keys[:_lanes_max]) k;
END $$;

-- Runs with fairness keys that have slept until now take their places in line.
CREATE OR REPLACE FUNCTION put_in_line(
    _workflows text[], _queues text[], _priority integer, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs SET updated_at = _now WHERE key IN (
        SELECT slept.key FROM unnest(_workflows, _queues) AS head (workflow, queue)
        CROSS JOIN unnest(ARRAY['-', '>-']) AS asleep (lane)
        CROSS JOIN LATERAL (
            SELECT r.key FROM ready r
            WHERE r.workflow = head.workflow AND r.queue = head.queue AND r.priority = _priority
              AND r.lane = asleep.lane AND r.ready_at <= _now
            ORDER BY r.ready_at LIMIT 1000 FOR UPDATE SKIP LOCKED) slept);
END $$;

-- The first few runs that are due in one lane, locked; a lane has a part of those that were never claimed.
CREATE OR REPLACE FUNCTION due_in_lane(
    _workflow text, _queue text, _priority integer, _lane text, _now bigint, _strikes integer,
    _limit integer)
RETURNS TABLE (key bigint, ready_at bigint, strikes integer, session text, is_new boolean)
LANGUAGE plpgsql ROWS 10 AS $$
BEGIN
    RETURN QUERY SELECT r.key, r.ready_at, r.strikes, r.session, left(_lane, 1) <> '>' FROM ready r
    WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _priority
      AND r.lane = _lane AND r.ready_at <= _now AND r.strikes < _strikes
    ORDER BY r.ready_at, r.key LIMIT _limit FOR UPDATE SKIP LOCKED;
END $$;

-- What a queue still allows a worker to claim; NULL: as much as it likes. Asked by whoever has locked
-- the queue's row, and therefore sees the claims of all others.
CREATE OR REPLACE FUNCTION queue_room(_queue queues, _worker text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT least(
        CASE WHEN _queue.paused THEN 0 END,
        _queue.concurrency - CASE WHEN _queue.concurrency IS NOT NULL THEN (
            SELECT sum(has.runs) FROM workers w CROSS JOIN LATERAL (
                SELECT count(*) AS runs FROM runs r
                WHERE r.owner = w.id AND r.owner IS NOT NULL AND r.queue = _queue.name) has) END,
        _queue.per_worker - CASE WHEN _queue.per_worker IS NOT NULL THEN (
            SELECT count(*) FROM runs r
            WHERE r.owner = _worker AND r.owner IS NOT NULL AND r.queue = _queue.name) END);
$$;

-- How far apart a queue's rate sets first claims; NULL: it has none. Rounded up, so that it is never exceeded.
CREATE OR REPLACE FUNCTION rate_interval(_queue queues) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (_queue.rate_micros + _queue.rate_count - 1) / _queue.rate_count;
$$;

-- Counts runs for their keys: so many for each, which stood at `from` before, and now begins at least there.
CREATE OR REPLACE FUNCTION serve_shares(_queues text[], _keys text[], _from bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _share record;
BEGIN
    FOR _share IN
        SELECT queue, key, min(stood) AS stood, count(*) AS runs
        FROM unnest(_queues, _keys, _from) AS s (queue, key, stood)
        GROUP BY queue, key
        UNION ALL
        -- Where those that have been in line all the time are by now: where the last one stood.
        SELECT DISTINCT ON (queue) queue, '', stood, 0
        FROM unnest(_queues, _from) WITH ORDINALITY AS s (queue, stood, place)
        ORDER BY queue, key
    LOOP
        INSERT INTO shares AS s (queue, key, served)
        VALUES (_share.queue, _share.key, _share.stood + _share.runs)
        ON CONFLICT (queue, key) DO UPDATE
        SET served = greatest(s.served, _share.stood) + _share.runs;
    END LOOP;
END $$;

-- Plans are made once, when there may be no runs at all yet: those that look for runs to claim must not
-- be led to read the whole table, which is soon full of others.

-- Answers with the keys of the runs that were claimed, in order. HF002: the worker is not registered.
--
-- Inside of one priority the lanes of runs take turns: a lane is a workflow in a queue, and there a
-- fairness key. Those with keys go by how often each was served, and all that stand equal by chance.
CREATE OR REPLACE FUNCTION claim(
    _request uuid, _again boolean, _worker text, _workflows text[], _now bigint, _limit integer,
    _alone boolean)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '5s' AS $$
DECLARE
    _taken bigint[] := answered(_request, _again);
    _suspect_strikes constant integer := 2;
    _workflow text[];
    _queue text[];
    _priority integer[];
    _level record;
    _q queues[];
    _q_names text[];
    _q_room bigint[];
    _q_next bigint[];
    _nth integer;
    _free bigint[];
    _due record;
    _run runs;
    _before integer;
    _full boolean;
    _passed_over boolean;
    _suspect boolean := false;  -- one was taken, and goes alone
    _cut boolean := false;
    _s_queue text[] := ARRAY[]::text[];
    _s_key text[] := ARRAY[]::text[];
    _s_stood bigint[] := ARRAY[]::bigint[];
BEGIN
    IF _taken IS NOT NULL THEN
        RETURN _taken;
    END IF;
    _taken := ARRAY[]::bigint[];
    PERFORM 1 FROM workers WHERE id = _worker FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'not registered' USING ERRCODE = 'HF002';
    END IF;
    SELECT array_agg(h.workflow), array_agg(h.queue), array_agg(h.priority)
    INTO _workflow, _queue, _priority FROM ready_heads(_workflows) h;
    -- Whoever claims from queues with limits waits for the others here, so that they count one after the
    -- other. Nobody waits for these locks with a run's in hand.
    PERFORM 1 FROM queues WHERE name = ANY(_queue) ORDER BY name FOR UPDATE;
    IF FOUND THEN
        SELECT array_agg(q), array_agg(q.name), array_agg(queue_room(q, _worker)), array_agg(q.next_at)
        INTO _q, _q_names, _q_room, _q_next FROM queues q WHERE q.name = ANY(_queue);
    END IF;
    FOR _level IN
        SELECT priority, array_agg(workflow) AS workflows, array_agg(queue) AS queues
        FROM unnest(_workflow, _queue, _priority) AS h (workflow, queue, priority)
        GROUP BY priority ORDER BY priority DESC
    LOOP
        PERFORM put_in_line(_level.workflows, _level.queues, _level.priority, _now);
        -- A round takes what it finds, or takes it out of the queue: the next sees others.
        FOR _round IN 1..100 LOOP
            EXIT WHEN cardinality(_taken) >= _limit;
            _before := cardinality(_taken);
            _full := false;
            _passed_over := false;
            _free := ARRAY[]::bigint[];
            FOR _due IN
                WITH places AS MATERIALIZED (
                    SELECT p.workflow, p.queue, q.next_at IS NULL OR rate_interval(q.q) IS NULL
                        OR q.next_at - ((q.q).rate_burst - 1) * rate_interval(q.q) <= _now AS new_too,
                        (SELECT true FROM ready r
                            WHERE r.workflow = p.workflow AND r.queue = p.queue
                              AND r.priority = _level.priority AND r.lane > '+' AND r.lane < ','
                            LIMIT 1) AS new,
                        (SELECT true FROM ready r
                            WHERE r.workflow = p.workflow AND r.queue = p.queue
                              AND r.priority = _level.priority AND r.lane > '>+' AND r.lane < '>,'
                            LIMIT 1) AS old
                    FROM unnest(_level.workflows, _level.queues) AS p (workflow, queue)
                    LEFT JOIN (
                        SELECT * FROM unnest(_q_names, _q_room, _q_next) WITH ORDINALITY
                            AS u (name, room, next_at, nth)
                        CROSS JOIN LATERAL (SELECT _q[u.nth] AS q) whole
                    ) q ON q.name = p.queue
                    WHERE q.room IS NULL OR q.room > 0
                ), lanes AS MATERIALIZED (
                    SELECT workflow, queue, new_too, '' AS key, 0::bigint AS stood FROM places
                    UNION ALL
                    SELECT p.workflow, p.queue, p.new_too, k.key, greatest(0, lowest.served, s.served, (
                        SELECT max(m.stood) + 1 FROM unnest(_s_queue, _s_key, _s_stood)
                            AS m (queue, key, stood)
                        WHERE m.queue = p.queue AND m.key = k.key))
                    FROM places p CROSS JOIN LATERAL (
                        SELECT key FROM in_line(p.workflow, p.queue, _level.priority, '+')
                        WHERE p.new_too AND p.new
                        UNION
                        SELECT key FROM in_line(p.workflow, p.queue, _level.priority, '>+')
                        WHERE p.old) k
                    LEFT JOIN shares s ON s.queue = p.queue AND s.key = k.key
                    LEFT JOIN shares lowest ON lowest.queue = p.queue AND lowest.key = ''
                ), placed AS MATERIALIZED (
                    SELECT *, random() AS chance, CASE WHEN key = '' THEN 0 ELSE stood
                        - min(stood) FILTER (WHERE key <> '') OVER (PARTITION BY queue) END AS ahead
                    FROM lanes
                ), first AS MATERIALIZED (
                    -- Of those with a key, each has a run in line; of the others that is not known.
                    SELECT * FROM placed WHERE key = ''
                    UNION ALL
                    (SELECT * FROM placed WHERE key <> '' ORDER BY ahead, chance
                    LIMIT _limit - cardinality(_taken))
                ), asked AS MATERIALIZED (
                    SELECT *, (_limit - cardinality(_taken) + count(*) OVER () - 1)
                        / count(*) OVER () AS each,
                        CASE WHEN key = '' THEN '' ELSE '+' || key END AS name,
                        CASE WHEN _alone AND cardinality(_taken) = 0 THEN 2147483647
                            ELSE _suspect_strikes END AS strikes
                    FROM first
                )
                SELECT *, CASE WHEN oldest_strikes >= _suspect_strikes THEN oldest END AS suspect FROM (
                    SELECT a.queue, a.key AS lane, a.stood, a.ahead, a.chance, best.*,
                        best.nth >= a.each AS full,
                        first_value(best.key) OVER oldest_first AS oldest,
                        first_value(best.strikes) OVER oldest_first AS oldest_strikes
                    FROM asked a CROSS JOIN LATERAL (
                        SELECT both_parts.*, row_number() OVER (ORDER BY ready_at, key) AS nth FROM (
                            SELECT * FROM due_in_lane(a.workflow, a.queue, _level.priority, a.name,
                                _now, a.strikes, a.each::integer) WHERE a.new_too
                            UNION ALL
                            SELECT * FROM due_in_lane(a.workflow, a.queue, _level.priority,
                                '>' || a.name, _now, a.strikes, a.each::integer)
                        ) both_parts
                    ) best
                    WINDOW oldest_first AS (ORDER BY best.ready_at, best.key)
                ) due
                ORDER BY ahead + nth, chance, nth
            LOOP
                _full := _full OR _due.full;
                IF cardinality(_taken) >= _limit THEN
                    _cut := true;
                    EXIT;
                END IF;
                -- A suspect goes alone, and others may have to wait for it long: so it waits for its
                -- turn until none of them has waited longer.
                IF cardinality(_taken) = 0 AND _due.suspect IS NOT NULL THEN
                    CONTINUE WHEN _due.key <> _due.suspect;
                ELSE
                    CONTINUE WHEN _due.strikes >= _suspect_strikes;
                END IF;
                _nth := array_position(_q_names, _due.queue);
                IF _nth IS NOT NULL THEN
                    CONTINUE WHEN _q_room[_nth] <= 0;
                    CONTINUE WHEN _due.is_new AND _q_next[_nth]
                        - ((_q[_nth]).rate_burst - 1) * rate_interval(_q[_nth]) > _now;
                END IF;
                IF _due.session IS NOT NULL THEN
                    -- Rows are locked after sessions everywhere else, so this one must not wait:
                    -- whoever has the session now will ring.
                    CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended(
                        current_schema() || '/session/' || _due.session, 0));
                    SELECT * INTO _run FROM runs WHERE key = _due.key;
                    IF NOT is_next(_run, _now) THEN
                        _passed_over := true;
                        CONTINUE;
                    END IF;
                    PERFORM take(ARRAY[_due.key], _worker, _now);
                    PERFORM unblock_heirs(_due.key, _due.session);
                ELSE
                    _free := _free || _due.key;
                END IF;
                _taken := _taken || _due.key;
                IF _nth IS NOT NULL THEN
                    _q_room[_nth] := _q_room[_nth] - 1;
                    IF _due.is_new THEN
                        _q_next[_nth] := coalesce(
                            greatest(_q_next[_nth], _now) + rate_interval(_q[_nth]), _q_next[_nth]);
                    END IF;
                END IF;
                IF _due.lane <> '' THEN
                    _s_stood := _s_stood || greatest(_due.stood, (
                        SELECT max(m.stood) + 1 FROM unnest(_s_queue, _s_key, _s_stood)
                            AS m (queue, key, stood)
                        WHERE m.queue = _due.queue AND m.key = _due.lane));
                    _s_queue := _s_queue || _due.queue;
                    _s_key := _s_key || _due.lane;
                END IF;
                _suspect := _due.strikes >= _suspect_strikes;
                EXIT WHEN _suspect;
            END LOOP;
            IF cardinality(_free) > 0 THEN
                PERFORM take(_free, _worker, _now);
            END IF;
            EXIT WHEN _suspect;
            EXIT WHEN NOT _passed_over AND (NOT _full OR cardinality(_taken) = _before);
        END LOOP;
        EXIT WHEN _suspect OR cardinality(_taken) >= _limit;
    END LOOP;
    IF _cut THEN
        PERFORM ring();  -- others have passed over what was locked here and not taken
    END IF;
    IF cardinality(_s_key) > 0 THEN
        PERFORM serve_shares(_s_queue, _s_key, _s_stood);
    END IF;
    UPDATE queues SET next_at = u.next_at FROM unnest(_q_names, _q_next) AS u (name, next_at)
    WHERE queues.name = u.name AND queues.next_at <> u.next_at;
    RETURN answer(_request, _taken);
END $$;

-- Whether a run that is started now must not be claimed in passing: its queue has limits, or others are
-- ahead of it.
CREATE OR REPLACE FUNCTION is_behind(
    _workflow text, _queue text, _priority integer, _now bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    _at integer := _priority;
BEGIN
    IF EXISTS (SELECT 1 FROM queues WHERE name = _queue) THEN
        RETURN true;
    ELSIF NOT EXISTS (SELECT 1 FROM ready r WHERE r.workflow = _workflow AND r.queue = _queue) THEN
        RETURN false;
    END IF;
    WHILE _at IS NOT NULL LOOP
        IF EXISTS (
                SELECT 1 FROM unnest(ARRAY['', '-', '>', '>-']) AS asleep (lane) CROSS JOIN LATERAL (
                    SELECT 1 FROM ready r
                    WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _at
                      AND r.lane = asleep.lane AND r.ready_at <= _now LIMIT 1) due)
            OR EXISTS (
                SELECT 1 FROM unnest(ARRAY['+', '>+'], ARRAY[',', '>,']) AS line (a, z)
                CROSS JOIN LATERAL (
                    SELECT 1 FROM ready r
                    WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority = _at
                      AND r.lane > line.a AND r.lane < line.z LIMIT 1) due)
        THEN
            RETURN true;
        END IF;
        SELECT min(r.priority) INTO _at FROM ready r
        WHERE r.workflow = _workflow AND r.queue = _queue AND r.priority > _at;
    END LOOP;
    RETURN false;
END $$;

-- When a worker can claim the next run, of those with fewer strikes.
CREATE OR REPLACE FUNCTION next_ready(_workflows text[], _strikes integer, _worker text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN (SELECT min(CASE WHEN part.is_new THEN greatest(part.at,
        q.next_at - (q.rate_burst - 1) * rate_interval(q)) ELSE part.at END)
    FROM ready_heads(_workflows) head
    LEFT JOIN queues q ON q.name = head.queue
    CROSS JOIN LATERAL (
        SELECT asleep.lane IN ('', '-') AS is_new, (
            SELECT min(r.ready_at) FROM ready r
            WHERE r.workflow = head.workflow AND r.queue = head.queue AND r.priority = head.priority
              AND r.lane = asleep.lane AND r.strikes < _strikes) AS at
        FROM unnest(ARRAY['', '-', '>', '>-']) AS asleep (lane)
        UNION ALL
        -- Those in line with a fairness key are due; which of them is the first does not matter.
        SELECT line.a = '+', (
            SELECT r.ready_at FROM ready r
            WHERE r.workflow = head.workflow AND r.queue = head.queue AND r.priority = head.priority
              AND r.lane > line.a AND r.lane < line.z AND r.strikes < _strikes
            ORDER BY r.lane LIMIT 1)
        FROM unnest(ARRAY['+', '>+'], ARRAY[',', '>,']) AS line (a, z)
    ) part
    WHERE q.name IS NULL OR coalesce(queue_room(q, _worker), 1) > 0);
END $$;

CREATE OR REPLACE FUNCTION release(
    _request uuid, _again boolean, _worker text, _runs bigint[], _epochs integer[], _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _released bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    PERFORM 1 FROM runs WHERE key = ANY(_runs) ORDER BY key FOR UPDATE;
    UPDATE runs r
    SET status = 'pending', owner = NULL, ready_at = _now, updated_at = _now,
        strikes = CASE WHEN r.strikes > 0 AND made_progress(r.key) THEN 0 ELSE r.strikes END
    FROM unnest(_runs, _epochs) AS held (key, epoch)
    WHERE r.key = held.key AND r.epoch = held.epoch AND r.owner = _worker;
    GET DIAGNOSTICS _released = ROW_COUNT;
    IF _released > 0 THEN
        PERFORM ring();
    END IF;
    RETURN answer(_request, ARRAY[_released]);
END $$;

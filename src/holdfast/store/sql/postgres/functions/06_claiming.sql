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
    _keyed boolean;
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
        _keyed := has_keys(_level.workflows, _level.queues, _level.priority);
        IF _keyed THEN
            PERFORM put_in_line(_level.workflows, _level.queues, _level.priority, _now);
        END IF;
        -- A round takes what it finds, or takes it out of the queue: the next sees others.
        FOR _round IN 1..100 LOOP
            EXIT WHEN cardinality(_taken) >= _limit;
            _before := cardinality(_taken);
            _full := false;
            _passed_over := false;
            _free := ARRAY[]::bigint[];
            FOR _due IN
                WITH asked AS MATERIALIZED (
                    SELECT *, (_limit - cardinality(_taken) + count(*) OVER () - 1)
                        / count(*) OVER () AS each,
                        CASE WHEN key = '' THEN '' ELSE '+' || key END AS name,
                        CASE WHEN _alone AND cardinality(_taken) = 0 THEN 2147483647
                            ELSE _suspect_strikes END AS strikes
                    FROM lanes_in_turn(
                        _level.workflows, _level.queues, _level.priority, _now,
                        _limit - cardinality(_taken), _keyed, _q, _q_names, _q_room, _q_next,
                        _s_queue, _s_key, _s_stood)
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
                    CONTINUE WHEN NOT pg_try_advisory_xact_lock(session_lock(_due.session));
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
    -- The year 9999 is NEVER in clock.py: only mail wakes such a run.
    WHERE part.at < 253370764800000000
      AND (q.name IS NULL OR coalesce(queue_room(q, _worker), 1) > 0));
END $$;

CREATE OR REPLACE FUNCTION release(
    _request uuid, _again boolean, _worker text, _runs bigint[], _epochs integer[], _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
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

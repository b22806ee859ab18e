-- Schedules.

-- Adds a schedule, or changes one that is still as its caller has seen it. Answers with 1, or with 0:
-- meanwhile somebody else did something to it.
CREATE OR REPLACE FUNCTION put_schedule(
    _request uuid, _again boolean, _name text, _workflow text, _input bytea, _digest bytea,
    _options bytea, _cron text, _zone text, _catch_up text, _paused boolean, _next_at bigint,
    _updated_at bigint, _is_new boolean, _seen_next_at bigint, _seen_updated_at bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    IF _is_new THEN
        INSERT INTO schedules (name, workflow, input, digest, options, cron, zone, catch_up, paused,
            next_at, updated_at)
        VALUES (_name, _workflow, _input, _digest, _options, _cron, _zone, _catch_up, _paused,
            _next_at, _updated_at)
        ON CONFLICT (name) DO NOTHING;
    ELSE
        UPDATE schedules
        SET workflow = _workflow, input = _input, digest = _digest, options = _options,
            cron = _cron, zone = _zone, catch_up = _catch_up, paused = _paused,
            next_at = _next_at, updated_at = _updated_at
        WHERE name = _name AND updated_at = _seen_updated_at
          AND next_at IS NOT DISTINCT FROM _seen_next_at;
    END IF;
    IF NOT FOUND THEN
        RETURN ARRAY[0];
    END IF;
    PERFORM ring();  -- others may sleep until a later tick than its next one
    RETURN answer(_request, ARRAY[1]);
END $$;

CREATE OR REPLACE FUNCTION delete_schedule(_request uuid, _again boolean, _name text)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    DELETE FROM schedules WHERE name = _name;
    IF NOT FOUND THEN
        RETURN ARRAY[0];
    END IF;
    RETURN answer(_request, ARRAY[1]);
END $$;

-- Moves a schedule on, if it is still where its caller has seen it. Whoever comes second waits for the
-- row, looks at it again and finds it moved.
CREATE OR REPLACE FUNCTION move_schedule(
    _name text, _seen_next_at bigint, _seen_updated_at bigint, _next_at bigint, _at bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE schedules SET next_at = _next_at, last_at = coalesce(_at, last_at)
    WHERE name = _name AND NOT paused AND next_at = _seen_next_at
      AND updated_at = _seen_updated_at;
    RETURN FOUND;
END $$;

-- Leaves ticks out. Answers with 1, or with 0: somebody else did something to the schedule.
CREATE OR REPLACE FUNCTION drop_ticks(
    _request uuid, _again boolean, _name text, _seen_next_at bigint, _seen_updated_at bigint,
    _next_at bigint, _at bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    IF NOT move_schedule(_name, _seen_next_at, _seen_updated_at, _next_at, _at) THEN
        RETURN ARRAY[0];
    END IF;
    RETURN answer(_request, ARRAY[1]);
END $$;

-- Makes a tick: accepts its run and moves its schedule on. Answers with 0, 0, 0 if somebody else did
-- something to the schedule; else with 1 and what `start_in_session` says of the run.
CREATE OR REPLACE FUNCTION tick(
    _request uuid, _again boolean, _name text, _seen_next_at bigint, _seen_updated_at bigint,
    _next_at bigint, _at bigint, _id text, _workflow text, _version text, _queue text,
    _priority integer, _incarnation text, _input bytea, _digest bytea, _created_at bigint,
    _ready_at bigint, _deadline_at bigint, _while_waiting text, _parent bigint,
    _parent_step text, _options bytea, _fairness_key text, _session text, _on_busy text)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    -- Both functions below write down their own answer, too.
    _inner constant uuid := md5(_request::text)::uuid;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    IF NOT move_schedule(_name, _seen_next_at, _seen_updated_at, _next_at, _at) THEN
        RETURN ARRAY[0, 0, 0];
    END IF;
    IF _session IS NULL THEN
        _outcome := start(_inner, false, NULL, ARRAY[false], ARRAY[_id], ARRAY[_workflow],
            ARRAY[_version], ARRAY[_queue], ARRAY[_priority], ARRAY[_incarnation], ARRAY[_input],
            ARRAY[_digest], ARRAY[_created_at], ARRAY[_ready_at], ARRAY[_deadline_at],
            ARRAY[_while_waiting], ARRAY[_parent], ARRAY[_parent_step], ARRAY[_options],
            ARRAY[_fairness_key]);
    ELSE
        _outcome := start_in_session(_inner, false, NULL, false, _id, _workflow, _version, _queue,
            _priority, _incarnation, _input, _digest, _created_at, _ready_at, _deadline_at,
            _while_waiting, _parent, _parent_step, _options, _fairness_key, _session, _on_busy);
    END IF;
    IF _outcome[1] IN (0, 1) THEN
        UPDATE schedules SET last_run = _id WHERE name = _name;
    ELSIF _outcome[1] = 3 THEN
        UPDATE schedules SET last_run = (SELECT id FROM runs WHERE key = _outcome[2])
        WHERE name = _name;
    END IF;
    RETURN answer(_request, ARRAY[1] || _outcome);
END $$;

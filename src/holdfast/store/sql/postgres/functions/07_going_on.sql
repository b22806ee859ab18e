-- Going on after a stop. These answer with 0, or with why not: 1 there is no such run, 2 its status,
-- 3 it went on since.

CREATE OR REPLACE FUNCTION resume(_request uuid, _again boolean, _id text, _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _run runs;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    PERFORM lock_runs((SELECT array_agg(key) FROM runs WHERE id = _id));
    SELECT * INTO _run FROM runs WHERE id = _id;
    IF NOT FOUND THEN
        RETURN ARRAY[1];
    ELSIF _run.status NOT IN ('paused', 'parked', 'quarantined') THEN
        RETURN ARRAY[2];
    END IF;
    UPDATE runs
    SET status = 'pending', updated_at = _now, strikes = 0,
        blocked = NOT may_go(session, holds_session, parent, parent_step),
        resumes = resumes + 1, reason = NULL,
        -- One that was to begin later does so when that was to be.
        ready_at = greatest(_now, (
            SELECT convert_from(payload, 'UTF8')::bigint FROM inbox i
            WHERE i.run = _run.key AND i.kind = 'pause' AND i.kind <> 'message'))
    WHERE key = _run.key;
    DELETE FROM inbox WHERE run = _run.key AND kind = 'pause';
    PERFORM ring();
    RETURN answer(_request, ARRAY[0]);
END $$;

CREATE OR REPLACE FUNCTION rerun(
    _request uuid, _again boolean, _id text, _epoch integer, _now bigint, _drop integer[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _run runs;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    PERFORM lock_runs((SELECT array_agg(key) FROM runs WHERE id = _id));
    SELECT * INTO _run FROM runs WHERE id = _id;
    IF NOT FOUND THEN
        RETURN ARRAY[1];
    ELSIF _run.status NOT IN ('failed', 'cancelled') THEN
        RETURN ARRAY[2];
    ELSIF _run.epoch <> _epoch THEN
        RETURN ARRAY[3];
    END IF;
    -- A child whose end is forgotten may end again, and otherwise.
    DELETE FROM inbox WHERE kind = 'child' AND id IN (
        SELECT mail FROM journal WHERE run = _run.key AND seq = ANY(_drop));
    DELETE FROM inbox WHERE run = _run.key AND kind IN ('cancel', 'pause');
    -- A child that goes on has not ended: its parent may not be told so, and is told when it ends again.
    DELETE FROM inbox i USING runs p
    WHERE p.key = _run.parent AND p.generation = _run.parent_generation
      AND i.run = p.key AND i.kind = 'child' AND i.name = _run.parent_step AND i.kind <> 'message';
    DELETE FROM journal WHERE run = _run.key AND seq = ANY(_drop);
    -- No number may occur twice even inside one statement, so the new ones are negative at first.
    UPDATE journal j SET seq = -dense.place
    FROM (SELECT seq, row_number() OVER (ORDER BY seq) AS place FROM journal WHERE run = _run.key) dense
    WHERE j.run = _run.key AND j.seq = dense.seq;
    UPDATE journal SET seq = -seq WHERE run = _run.key;
    -- A deadline that has passed would end the run again at once.
    UPDATE runs
    SET status = 'pending', ready_at = _now, updated_at = _now, ended_at = NULL, output = NULL,
        blocked = NOT may_go(session, holds_session, parent, parent_step), reason = NULL,
        strikes = 0, deadline_at = CASE WHEN deadline_at > _now THEN deadline_at END
    WHERE key = _run.key;
    PERFORM ring();
    RETURN answer(_request, ARRAY[0]);
END $$;

-- Gives a run that was just accepted a copy of another one's journal, and makes it claimable.
CREATE OR REPLACE FUNCTION copy_journal(_source bigint, _target bigint, _before integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- Deliveries lose their mail id: it names a row of the other run's inbox.
    INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed, digest, input,
        output, started_at, due_at, format, codec, encryption_key, blob)
    SELECT _target, seq, kind, key, at, 0, position, attempt, failed, digest, input, output,
        started_at, due_at, format, codec, encryption_key, blob
    FROM journal WHERE run = _source AND seq < _before ORDER BY seq;
    INSERT INTO promises (run, name, key, kind, type, prompt, created_at, resolved)
    SELECT _target, name, key, kind, type, prompt, created_at, EXISTS (
        SELECT 1 FROM journal j WHERE j.run = _target AND j.kind = 'promise' AND j.key = p.key)
    FROM promises p WHERE p.run = _source;
END $$;

CREATE OR REPLACE FUNCTION fork(
    _request uuid, _again boolean, _source text, _before integer, _id text, _workflow text,
    _version text, _queue text, _priority integer, _incarnation text, _input bytea,
    _digest bytea, _created_at bigint, _ready_at bigint, _deadline_at bigint,
    _while_waiting text, _parent bigint, _parent_step text, _options bytea, _fairness_key text,
    _session text)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _from bigint;
    _key bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    IF _session IS NOT NULL THEN
        PERFORM lock_session(_session);
    END IF;
    SELECT key INTO _from FROM runs WHERE id = _source;
    IF NOT FOUND THEN
        RETURN ARRAY[1, 0];
    END IF;
    INSERT INTO runs (id, workflow, version, queue, priority, status, incarnation, input, digest,
        created_at, updated_at, ready_at, deadline_at, while_waiting, parent, parent_step,
        parent_generation, options, session, blocked, fairness_key)
    VALUES (_id, _workflow, _version, _queue, _priority, 'pending', _incarnation, _input, _digest,
        _created_at, _created_at, _ready_at, _deadline_at, _while_waiting, _parent, _parent_step,
        (SELECT generation FROM runs p WHERE p.key = _parent), _options, _session,
        NOT may_go(_session, false, _parent, _parent_step), _fairness_key)
    ON CONFLICT (id) DO NOTHING
    RETURNING key INTO _key;
    IF _key IS NULL THEN
        RETURN ARRAY[0, 0];
    END IF;
    PERFORM copy_journal(_from, _key, _before);
    PERFORM ring();
    RETURN answer(_request, ARRAY[0, _key]);
END $$;

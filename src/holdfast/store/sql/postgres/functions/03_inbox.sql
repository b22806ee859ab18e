-- The inbox.

-- Makes a waiting or halted run claimable.
CREATE OR REPLACE FUNCTION wake_run(_run runs, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs SET status = 'pending', ready_at = _now, reason = NULL, updated_at = _now,
        blocked = NOT may_go(_run.session, _run.holds_session, _run.parent, _run.parent_step)
    WHERE key = _run.key;
    PERFORM ring();
END $$;

-- Whether nobody has to unwind a run, before it ends: its code never ran, or must not.
CREATE OR REPLACE FUNCTION needs_no_worker(_run runs) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT _run.owner IS NULL AND (_run.epoch = 0 OR _run.status = 'quarantined');
$$;

-- What mail does to a run that nobody owns, and whose row is locked; an owner looks into the inbox by
-- itself. Whoever posts a cancel has locked the parent, too.
CREATE OR REPLACE FUNCTION stir(_run runs, _kind text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ring();
    IF _kind = 'cancel' THEN
        DELETE FROM inbox WHERE run = _run.key AND kind = 'pause';
    END IF;
    IF _run.status = 'running' THEN
        RETURN;
    ELSIF _kind = 'pause' THEN
        -- It keeps the time at which the run that it stops was to begin.
        UPDATE inbox SET payload = convert_to(_run.ready_at::text, 'UTF8')
        WHERE run = _run.key AND kind = 'pause' AND _run.status = 'pending' AND _run.ready_at > _now;
        IF _run.status NOT IN ('paused', 'parked', 'quarantined') THEN
            UPDATE runs SET status = 'paused', ready_at = NULL, reason = 'paused by hand',
                updated_at = _now
            WHERE key = _run.key;
            PERFORM pass_on(_run.session, _now);
        END IF;
    ELSIF _kind <> 'cancel' THEN
        -- A parked run that has a time to go on by itself also waits for something else.
        IF _run.status = 'waiting' OR (_run.status = 'parked' AND _run.ready_at IS NOT NULL) THEN
            PERFORM wake_run(_run, _now);
        END IF;
    ELSIF needs_no_worker(_run) THEN
        PERFORM end_unclaimed(_run, _now, 'cancelled', NULL);
    ELSIF _run.status <> 'pending' THEN
        PERFORM wake_run(_run, _now);
    END IF;
END $$;

-- Puts mail into the inbox of a run whose row is locked: ids then rise in the order of commits.
CREATE OR REPLACE FUNCTION put_mail(
    _run runs, _kind text, _name text, _payload bytea, _failed boolean, _now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _mail bigint;
BEGIN
    INSERT INTO inbox (run, kind, name, payload, at, failed)
    VALUES (_run.key, _kind, _name, _payload, _now, _failed) RETURNING id INTO _mail;
    IF _kind = 'promise' THEN
        UPDATE promises SET resolved = true WHERE run = _run.key AND name = _name;
    END IF;
    PERFORM stir(_run, _kind, _now);
    RETURN _mail;
END $$;

-- Answers with 0, the mail and its run, and whether it is new; or with why not: 1 there is no such
-- run, 2 it has ended, 3 the promise was answered before.
CREATE OR REPLACE FUNCTION post(
    _request uuid, _again boolean, _id text, _kind text, _name text, _payload bytea, _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _run runs;
    _there bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    PERFORM lock_runs((SELECT array_agg(key) FROM runs WHERE id = _id));
    SELECT * INTO _run FROM runs WHERE id = _id;
    IF NOT FOUND THEN
        RETURN ARRAY[1];
    ELSIF _run.ended_at IS NOT NULL THEN
        RETURN ARRAY[2];
    END IF;
    IF _kind IN ('cancel', 'pause') THEN
        -- A run that is to end is not stopped on its way: a pause finds its cancel, too.
        SELECT id INTO _there FROM inbox
        WHERE run = _run.key AND kind IN ('cancel', _kind) AND kind <> 'message'
        ORDER BY kind LIMIT 1;
    ELSIF _kind <> 'message' THEN
        SELECT id INTO _there FROM inbox
        WHERE run = _run.key AND kind = _kind AND name = _name AND kind <> 'message';
        IF FOUND AND _kind = 'promise' THEN
            RETURN ARRAY[3];
        END IF;
    END IF;
    IF _there IS NOT NULL THEN
        IF _kind = 'cancel' THEN
            PERFORM stir(_run, _kind, _now);
        END IF;
        RETURN answer(_request, ARRAY[0, _there, _run.key, 0]);
    END IF;
    _there := put_mail(_run, _kind, _name, _payload, false, _now);
    RETURN answer(_request, ARRAY[0, _there, _run.key, 1]);
END $$;

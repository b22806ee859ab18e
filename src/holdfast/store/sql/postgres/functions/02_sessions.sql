-- Whose turn it is in a session. The slot is held by the run that has holds_session; the awaited
-- children of a holder share it. `blocked` keeps the runs behind it out of the queue: a hint that may
-- be missing but is never left standing, since whoever frees a slot calls pass_on. All of it under the
-- session's lock.

CREATE OR REPLACE FUNCTION session_lock(_session text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended(current_schema() || '/session/' || _session, 0);
$$;

CREATE OR REPLACE FUNCTION lock_session(_session text) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(session_lock(_session));
$$;

CREATE OR REPLACE FUNCTION lock_runs(_runs bigint[], _sessions text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _all bigint[];
    _session text;
BEGIN
    -- Parents get mail when a child ends. Who is whose parent, and in which session, never changes.
    SELECT array_agg(key) INTO _all FROM (
        SELECT key FROM runs WHERE key = ANY(_runs)
        UNION
        SELECT parent FROM runs WHERE key = ANY(_runs) AND parent_step IS NOT NULL
    ) involved;
    FOR _session IN
        SELECT session FROM runs WHERE key = ANY(_all) AND session IS NOT NULL
        UNION
        SELECT unnest(_sessions)
        ORDER BY 1
    LOOP
        PERFORM lock_session(_session);
    END LOOP;
    PERFORM 1 FROM runs WHERE key = ANY(_all) ORDER BY key FOR UPDATE;
END $$;

CREATE OR REPLACE FUNCTION holder(_session text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT min(key) FROM runs
    WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL AND holds_session;
$$;

CREATE OR REPLACE FUNCTION inherits(_session text, _parent bigint, _parent_step text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF _parent IS NULL OR _parent_step IS NULL THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        WITH RECURSIVE line AS (
            SELECT key, parent, parent_step, session, holds_session FROM runs WHERE key = _parent
            UNION ALL
            SELECT up.key, up.parent, up.parent_step, up.session, up.holds_session
            FROM line JOIN runs up ON up.key = line.parent
            WHERE line.parent_step IS NOT NULL)
        SELECT 1 FROM line WHERE session = _session AND holds_session);
END $$;

CREATE OR REPLACE FUNCTION may_go(
    _session text, _holds boolean, _parent bigint, _parent_step text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT _session IS NULL OR _holds OR holder(_session) IS NULL
        OR inherits(_session, _parent, _parent_step);
$$;

CREATE OR REPLACE FUNCTION first_due(_session text, _now bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT key FROM runs
    WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL AND ready_at <= _now
    ORDER BY key LIMIT 1;
$$;

CREATE OR REPLACE FUNCTION pass_on(_session text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _first bigint;
BEGIN
    IF _session IS NULL OR holder(_session) IS NOT NULL THEN
        RETURN;
    END IF;
    _first := first_due(_session, _now);
    IF _first IS NULL THEN
        SELECT key INTO _first FROM runs
        WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL
          AND ready_at IS NOT NULL
        ORDER BY ready_at, key LIMIT 1;
    END IF;
    IF _first IS NOT NULL THEN
        UPDATE runs SET blocked = false WHERE key = _first AND blocked;
        PERFORM ring();
    END IF;
END $$;

-- Whether a run that is due may be claimed; if not, it leaves the queue to whoever is next.
CREATE OR REPLACE FUNCTION is_next(_run runs, _now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    _held_by bigint := holder(_run.session);
    _first bigint;
BEGIN
    IF _held_by IS NOT NULL THEN
        IF _run.holds_session OR inherits(_run.session, _run.parent, _run.parent_step) THEN
            RETURN true;
        END IF;
        UPDATE runs SET blocked = true WHERE key = _run.key;
        RETURN false;
    END IF;
    _first := first_due(_run.session, _now);
    IF _first IS NULL OR _first = _run.key THEN
        RETURN true;
    END IF;
    UPDATE runs SET blocked = true WHERE key = _run.key;
    UPDATE runs SET blocked = false WHERE key = _first;
    RETURN false;
END $$;

-- The run that this one, which is due, waits behind.
CREATE OR REPLACE FUNCTION ahead(_key bigint, _now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    _run runs;
    _first bigint;
BEGIN
    SELECT * INTO _run FROM runs
    WHERE key = _key AND session IS NOT NULL AND ready_at <= _now AND NOT holds_session;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    _first := holder(_run.session);
    IF _first IS NOT NULL AND inherits(_run.session, _run.parent, _run.parent_step) THEN
        RETURN NULL;
    END IF;
    RETURN nullif(coalesce(_first, first_due(_run.session, _now)), _key);
END $$;

-- Lets the awaited children of runs that took their session go on in it.
CREATE OR REPLACE FUNCTION unblock_heirs(_run bigint, _session text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH RECURSIVE heirs AS (
        SELECT key FROM runs WHERE parent = _run AND parent_step IS NOT NULL AND ended_at IS NULL
        UNION ALL
        SELECT r.key FROM heirs JOIN runs r ON r.parent = heirs.key
        WHERE r.parent_step IS NOT NULL AND r.ended_at IS NULL)
    UPDATE runs SET blocked = false
    WHERE blocked AND session = _session AND key IN (SELECT key FROM heirs);
    IF FOUND THEN
        PERFORM ring();
    END IF;
END $$;

-- Whether a run completed anything since it was claimed.
CREATE OR REPLACE FUNCTION made_progress(_run bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM journal j
        WHERE j.run = _run
          AND j.seq > (
            SELECT c.seq FROM journal c WHERE c.run = _run AND c.kind = 'claim'
            ORDER BY c.seq DESC LIMIT 1)
          AND j.kind IN ('step', 'timer', 'promise', 'child', 'message', 'thread'));
$$;

-- Upkeep.

CREATE OR REPLACE FUNCTION prune(
    _ended_before bigint, _limit integer, _now bigint, _keep_ids_until bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _clocks_differ_by_at_most constant bigint := 3600000000;
    _keys bigint[];
BEGIN
    SELECT array_agg(key) INTO _keys FROM (
        SELECT r.key FROM runs r
        WHERE r.ended_at < _ended_before AND r.ended_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM runs p WHERE p.key = r.parent AND p.ended_at IS NULL)
        ORDER BY r.ended_at LIMIT _limit FOR UPDATE OF r SKIP LOCKED) old;
    IF _keep_ids_until > _now THEN
        -- First the starts that joined one of them: a run of the same id has the last word.
        INSERT INTO tombstones (id, workflow, status, digest, ended_at, expires_at)
        SELECT j.id, r.workflow, r.status, j.digest, r.ended_at, _keep_ids_until
        FROM joins j JOIN runs r ON r.key = j.run WHERE j.run = ANY(_keys)
        ON CONFLICT (id) DO UPDATE SET workflow = excluded.workflow, status = excluded.status,
            digest = excluded.digest, ended_at = excluded.ended_at, expires_at = excluded.expires_at;
        INSERT INTO tombstones (id, workflow, status, digest, ended_at, expires_at)
        SELECT id, workflow, status, digest, ended_at, _keep_ids_until FROM runs
        WHERE key = ANY(_keys)
        ON CONFLICT (id) DO UPDATE SET workflow = excluded.workflow, status = excluded.status,
            digest = excluded.digest, ended_at = excluded.ended_at, expires_at = excluded.expires_at;
    END IF;
    DELETE FROM journal WHERE run = ANY(_keys);
    DELETE FROM inbox WHERE run = ANY(_keys);
    DELETE FROM promises WHERE run = ANY(_keys);
    DELETE FROM joins WHERE run = ANY(_keys);
    DELETE FROM runs WHERE key = ANY(_keys);
    -- Many more at a time than runs: they are small, and all of a busy day expire on one.
    DELETE FROM tombstones WHERE id IN (
        SELECT id FROM tombstones WHERE expires_at <= _now ORDER BY expires_at
        LIMIT 20 * _limit FOR UPDATE SKIP LOCKED);
    -- Keys and limiters that would be where they are, were they not known at all.
    DELETE FROM shares WHERE (queue, key) IN (
        SELECT s.queue, s.key FROM shares s JOIN shares lowest USING (queue)
        WHERE s.key <> '' AND lowest.key = '' AND s.served <= lowest.served
        FOR UPDATE OF s SKIP LOCKED);
    DELETE FROM limits
    WHERE next_at < _now - _clocks_differ_by_at_most AND held_until < _now - _clocks_differ_by_at_most;
    RETURN coalesce(cardinality(_keys), 0);
END $$;

-- Forgets what a session holds, under its lock; false: it holds nothing.
CREATE OR REPLACE FUNCTION forget_session(_session text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    _found boolean;
BEGIN
    DELETE FROM session_state WHERE session = _session;
    _found := FOUND;
    DELETE FROM session_messages WHERE session = _session;
    _found := _found OR FOUND;
    DELETE FROM sessions WHERE name = _session;
    RETURN _found OR FOUND;
END $$;

-- Answers with how many sessions were forgotten, and the key of a run that is in the way.
CREATE OR REPLACE FUNCTION delete_session(_request uuid, _again boolean, _session text) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _open bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    PERFORM lock_session(_session);
    SELECT min(key) INTO _open FROM runs
    WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL;
    IF _open IS NOT NULL THEN
        RETURN ARRAY[0, _open];
    END IF;
    RETURN answer(_request, ARRAY[forget_session(_session)::integer, 0]);
END $$;

-- Forgets sessions that were used long ago; says how many. Whoever has one locked is about to use it.
CREATE OR REPLACE FUNCTION prune_sessions(_used_before bigint, _limit integer) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _session text;
    _count bigint := 0;
BEGIN
    FOR _session IN
        SELECT name FROM sessions s
        WHERE used_at < _used_before AND NOT EXISTS (
            SELECT 1 FROM runs r
            WHERE r.session = s.name AND r.session IS NOT NULL AND r.ended_at IS NULL)
        ORDER BY used_at LIMIT _limit
    LOOP
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(session_lock(_session));
        -- A later look than that of the statement above.
        PERFORM 1 FROM sessions WHERE name = _session AND used_at < _used_before;
        CONTINUE WHEN NOT FOUND;
        PERFORM 1 FROM runs WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL;
        CONTINUE WHEN FOUND;
        PERFORM forget_session(_session);
        _count := _count + 1;
    END LOOP;
    RETURN _count;
END $$;

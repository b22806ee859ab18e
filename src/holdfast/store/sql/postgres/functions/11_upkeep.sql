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

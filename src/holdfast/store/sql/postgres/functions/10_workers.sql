-- Workers.

-- Names this server's present life: it changes with a restart and with a failover, and when the death of
-- one of its processes makes it cut off all others (the statistics begin anew then). Locks of an earlier
-- life are gone, whoever held them.
CREATE OR REPLACE FUNCTION server_life() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) || ' '
        || to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS') || ' '
        || coalesce(to_char(stats_reset AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS'), '')
    FROM pg_stat_bgwriter;
$$;

CREATE OR REPLACE FUNCTION notice_server() RETURNS void
LANGUAGE sql AS $$
    UPDATE holdfast SET server = server_life(), server_since = clock_timestamp()
    WHERE server <> server_life();
$$;

-- The key of one of a worker's two liveness locks.
CREATE OR REPLACE FUNCTION liveness_key(_worker text, _which integer) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT hashtextextended(current_schema() || '/worker/' || _worker || '/' || _which, 0);
$$;

-- Whether a worker's death is certain: it held its locks on this very server, and neither is held now.
-- Its own are exclusive; those who watch it share theirs, and are no sign of its life.
CREATE OR REPLACE FUNCTION is_dead(_worker text) RETURNS boolean
LANGUAGE sql SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT 1 FROM workers WHERE id = _worker AND server = server_life()
    ) AND NOT EXISTS (
        SELECT 1 FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (classid::bigint << 32 | objid::bigint)
            IN (liveness_key(_worker, 1), liveness_key(_worker, 2)));
$$;

-- What is left of a worker's lease. A server that has just come up or taken over gives everybody one
-- lease of grace: nobody could renew while there was none.
CREATE OR REPLACE FUNCTION lease_left(_worker workers) RETURNS double precision
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT extract(epoch FROM greatest(_worker.lease_until, CASE WHEN _worker.server <> h.server
        THEN h.server_since + make_interval(secs => _worker.lease_seconds) END)
        - clock_timestamp())::double precision
    FROM holdfast h;
$$;

-- Waits until one of a worker's locks is free, but for three seconds at most: whoever waits keeps VACUUM
-- from removing rows, in the whole database. Answers with what is known then: 0 it lives, 1 it lives or
-- nobody can tell, and this lock is free, 2 it is dead, 3 its lease has run out.
--
-- The lock is shared and ends with this statement: whoever is stopped while it watches keeps it from nobody.
CREATE OR REPLACE FUNCTION watch(_worker text, _which integer) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE
    _free boolean := true;
BEGIN
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(liveness_key(_worker, _which));
    EXCEPTION WHEN lock_not_available THEN
        _free := false;
    END;
    PERFORM notice_server();
    IF _free AND is_dead(_worker) THEN
        RETURN 2;
    ELSIF EXISTS (SELECT 1 FROM workers w WHERE id = _worker AND lease_left(w) <= 0) THEN
        RETURN 3;
    END IF;
    RETURN _free::integer;
END $$;

CREATE OR REPLACE FUNCTION register(
    _id text, _host text, _pid integer, _process_started text, _started_at bigint,
    _lease_seconds double precision, _note text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
BEGIN
    PERFORM notice_server();
    INSERT INTO workers (
        id, host, pid, process_started, started_at, lease_seconds, lease_until, server, note)
    VALUES (_id, _host, _pid, _process_started, _started_at, _lease_seconds,
        clock_timestamp() + make_interval(secs => _lease_seconds), server_life(), _note)
    ON CONFLICT (id) DO UPDATE SET
        lease_until = excluded.lease_until, server = excluded.server, host = excluded.host,
        pid = excluded.pid, process_started = excluded.process_started, note = excluded.note;
    PERFORM ring();
END $$;

-- Renews a lease, and says on which server the worker holds its locks; false: it has been reaped.
CREATE OR REPLACE FUNCTION renew(_worker text, _locked boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
BEGIN
    PERFORM notice_server();
    UPDATE workers
    SET lease_until = clock_timestamp() + make_interval(secs => lease_seconds),
        server = CASE WHEN _locked THEN server_life() ELSE server END
    WHERE id = _worker;
    RETURN FOUND;
END $$;

-- Frees a worker's runs, and quarantines those that keep killing theirs.
CREATE OR REPLACE FUNCTION free_runs(_worker text, _now bigint)
RETURNS TABLE (id text, quarantined boolean)
LANGUAGE plpgsql AS $$
DECLARE
    _quarantine_strikes constant integer := 5;
BEGIN
    PERFORM 1 FROM runs WHERE owner = _worker ORDER BY key FOR UPDATE;
    RETURN QUERY
    WITH owned AS MATERIALIZED (
        SELECT r.key, CASE WHEN made_progress(r.key) THEN 0 ELSE r.strikes + 1 END AS strikes
        FROM runs r WHERE r.owner = _worker
    )
    UPDATE runs r
    SET owner = NULL, strikes = owned.strikes, updated_at = coalesce(_now, r.updated_at),
        status = CASE WHEN owned.strikes >= _quarantine_strikes THEN 'quarantined' ELSE 'pending' END,
        ready_at = CASE WHEN owned.strikes >= _quarantine_strikes THEN NULL
            ELSE coalesce(_now, r.updated_at) END,
        reason = CASE WHEN owned.strikes >= _quarantine_strikes THEN
            'its worker died ' || owned.strikes || ' times without the run getting any further, the '
            || 'last one was ' || _worker || '; resume it when the cause is gone'
            ELSE r.reason END
    FROM owned WHERE r.key = owned.key
    RETURNING r.id, r.status = 'quarantined';
    PERFORM ring();
END $$;

-- Whether a worker's death is certain, and will be until this transaction ends: a worker that has lost its
-- locks and wants them back waits for it. Whoever watches has them in common with us.
CREATE OR REPLACE FUNCTION stays_dead(_worker workers) RETURNS boolean
LANGUAGE sql AS $$
    SELECT _worker.server = server_life()
        AND pg_try_advisory_xact_lock_shared(liveness_key(_worker.id, 1))
        AND pg_try_advisory_xact_lock_shared(liveness_key(_worker.id, 2));
$$;

-- Strikes a worker off and frees its runs, if it is dead or its lease has run out; `_dead` if its death is
-- certain by something else than its locks. No row: it lives, or somebody else did it; else the first row
-- is the worker, and the others its runs.
CREATE OR REPLACE FUNCTION reap(_worker text, _now bigint, _dead boolean)
RETURNS TABLE (id text, quarantined boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _row workers;
BEGIN
    PERFORM notice_server();
    SELECT * INTO _row FROM workers w WHERE w.id = _worker FOR UPDATE;
    IF NOT FOUND OR NOT (_dead OR lease_left(_row) <= 0 OR stays_dead(_row)) THEN
        RETURN;
    END IF;
    DELETE FROM workers w WHERE w.id = _worker;
    RETURN QUERY SELECT _worker, false;
    RETURN QUERY SELECT * FROM free_runs(_worker, _now);
END $$;

CREATE OR REPLACE FUNCTION hand_back(_worker text, _note text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _freed bigint;
BEGIN
    UPDATE workers w SET note = _note WHERE w.id = _worker;
    SELECT count(*) INTO _freed FROM free_runs(_worker, NULL);
    RETURN _freed;
END $$;

CREATE OR REPLACE FUNCTION deregister(_worker text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM workers WHERE id = _worker;
    PERFORM 1 FROM runs WHERE owner = _worker ORDER BY key FOR UPDATE;
    UPDATE runs SET status = 'pending', owner = NULL, ready_at = updated_at WHERE owner = _worker;
    IF FOUND THEN
        PERFORM ring();
    END IF;
END $$;

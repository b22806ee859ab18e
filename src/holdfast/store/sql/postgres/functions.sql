-- Every verb that writes is one function, so that it is one statement: one round trip, no
-- transaction left open by a client that died, nothing that a pooler in transaction mode breaks.
--
-- These are put in place again at every upgrade. What a function takes, gives and means never changes,
-- because the version of Holdfast before this one calls it too: a new meaning gets a new name.
--
-- All run in READ COMMITTED, where each statement inside a function sees what was committed before it.
-- Locks are taken in one order: schedules, sessions by name, then runs by key, then places in journals.
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

-- Whose turn it is in a session. The slot is held by the run that has holds_session; the awaited
-- children of a holder share it. `blocked` keeps the runs behind it out of the queue: a hint that may
-- be missing but is never left standing, since whoever frees a slot calls pass_on. All of it under the
-- session's lock.

CREATE OR REPLACE FUNCTION lock_session(_session text) RETURNS void
LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '/session/' || _session, 0));
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

-- The inbox.

-- Puts mail into the inbox of a run whose row is locked: ids then rise in the order of commits.
CREATE OR REPLACE FUNCTION put_mail(
    _run runs, _kind text, _name text, _payload bytea, _failed boolean, _now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _mail bigint;
    _go boolean;
BEGIN
    INSERT INTO inbox (run, kind, name, payload, at, failed)
    VALUES (_run.key, _kind, _name, _payload, _now, _failed) RETURNING id INTO _mail;
    IF _kind = 'promise' THEN
        UPDATE promises SET resolved = true WHERE run = _run.key AND name = _name;
    END IF;
    PERFORM ring();
    -- An owner looks into the inbox by itself.
    IF _run.status = 'running' THEN
        RETURN _mail;
    END IF;
    IF _kind = 'pause' THEN
        IF _run.status NOT IN ('paused', 'parked', 'quarantined') THEN
            UPDATE runs SET status = 'paused', ready_at = NULL, reason = 'paused by hand',
                updated_at = _now
            WHERE key = _run.key;
            PERFORM pass_on(_run.session, _now);
        END IF;
        RETURN _mail;
    END IF;
    _go := may_go(_run.session, _run.holds_session, _run.parent, _run.parent_step);
    IF _run.status = 'waiting'
        OR (_kind = 'cancel' AND _run.status IN ('paused', 'parked', 'quarantined'))
    THEN
        IF _kind = 'cancel' THEN
            DELETE FROM inbox WHERE run = _run.key AND kind = 'pause';
        END IF;
        UPDATE runs SET status = 'pending', ready_at = _now, blocked = NOT _go, reason = NULL,
            updated_at = _now
        WHERE key = _run.key;
    ELSIF _kind = 'cancel' AND _run.status = 'pending' AND _run.ready_at > _now THEN
        UPDATE runs SET ready_at = _now, blocked = NOT _go, updated_at = _now WHERE key = _run.key;
    END IF;
    RETURN _mail;
END $$;

-- Answers with 0, the mail and its run, and whether it is new; or with why not: 1 there is no such
-- run, 2 it has ended, 3 the promise was answered before.
CREATE OR REPLACE FUNCTION post(
    _request uuid, _again boolean, _id text, _kind text, _name text, _payload bytea, _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
        SELECT id INTO _there FROM inbox WHERE run = _run.key AND kind = _kind AND kind <> 'message';
    ELSIF _kind <> 'message' THEN
        SELECT id INTO _there FROM inbox
        WHERE run = _run.key AND kind = _kind AND name = _name AND kind <> 'message';
        IF FOUND AND _kind = 'promise' THEN
            RETURN ARRAY[3];
        END IF;
    END IF;
    IF _there IS NOT NULL THEN
        RETURN answer(_request, ARRAY[0, _there, _run.key, 0]);
    END IF;
    _there := put_mail(_run, _kind, _name, _payload, false, _now);
    RETURN answer(_request, ARRAY[0, _there, _run.key, 1]);
END $$;

-- Starting.

-- The runs of a batch that are in no session. Answers with two numbers for each: 0 it is or was there,
-- 1 it is accepted, 2 it is claimed, too; and its key.
CREATE OR REPLACE FUNCTION start(
    _request uuid, _again boolean, _worker text, _claim boolean[], _id text[], _workflow text[],
    _version text[], _queue text[], _priority integer[], _incarnation text[], _input bytea[],
    _digest bytea[], _created_at bigint[], _ready_at bigint[], _deadline_at bigint[],
    _while_waiting text[], _parent bigint[], _parent_step text[], _options bytea[],
    _fairness_key text[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _registered boolean;
    _unclaimed boolean;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    -- Whoever reaps the worker waits for this lock, and then finds these runs.
    PERFORM 1 FROM workers WHERE id = _worker FOR KEY SHARE;
    _registered := FOUND;
    WITH places AS MATERIALIZED (
        SELECT p.workflow, p.queue, p.priority,
            is_behind(p.workflow, p.queue, p.priority, max(p.created_at)) AS behind
        FROM unnest(_workflow, _queue, _priority, _created_at)
            AS p (workflow, queue, priority, created_at)
        WHERE true = ANY(_claim)
        GROUP BY p.workflow, p.queue, p.priority
    ), given AS MATERIALIZED (
        SELECT *, claim AND _registered AND ready_at <= created_at AND NOT (
            SELECT p.behind FROM places p
            WHERE (p.workflow, p.queue, p.priority) = (t.workflow, t.queue, t.priority)) AS claimed
        FROM unnest(_claim, _id, _workflow, _version, _queue, _priority, _incarnation, _input,
            _digest, _created_at, _ready_at, _deadline_at, _while_waiting, _parent, _parent_step,
            _options, _fairness_key) WITH ORDINALITY AS t (claim, id, workflow, version, queue, priority,
            incarnation, input, digest, created_at, ready_at, deadline_at, while_waiting, parent,
            parent_step, options, fairness_key, place)
    ), accepted AS (
        INSERT INTO runs (id, workflow, version, queue, priority, status, epoch, owner, incarnation,
            input, digest, created_at, updated_at, ready_at, deadline_at, while_waiting, parent,
            parent_step, parent_generation, options, fairness_key)
        SELECT id, workflow, version, queue, priority,
            CASE WHEN claimed THEN 'running' ELSE 'pending' END,
            claimed::integer, CASE WHEN claimed THEN _worker END, incarnation, input, digest,
            created_at, created_at, CASE WHEN NOT claimed THEN ready_at END, deadline_at,
            while_waiting, parent, parent_step,
            (SELECT generation FROM runs p WHERE p.key = given.parent), options, fairness_key
        FROM given
        WHERE NOT EXISTS (
            SELECT 1 FROM tombstones t WHERE t.id = given.id AND t.expires_at > given.created_at)
        ORDER BY place
        ON CONFLICT (id) DO NOTHING
        RETURNING key, id, owner, created_at
    ), claims AS (
        INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed)
        SELECT key, 1, 'claim', owner, created_at, 1, 0, 0, false FROM accepted
        WHERE owner IS NOT NULL
    ), answers AS (
        -- An id that occurs twice was accepted where it occurred first.
        SELECT given.place,
            CASE WHEN a.key IS NULL OR row_number() OVER (PARTITION BY given.id ORDER BY given.place) > 1
                THEN 0 WHEN a.owner IS NULL THEN 1 ELSE 2 END AS code,
            coalesce(a.key, 0) AS key
        FROM given LEFT JOIN accepted a ON a.id = given.id
    )
    SELECT array_agg(n ORDER BY place, nth), bool_or(nth = 1 AND n = 1) INTO _outcome, _unclaimed
    FROM answers CROSS JOIN LATERAL (VALUES (1, code::bigint), (2, key)) AS pair (nth, n);
    IF _unclaimed THEN
        PERFORM ring();
    END IF;
    RETURN answer(_request, _outcome);
END $$;

-- One run that is in a session. Answers like `start`, and besides: 3 its input went to the run of this
-- key, 4 the session is busy with the run of this key, 5 the run of this key got another input under this
-- id.
CREATE OR REPLACE FUNCTION start_in_session(
    _request uuid, _again boolean, _worker text, _claim boolean, _id text, _workflow text,
    _version text, _queue text, _priority integer, _incarnation text, _input bytea,
    _digest bytea, _created_at bigint, _ready_at bigint, _deadline_at bigint,
    _while_waiting text, _parent bigint, _parent_step text, _options bytea,
    _fairness_key text, _session text, _on_busy text)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _other runs;
    _join joins;
    _heir boolean;
    _goes boolean;
    _key bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    PERFORM lock_session(_session);
    PERFORM 1 FROM runs WHERE id = _id
    UNION ALL
    SELECT 1 FROM tombstones WHERE id = _id AND expires_at > _created_at;
    IF FOUND THEN
        RETURN ARRAY[0, 0];
    END IF;
    SELECT * INTO _join FROM joins WHERE id = _id;
    IF FOUND THEN
        RETURN ARRAY[CASE WHEN _join.digest = _digest THEN 3 ELSE 5 END, _join.run];
    END IF;
    _heir := inherits(_session, _parent, _parent_step);
    IF NOT _heir AND _on_busy <> 'enqueue' THEN
        -- Whoever holds the session comes first, then the oldest.
        PERFORM 1 FROM runs WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL
        ORDER BY key FOR UPDATE;
        FOR _other IN
            SELECT * FROM runs WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL
            ORDER BY (_on_busy = 'join' AND holds_session) DESC, key
        LOOP
            IF _on_busy = 'reject' THEN
                RETURN ARRAY[4, _other.key];
            ELSIF _on_busy = 'join' THEN
                PERFORM put_mail(_other, 'message', '', _input, false, _created_at);
                INSERT INTO joins (id, run, digest) VALUES (_id, _other.key, _digest);
                RETURN answer(_request, ARRAY[3, _other.key]);
            ELSIF NOT EXISTS (
                SELECT 1 FROM inbox WHERE run = _other.key AND kind = 'cancel' AND kind <> 'message')
            THEN
                PERFORM put_mail(_other, 'cancel', '', NULL, false, _created_at);
            END IF;
        END LOOP;
    END IF;
    _goes := _heir OR holder(_session) IS NULL;
    IF _claim AND _goes AND _ready_at <= _created_at THEN
        PERFORM 1 FROM workers WHERE id = _worker FOR KEY SHARE;
        _claim := FOUND AND first_due(_session, _created_at) IS NULL
            AND NOT is_behind(_workflow, _queue, _priority, _created_at);
    ELSE
        _claim := false;
    END IF;
    INSERT INTO runs (id, workflow, version, queue, priority, status, epoch, owner, incarnation,
        input, digest, created_at, updated_at, ready_at, deadline_at, while_waiting, parent,
        parent_step, parent_generation, options, session, blocked, holds_session, fairness_key)
    VALUES (_id, _workflow, _version, _queue, _priority,
        CASE WHEN _claim THEN 'running' ELSE 'pending' END, _claim::integer,
        CASE WHEN _claim THEN _worker END, _incarnation, _input, _digest, _created_at, _created_at,
        CASE WHEN NOT _claim THEN _ready_at END, _deadline_at, _while_waiting, _parent, _parent_step,
        (SELECT generation FROM runs p WHERE p.key = _parent), _options, _session, NOT _goes, _claim,
        _fairness_key)
    ON CONFLICT (id) DO NOTHING
    RETURNING key INTO _key;
    IF _key IS NULL THEN
        RETURN ARRAY[0, 0];
    END IF;
    IF _claim THEN
        INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed)
        VALUES (_key, 1, 'claim', _worker, _created_at, 1, 0, 0, false);
    ELSE
        PERFORM ring();
    END IF;
    RETURN answer(_request, ARRAY[CASE WHEN _claim THEN 2 ELSE 1 END, _key]);
END $$;

-- Appending.

CREATE OR REPLACE FUNCTION suspend_run(
    _run runs, _at bigint, _status text, _ready_at bigint, _seen bigint, _reason text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- Posting locks the run's row, too: mail is either seen by this statement, which is later than the
    -- lock, or posted to a run that is waiting already.
    IF EXISTS (SELECT 1 FROM inbox WHERE run = _run.key AND id > _seen) THEN
        RETURN false;
    END IF;
    UPDATE runs
    SET status = _status, owner = NULL, ready_at = _ready_at, reason = _reason, updated_at = _at,
        holds_session = holds_session AND while_waiting = 'hold',
        strikes = CASE WHEN strikes > 0 AND made_progress(key) THEN 0 ELSE strikes END
    WHERE key = _run.key;
    PERFORM pass_on(_run.session, _at);
    -- Others may sleep until a later deadline than this one, or wait for its place in the queue.
    IF _ready_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM queues WHERE name = _run.queue AND concurrency IS NOT NULL)
    THEN
        PERFORM ring();
    END IF;
    IF _status <> 'waiting' THEN
        PERFORM ring('end');
    END IF;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION end_run(_run runs, _at bigint, _status text, _output bytea) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _parent runs;
BEGIN
    UPDATE runs
    SET status = _status, output = _output, ended_at = _at, updated_at = _at, owner = NULL,
        ready_at = NULL, blocked = false, holds_session = false, reason = NULL
    WHERE key = _run.key;
    PERFORM pass_on(_run.session, _at);
    IF _run.parent IS NOT NULL AND _run.parent_step IS NOT NULL THEN
        SELECT * INTO _parent FROM runs WHERE key = _run.parent;
        IF FOUND AND _parent.ended_at IS NULL AND _parent.generation = _run.parent_generation
            AND NOT EXISTS (
                SELECT 1 FROM inbox
                WHERE run = _parent.key AND kind = 'child' AND name = _run.parent_step
                  AND kind <> 'message')
        THEN
            PERFORM put_mail(
                _parent, 'child', _run.parent_step, _output, _status <> 'completed', _at);
        END IF;
    END IF;
    IF EXISTS (SELECT 1 FROM queues WHERE name = _run.queue AND concurrency IS NOT NULL) THEN
        PERFORM ring();  -- others wait for its place in the queue
    END IF;
    PERFORM ring('end');
END $$;

CREATE OR REPLACE FUNCTION continue_run(
    _run runs, _at bigint, _input bytea, _digest bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- What the journal that goes has delivered, and what only the old generation asked for.
    DELETE FROM inbox
    WHERE run = _run.key AND (
        kind IN ('pause', 'child')
        OR id IN (SELECT mail FROM journal WHERE run = _run.key AND mail IS NOT NULL));
    DELETE FROM journal WHERE run = _run.key;
    DELETE FROM promises WHERE run = _run.key;
    UPDATE runs
    SET status = 'pending', owner = NULL, ready_at = _at, updated_at = _at,
        generation = generation + 1, input = _input, digest = _digest, strikes = 0, resumes = 0,
        reason = NULL
    WHERE key = _run.key;
    PERFORM ring();
END $$;

-- Answers with one number for each append: 0 refused, 1 done, 2 done and suspended. No run occurs twice.
--
-- The fence: an append goes in only if the entry before its first one exists with its epoch. If two
-- want one place at once, the primary key lets one of them in, and the other statement fails as a
-- whole (23505); its caller then sends its appends one by one. What was superseded while this function
-- worked is found by its last look (HF001), with the same consequence.
--
-- Entries are a record of their own: sent again, a batch that only adds entries is recognised by them. A
-- batch that also changes runs is recorded among the requests.
CREATE OR REPLACE FUNCTION append(
    _request uuid, _again boolean,
    _run bigint[], _epoch integer[], _seq integer[],
    _e_run bigint[], _e_epoch integer[], _e_seq integer[], _e_kind text[], _e_key text[],
    _e_at bigint[], _e_position integer[], _e_attempt integer[], _e_failed boolean[],
    _e_digest bytea[], _e_input bytea[], _e_output bytea[], _e_started_at bigint[],
    _e_due_at bigint[], _e_mail bigint[],
    _t_place integer[], _t_what text[], _t_at bigint[], _t_status text[], _t_ready_at bigint[],
    _t_seen bigint[], _t_reason text[], _t_payload bytea[], _t_digest bytea[],
    _p_place integer[], _p_name text[], _p_key text[], _p_kind text[], _p_type text[],
    _p_prompt bytea[], _p_created_at bigint[],
    _s_place integer[], _s_session text[], _s_key text[], _s_value bytea[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _outcome bigint[];
    _recorded constant boolean
        := _t_place IS NOT NULL OR _s_place IS NOT NULL OR 0 = ANY(_seq);
    _proven constant boolean := _again AND NOT _recorded;
    _locked bigint[];
    _all_landed boolean;
    _there bigint[];
    _mine runs;
    _then record;
BEGIN
    IF _recorded THEN
        _outcome := answered(_request, _again);
        IF _outcome IS NOT NULL THEN
            RETURN _outcome;
        END IF;
        -- A run without entries in this batch has no place that could collide: its row is locked instead.
        SELECT array_agg(run) INTO _locked FROM (
            SELECT _run[place] AS run FROM unnest(_t_place) place
            UNION ALL
            SELECT run FROM unnest(_run, _seq) a (run, seq) WHERE seq = 0
        ) changed;
        -- Messages of a session get their ids under its lock: in the order in which they are seen.
        PERFORM lock_runs(_locked, _s_session);
    END IF;
    SELECT array_agg((
            r.key IS NOT NULL AND (a.seq = 0 OR (newest.seq = a.seq - 1 AND newest.epoch = a.epoch))
            -- Nobody else writes at this epoch, so what stands at this place is this very append.
            OR own.seq IS NOT NULL
        )::integer::bigint ORDER BY a.place),
        array_agg(a.run) FILTER (WHERE own.seq IS NOT NULL)
    INTO _outcome, _there
    FROM unnest(_run, _epoch, _seq) WITH ORDINALITY AS a (run, epoch, seq, place)
    LEFT JOIN LATERAL (
        SELECT key FROM runs WHERE key = a.run AND epoch = a.epoch AND owner IS NOT NULL LIMIT 1
    ) r ON true
    LEFT JOIN LATERAL (
        SELECT seq, epoch FROM journal WHERE run = a.run ORDER BY seq DESC LIMIT 1
    ) newest ON true
    LEFT JOIN LATERAL (
        SELECT seq FROM journal
        WHERE _proven AND run = a.run AND seq = a.seq AND epoch = a.epoch LIMIT 1
    ) own ON true;
    IF _e_run IS NOT NULL THEN
        _all_landed := NOT 0 = ANY(_outcome) AND _there IS NULL;
        INSERT INTO journal (run, epoch, seq, kind, key, at, position, attempt, failed, digest,
            input, output, started_at, due_at, mail)
        SELECT e.* FROM unnest(_e_run, _e_epoch, _e_seq, _e_kind, _e_key, _e_at, _e_position,
            _e_attempt, _e_failed, _e_digest, _e_input, _e_output, _e_started_at, _e_due_at, _e_mail)
            AS e (run, epoch, seq, kind, key, at, position, attempt, failed, digest, input, output,
            started_at, due_at, mail)
        WHERE _all_landed
            OR e.run IN (SELECT run FROM unnest(_run, _outcome) a (run, code) WHERE code = 1)
                AND NOT e.run = ANY(coalesce(_there, ARRAY[]::bigint[]));
    END IF;
    -- A run that was claimed and started afresh in between has left our place free: look again.
    IF EXISTS (
        SELECT 1 FROM unnest(_run, _epoch, _outcome) AS a (run, epoch, code)
        WHERE a.code = 1 AND NOT a.run = ANY(coalesce(_there, ARRAY[]::bigint[])) AND (
            SELECT r.epoch FROM runs r WHERE r.key = a.run AND r.owner IS NOT NULL
        ) IS DISTINCT FROM a.epoch)
    THEN
        RAISE EXCEPTION 'superseded' USING ERRCODE = 'HF001';
    END IF;
    IF _p_place IS NOT NULL THEN
        INSERT INTO promises (run, name, key, kind, type, prompt, created_at, resolved)
        SELECT _run[p.place], p.name, p.key, p.kind, p.type, p.prompt, p.created_at,
            EXISTS (SELECT 1 FROM inbox i
                WHERE i.run = _run[p.place] AND i.kind = 'promise' AND i.name = p.name
                  AND i.kind <> 'message')
        FROM unnest(_p_place, _p_name, _p_key, _p_kind, _p_type, _p_prompt, _p_created_at)
            AS p (place, name, key, kind, type, prompt, created_at)
        WHERE _outcome[p.place] = 1
        ON CONFLICT (run, name) DO UPDATE SET
            key = excluded.key, kind = excluded.kind, type = excluded.type,
            prompt = excluded.prompt;
    END IF;
    IF _s_place IS NOT NULL THEN
        PERFORM write_session(s.session, s.key, s.value)
        FROM unnest(_s_place, _s_session, _s_key, _s_value) WITH ORDINALITY
            AS s (place, session, key, value, nth)
        WHERE _outcome[s.place] = 1;
    END IF;
    FOR _then IN
        SELECT * FROM unnest(_t_place, _t_what, _t_at, _t_status, _t_ready_at, _t_seen, _t_reason,
            _t_payload, _t_digest)
            AS t (place, what, at, status, ready_at, seen, reason, payload, digest)
        WHERE _outcome[place] = 1
    LOOP
        SELECT * INTO _mine FROM runs WHERE key = _run[_then.place];
        IF _then.what = 'end' THEN
            PERFORM end_run(_mine, _then.at, _then.status, _then.payload);
        ELSIF _then.what = 'suspend' THEN
            IF suspend_run(
                _mine, _then.at, _then.status, _then.ready_at, _then.seen, _then.reason)
            THEN
                _outcome[_then.place] := 2;
            END IF;
        ELSE
            PERFORM continue_run(_mine, _then.at, _then.payload, _then.digest);
        END IF;
    END LOOP;
    IF _recorded THEN
        RETURN answer(_request, _outcome);
    END IF;
    RETURN _outcome;
END $$;

-- The same for one append of one entry, after which the run just goes on: what a run does most.
CREATE OR REPLACE FUNCTION append_one(
    _request uuid, _again boolean, _run bigint, _epoch integer, _seq integer, _kind text, _key text,
    _at bigint, _position integer, _attempt integer, _failed boolean, _digest bytea, _input bytea,
    _output bytea, _started_at bigint, _due_at bigint, _mail bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO journal (run, epoch, seq, kind, key, at, position, attempt, failed, digest, input,
        output, started_at, due_at, mail)
    SELECT _run, _epoch, _seq, _kind, _key, _at, _position, _attempt, _failed, _digest, _input,
        _output, _started_at, _due_at, _mail
    FROM (SELECT seq, epoch FROM journal WHERE run = _run ORDER BY seq DESC LIMIT 1) newest
    WHERE newest.seq = _seq - 1 AND newest.epoch = _epoch
      AND (SELECT epoch FROM runs WHERE key = _run AND owner IS NOT NULL) = _epoch;
    IF FOUND THEN
        -- A later look than that of the statement above.
        PERFORM 1 FROM runs WHERE key = _run AND epoch = _epoch AND owner IS NOT NULL;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'superseded' USING ERRCODE = 'HF001';
        END IF;
        RETURN ARRAY[1];
    END IF;
    IF _again THEN
        PERFORM 1 FROM journal WHERE run = _run AND seq = _seq AND epoch = _epoch;
        IF FOUND THEN
            RETURN ARRAY[1];
        END IF;
    END IF;
    RETURN ARRAY[0];
END $$;

CREATE OR REPLACE FUNCTION write_session(_session text, _key text, _value bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF _key IS NULL THEN
        INSERT INTO session_messages (session, payload) VALUES (_session, _value);
    ELSIF _value IS NULL THEN
        DELETE FROM session_state WHERE session = _session AND key = _key;
    ELSE
        INSERT INTO session_state (session, key, value) VALUES (_session, _key, _value)
        ON CONFLICT (session, key) DO UPDATE SET value = excluded.value;
    END IF;
END $$;

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

-- Going on after a stop. These answer with 0, or with why not: 1 there is no such run, 2 its status.

CREATE OR REPLACE FUNCTION resume(_request uuid, _again boolean, _id text, _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
    DELETE FROM inbox WHERE run = _run.key AND kind = 'pause';
    UPDATE runs
    SET status = 'pending', ready_at = _now, updated_at = _now, strikes = 0,
        blocked = NOT may_go(session, holds_session, parent, parent_step),
        resumes = resumes + 1, reason = NULL
    WHERE key = _run.key;
    PERFORM ring();
    RETURN answer(_request, ARRAY[0]);
END $$;

CREATE OR REPLACE FUNCTION rerun(
    _request uuid, _again boolean, _id text, _now bigint, _drop integer[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
    END IF;
    -- A child whose end is forgotten may end again, and otherwise.
    DELETE FROM inbox WHERE kind = 'child' AND id IN (
        SELECT mail FROM journal WHERE run = _run.key AND seq = ANY(_drop));
    DELETE FROM inbox WHERE run = _run.key AND kind IN ('cancel', 'pause');
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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

-- Schedules.

-- Adds a schedule, or changes one that is still as its caller has seen it. Answers with 1, or with 0:
-- meanwhile somebody else did something to it.
CREATE OR REPLACE FUNCTION put_schedule(
    _request uuid, _again boolean, _name text, _workflow text, _input bytea, _digest bytea,
    _options bytea, _cron text, _zone text, _catch_up text, _paused boolean, _next_at bigint,
    _updated_at bigint, _is_new boolean, _seen_next_at bigint, _seen_updated_at bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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

-- Queues and limiters.

-- Answers with how many were changed.
CREATE OR REPLACE FUNCTION declare_queues(
    _request uuid, _again boolean, _name text[], _concurrency integer[], _per_worker integer[],
    _rate_count integer[], _rate_micros bigint[], _rate_burst integer[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _changed bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    INSERT INTO queues AS q (name, concurrency, per_worker, rate_count, rate_micros, rate_burst)
    SELECT * FROM unnest(_name, _concurrency, _per_worker, _rate_count, _rate_micros, _rate_burst)
        AS said (name, concurrency, per_worker, rate_count, rate_micros, rate_burst)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE SET
        concurrency = excluded.concurrency, per_worker = excluded.per_worker,
        rate_count = excluded.rate_count, rate_micros = excluded.rate_micros,
        rate_burst = excluded.rate_burst
    WHERE (q.concurrency, q.per_worker, q.rate_count, q.rate_micros, q.rate_burst)
        IS DISTINCT FROM (excluded.concurrency, excluded.per_worker, excluded.rate_count,
            excluded.rate_micros, excluded.rate_burst);
    GET DIAGNOSTICS _changed = ROW_COUNT;
    IF _changed > 0 THEN
        PERFORM ring();  -- perhaps they allow more now
    END IF;
    RETURN answer(_request, ARRAY[_changed]);
END $$;

-- Answers with 0, or with 1: there is no such queue.
CREATE OR REPLACE FUNCTION pause_queue(
    _request uuid, _again boolean, _name text, _paused boolean) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    INSERT INTO queues AS q (name, paused)
    SELECT _name, _paused WHERE EXISTS (SELECT 1 FROM queues WHERE name = _name)
        OR (_paused AND (_name = 'default'
            OR EXISTS (SELECT 1 FROM runs WHERE ended_at IS NULL AND queue = _name)))
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused;
    IF NOT FOUND THEN
        RETURN ARRAY[1];
    END IF;
    PERFORM ring();
    RETURN answer(_request, ARRAY[0]);
END $$;

-- Answers with when each may go. A limiter that occurs twice admits one after the other.
CREATE OR REPLACE FUNCTION reserve(
    _request uuid, _again boolean, _name text[], _interval bigint[], _burst integer[],
    _place bigint[], _now bigint)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _one record;
    _at bigint;
BEGIN
    IF _outcome IS NOT NULL THEN
        RETURN _outcome;
    END IF;
    _outcome := array_fill(0::bigint, ARRAY[cardinality(_name)]);
    -- Rows are locked in the order of their names.
    INSERT INTO limits (name) SELECT DISTINCT name FROM unnest(_name) name ORDER BY name
    ON CONFLICT (name) DO NOTHING;
    PERFORM 1 FROM limits WHERE name = ANY(_name) ORDER BY name FOR UPDATE;
    FOR _one IN
        SELECT * FROM unnest(_name, _interval, _burst, _place) WITH ORDINALITY
            AS r (name, apart, burst, place, nth)
        ORDER BY nth
    LOOP
        -- A place that was given before stands, unless the limiter has been held off for longer.
        SELECT CASE WHEN _one.place >= held_until THEN _one.place
            ELSE greatest(_now, held_until, next_at - (_one.burst - 1) * _one.apart) END INTO _at
        FROM limits WHERE name = _one.name;
        IF _at IS DISTINCT FROM _one.place THEN
            UPDATE limits SET next_at = greatest(next_at, _at) + _one.apart WHERE name = _one.name;
        END IF;
        _outcome[_one.nth] := _at;
    END LOOP;
    RETURN answer(_request, _outcome);
END $$;

CREATE OR REPLACE FUNCTION hold_off(
    _request uuid, _again boolean, _name text, _until bigint) RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- To do it twice changes nothing.
    INSERT INTO limits AS l (name, held_until) VALUES (_name, _until)
    ON CONFLICT (name) DO UPDATE SET held_until = greatest(l.held_until, excluded.held_until);
    RETURN ARRAY[0];
END $$;

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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
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

-- Strikes a worker off and frees its runs, if it is dead or its lease has run out. No row: neither, or
-- somebody else did it; else the first row is the worker, and the others its runs.
CREATE OR REPLACE FUNCTION reap(_worker text, _now bigint, _dead boolean)
RETURNS TABLE (id text, quarantined boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _row workers;
BEGIN
    PERFORM notice_server();
    SELECT * INTO _row FROM workers w WHERE w.id = _worker FOR UPDATE;
    IF NOT FOUND OR NOT (_dead OR lease_left(_row) <= 0) THEN
        RETURN;
    END IF;
    DELETE FROM workers w WHERE w.id = _worker;
    RETURN QUERY SELECT _worker, false;
    RETURN QUERY SELECT * FROM free_runs(_worker, _now);
END $$;

CREATE OR REPLACE FUNCTION hand_back(_worker text, _note text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _freed bigint;
BEGIN
    UPDATE workers w SET note = _note WHERE w.id = _worker;
    SELECT count(*) INTO _freed FROM free_runs(_worker, NULL);
    RETURN _freed;
END $$;

CREATE OR REPLACE FUNCTION deregister(_worker text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    DELETE FROM workers WHERE id = _worker;
    PERFORM 1 FROM runs WHERE owner = _worker ORDER BY key FOR UPDATE;
    UPDATE runs SET status = 'pending', owner = NULL, ready_at = updated_at WHERE owner = _worker;
    IF FOUND THEN
        PERFORM ring();
    END IF;
END $$;

-- Upkeep.

CREATE OR REPLACE FUNCTION prune(
    _ended_before bigint, _limit integer, _now bigint, _keep_ids_until bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    _keys bigint[];
BEGIN
    SELECT array_agg(key) INTO _keys FROM (
        SELECT r.key FROM runs r
        WHERE r.ended_at < _ended_before AND r.ended_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM runs p WHERE p.key = r.parent AND p.ended_at IS NULL)
        ORDER BY r.ended_at LIMIT _limit FOR UPDATE OF r SKIP LOCKED) old;
    IF _keep_ids_until > _now THEN
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
    DELETE FROM tombstones WHERE id IN (
        SELECT id FROM tombstones WHERE expires_at <= _now ORDER BY expires_at LIMIT _limit);
    -- Keys and limiters that would be where they are, were they not known at all.
    DELETE FROM shares s USING shares lowest
    WHERE s.key <> '' AND lowest.queue = s.queue AND lowest.key = '' AND s.served <= lowest.served;
    DELETE FROM limits WHERE next_at < _ended_before AND held_until < _ended_before;
    DELETE FROM requests WHERE id IN (
        SELECT id FROM requests WHERE at < now() - interval '10 minutes' LIMIT 10000);
    RETURN coalesce(cardinality(_keys), 0);
END $$;

-- Appending.

CREATE OR REPLACE FUNCTION suspend_run(
    _run runs, _at bigint, _status text, _ready_at bigint, _seen bigint, _reason text,
    _unwinding boolean) RETURNS boolean
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
        deadline_at = CASE WHEN NOT _unwinding THEN deadline_at END,
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

-- What joined a run that has ended, and was not received by it, is started again as if it came now: it
-- joins the session's next run, or is a run of its own. All of it under the session's lock.
CREATE OR REPLACE FUNCTION start_unread(_run runs) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _join joins;
    _input bytea;
    _other runs;
    _spec json;
BEGIN
    FOR _join IN
        SELECT * FROM joins j
        WHERE j.run = _run.key AND j.spec IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM journal WHERE run = _run.key AND mail = j.mail)
        ORDER BY j.mail
    LOOP
        DELETE FROM inbox WHERE id = _join.mail RETURNING payload INTO _input;
        CONTINUE WHEN NOT FOUND;
        _spec := _join.spec;
        SELECT * INTO _other FROM runs
        WHERE session = _run.session AND session IS NOT NULL AND ended_at IS NULL
        ORDER BY holds_session DESC, key LIMIT 1 FOR UPDATE;
        IF FOUND THEN
            UPDATE joins SET run = _other.key, mail = put_mail(
                _other, 'message', '', _input, false, (_spec->>'created_at')::bigint)
            WHERE id = _join.id;
            CONTINUE;
        END IF;
        DELETE FROM joins WHERE id = _join.id;
        INSERT INTO runs (id, workflow, version, queue, priority, status, incarnation, input,
            digest, created_at, updated_at, ready_at, deadline_at, while_waiting, options, session,
            fairness_key)
        SELECT _join.id, s.workflow, s.version, s.queue, s.priority, 'pending', s.incarnation,
            _input, _join.digest, s.created_at, s.created_at, s.ready_at, s.deadline_at,
            s.while_waiting, decode(s.options, 'hex'), _run.session, s.fairness_key
        FROM json_to_record(_spec) AS s (workflow text, version text, queue text, priority integer,
            incarnation text, created_at bigint, ready_at bigint, deadline_at bigint,
            while_waiting text, options text, fairness_key text)
        ON CONFLICT (id) DO NOTHING;  -- a run without a session took its id meanwhile
        PERFORM ring();
    END LOOP;
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
    IF _run.session IS NOT NULL THEN
        UPDATE sessions SET used_at = _at WHERE name = _run.session;
        PERFORM pass_on(_run.session, _at);
        PERFORM start_unread(_run);
    END IF;
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

-- Ends runs that are nobody's child and in no session. Most are so, and one statement for all of a batch
-- takes a third less of the server's time than one for each. Answers with those that it has ended.
CREATE OR REPLACE FUNCTION end_plain_runs(
    _runs bigint[], _at bigint[], _status text[], _output bytea[]) RETURNS bigint[]
-- Without a hash of the whole table, either.
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    _ended bigint[];
    _queues text[];
BEGIN
    WITH plain AS (
        UPDATE runs r
        SET status = e.status, output = e.output, ended_at = e.at, updated_at = e.at, owner = NULL,
            ready_at = NULL, blocked = false, holds_session = false, reason = NULL
        FROM unnest(_runs, _at, _status, _output) AS e (run, at, status, output)
        WHERE r.key = e.run AND r.session IS NULL AND (r.parent IS NULL OR r.parent_step IS NULL)
        RETURNING r.key, r.queue)
    SELECT array_agg(key), array_agg(DISTINCT queue) INTO _ended, _queues FROM plain;
    IF _ended IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM queues WHERE name = ANY(_queues) AND concurrency IS NOT NULL) THEN
            PERFORM ring();  -- others wait for a place in the queue
        END IF;
        PERFORM ring('end');
    END IF;
    RETURN coalesce(_ended, ARRAY[]::bigint[]);
END $$;

-- Ends a run of which nobody has to unwind anything: no worker needs to see it.
CREATE OR REPLACE FUNCTION end_unclaimed(_run runs, _at bigint, _status text, _output bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO journal (run, seq, kind, key, at, epoch, position, attempt, failed)
    VALUES (_run.key, coalesce((SELECT max(seq) FROM journal WHERE run = _run.key), 0) + 1, 'end', '',
        _at, _run.epoch, 0, 0, true);
    PERFORM end_run(_run, _at, _status, _output);
END $$;

-- Runs that are past their deadline, and nobody executes: ended, or woken to unwind. Says how many.
CREATE OR REPLACE FUNCTION expire(
    _request uuid, _again boolean, _now bigint, _output bytea, _limit integer)
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _runs bigint[] := ARRAY(
        SELECT key FROM untended WHERE deadline_at <= _now ORDER BY deadline_at LIMIT _limit);
    _run runs;
    _count bigint := 0;
BEGIN
    PERFORM lock_runs(_runs);
    FOR _run IN
        SELECT r.* FROM runs r JOIN untended USING (key) WHERE r.key = ANY(_runs)
    LOOP
        _count := _count + 1;
        IF needs_no_worker(_run) THEN
            PERFORM end_unclaimed(_run, _now, 'failed', _output);
        ELSE
            DELETE FROM inbox WHERE run = _run.key AND kind = 'pause';
            PERFORM wake_run(_run, _now);
        END IF;
    END LOOP;
    RETURN ARRAY[_count];
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
    _t_seen bigint[], _t_reason text[], _t_unwinding boolean[], _t_payload bytea[], _t_digest bytea[],
    _p_place integer[], _p_name text[], _p_key text[], _p_kind text[], _p_type text[],
    _p_prompt bytea[], _p_created_at bigint[],
    _s_place integer[], _s_session text[], _s_key text[], _s_value bytea[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[];
    _recorded constant boolean
        := _t_place IS NOT NULL OR _s_place IS NOT NULL OR 0 = ANY(_seq);
    _proven constant boolean := _again AND NOT _recorded;
    _locked bigint[];
    _all_landed boolean;
    _there bigint[];
    _ended bigint[] := ARRAY[]::bigint[];
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
    IF 'refused' = ANY(_e_kind) THEN
        -- Answers that did not fit: others may be given.
        WITH refused AS (
            DELETE FROM inbox i
            USING unnest(_e_run, _e_kind, _e_mail) e (run, kind, mail),
                unnest(_run, _outcome) a (run, code)
            WHERE e.kind = 'refused' AND a.run = e.run AND a.code = 1
              AND i.id = e.mail AND i.run = e.run AND i.kind = 'promise'
            RETURNING i.run, i.name
        )
        UPDATE promises p SET resolved = false
        FROM refused r WHERE p.run = r.run AND p.name = r.name;
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
        INSERT INTO sessions (name, used_at)
        SELECT DISTINCT s.session, 0 FROM unnest(_s_place, _s_session) AS s (place, session)
        WHERE _outcome[s.place] = 1
        ON CONFLICT (name) DO NOTHING;
        PERFORM write_session(s.session, s.key, s.value)
        FROM unnest(_s_place, _s_session, _s_key, _s_value) WITH ORDINALITY
            AS s (place, session, key, value, nth)
        WHERE _outcome[s.place] = 1;
    END IF;
    IF 'end' = ANY(_t_what) THEN
        SELECT end_plain_runs(array_agg(_run[t.place]), array_agg(t.at), array_agg(t.status),
            array_agg(t.payload))
        INTO _ended
        FROM unnest(_t_place, _t_what, _t_at, _t_status, _t_payload)
            AS t (place, what, at, status, payload)
        WHERE t.what = 'end' AND _outcome[t.place] = 1;
    END IF;
    FOR _then IN
        SELECT * FROM unnest(_t_place, _t_what, _t_at, _t_status, _t_ready_at, _t_seen, _t_reason,
            _t_unwinding, _t_payload, _t_digest)
            AS t (place, what, at, status, ready_at, seen, reason, unwinding, payload, digest)
        WHERE _outcome[place] = 1 AND _run[place] NOT IN (SELECT unnest(_ended))
    LOOP
        SELECT * INTO _mine FROM runs WHERE key = _run[_then.place];
        IF _then.what = 'end' THEN
            PERFORM end_run(_mine, _then.at, _then.status, _then.payload);
        ELSIF _then.what = 'suspend' THEN
            IF suspend_run(
                _mine, _then.at, _then.status, _then.ready_at, _then.seen, _then.reason,
                _then.unwinding)
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
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

-- Starting.

-- A parent starts a child that is there: it is to hear of its end, also if that was before.
CREATE OR REPLACE FUNCTION tell_again(
    _id text, _workflow text, _digest bytea, _of bigint, _step text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _child runs;
    _parent runs;
BEGIN
    PERFORM lock_runs((SELECT array_agg(key) FROM runs WHERE id = _id AND parent = _of));
    SELECT * INTO _child FROM runs
    WHERE id = _id AND parent = _of AND parent_step IS NOT NULL AND workflow = _workflow
      AND digest = _digest;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO _parent FROM runs WHERE key = _of AND ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE runs SET parent_step = _step, parent_generation = _parent.generation
    WHERE key = _child.key AND (ended_at IS NOT NULL OR parent_generation < _parent.generation);
    IF _child.ended_at IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM inbox
    WHERE run = _of AND kind = 'child' AND name = _step AND kind <> 'message'
      AND id IN (SELECT mail FROM journal WHERE run = _of AND mail IS NOT NULL);
    IF NOT EXISTS (
        SELECT 1 FROM inbox
        WHERE run = _of AND kind = 'child' AND name = _step AND kind <> 'message')
    THEN
        PERFORM put_mail(
            _parent, 'child', _step, _child.output, _child.status <> 'completed', _now);
    END IF;
END $$;

-- The runs of a batch that are in no session. Answers with two numbers for each: 0 it is or was there,
-- 1 it is accepted, 2 it is claimed, too; and its key.
CREATE OR REPLACE FUNCTION start(
    _request uuid, _again boolean, _worker text, _claim boolean[], _id text[], _workflow text[],
    _version text[], _queue text[], _priority integer[], _incarnation text[], _input bytea[],
    _digest bytea[], _created_at bigint[], _ready_at bigint[], _deadline_at bigint[],
    _while_waiting text[], _parent bigint[], _parent_step text[], _options bytea[],
    _fairness_key text[])
RETURNS bigint[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
DECLARE
    _outcome bigint[] := answered(_request, _again);
    _registered boolean;
    _unclaimed boolean;
    _there boolean;
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
        -- Keys rise in the order of the batch, whatever the order of the rows below.
        SELECT *, nextval('runs_key_seq') AS key,
            claim AND _registered AND ready_at <= created_at AND NOT (
            SELECT p.behind FROM places p
            WHERE (p.workflow, p.queue, p.priority) = (t.workflow, t.queue, t.priority)) AS claimed
        FROM unnest(_claim, _id, _workflow, _version, _queue, _priority, _incarnation, _input,
            _digest, _created_at, _ready_at, _deadline_at, _while_waiting, _parent, _parent_step,
            _options, _fairness_key) WITH ORDINALITY AS t (claim, id, workflow, version, queue, priority,
            incarnation, input, digest, created_at, ready_at, deadline_at, while_waiting, parent,
            parent_step, options, fairness_key, place)
    ), accepted AS (
        INSERT INTO runs (key, id, workflow, version, queue, priority, status, epoch, owner,
            incarnation, input, digest, created_at, updated_at, ready_at, deadline_at,
            while_waiting, parent, parent_step, parent_generation, options, fairness_key)
        SELECT key, id, workflow, version, queue, priority,
            CASE WHEN claimed THEN 'running' ELSE 'pending' END,
            claimed::integer, CASE WHEN claimed THEN _worker END, incarnation, input, digest,
            created_at, created_at, CASE WHEN NOT claimed THEN ready_at END, deadline_at,
            while_waiting, parent, parent_step,
            (SELECT generation FROM runs p WHERE p.key = given.parent), options, fairness_key
        FROM given
        WHERE NOT EXISTS (
            SELECT 1 FROM tombstones t WHERE t.id = given.id AND t.expires_at > given.created_at)
        -- Whoever starts the same ids in another order waits for this, and does not deadlock with it.
        ORDER BY id COLLATE "C", place
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
    SELECT array_agg(n ORDER BY place, nth), bool_or(nth = 1 AND n = 1),
        bool_or(nth = 1 AND n = 0)
    INTO _outcome, _unclaimed, _there
    FROM answers CROSS JOIN LATERAL (VALUES (1, code::bigint), (2, key)) AS pair (nth, n);
    IF _unclaimed THEN
        PERFORM ring();
    END IF;
    IF _there THEN
        PERFORM tell_again(t.id, t.workflow, t.digest, t.parent, t.parent_step, t.created_at)
        FROM unnest(_id, _workflow, _digest, _parent, _parent_step, _created_at) WITH ORDINALITY
            AS t (id, workflow, digest, parent, parent_step, created_at, place)
        WHERE t.parent_step IS NOT NULL AND _outcome[2 * t.place - 1] = 0;
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
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
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
    IF _parent_step IS NOT NULL AND EXISTS (SELECT 1 FROM runs WHERE id = _id) THEN
        PERFORM tell_again(_id, _workflow, _digest, _parent, _parent_step, _created_at);
        RETURN answer(_request, ARRAY[0, 0]);
    END IF;
    IF _on_busy = 'interrupt' THEN  -- then the parents of others hear of their end
        PERFORM lock_runs((
            SELECT array_agg(key) FROM runs
            WHERE session = _session AND session IS NOT NULL AND ended_at IS NULL), ARRAY[_session]);
    ELSE
        PERFORM lock_session(_session);
    END IF;
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
                INSERT INTO joins (id, run, digest, mail, spec)
                VALUES (_id, _other.key, _digest,
                    put_mail(_other, 'message', '', _input, false, _created_at),
                    json_build_object('workflow', _workflow, 'version', _version,
                        'incarnation', _incarnation, 'queue', _queue, 'priority', _priority,
                        'created_at', _created_at, 'ready_at', _ready_at,
                        'deadline_at', _deadline_at, 'while_waiting', _while_waiting,
                        'fairness_key', _fairness_key, 'options', encode(_options, 'hex')));
                RETURN answer(_request, ARRAY[3, _other.key]);
            END IF;
            UPDATE joins SET spec = NULL WHERE run = _other.key;  -- they go with it
            IF EXISTS (
                SELECT 1 FROM inbox WHERE run = _other.key AND kind = 'cancel' AND kind <> 'message')
            THEN
                PERFORM stir(_other, 'cancel', _created_at);
            ELSE
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

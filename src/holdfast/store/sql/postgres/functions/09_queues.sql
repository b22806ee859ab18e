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

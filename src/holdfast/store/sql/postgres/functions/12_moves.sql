-- Refuses a write to a store that is marked (store/marks.py). Its triggers are made with the mark and go
-- with it. Whoever copies rows into the target of a move changes the mark inside its own transactions,
-- where nobody else sees it.
CREATE OR REPLACE FUNCTION refuse_moved() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    _mark moves;
BEGIN
    SELECT * INTO _mark FROM moves;
    IF _mark.state = 'copying' THEN
        IF TG_OP = 'DELETE' THEN
            RETURN OLD;
        END IF;
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '%', coalesce(_mark.other, '')
        USING ERRCODE = 'HF003', DETAIL = coalesce(_mark.state, '');
END $$;

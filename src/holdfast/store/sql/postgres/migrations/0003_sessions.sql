-- Knows which sessions there are and when each was last used, so that idle ones can be deleted. Those
-- from before count as used now.

CREATE TABLE sessions (
    name text PRIMARY KEY,
    used_at bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX sessions_used ON sessions (used_at);
INSERT INTO sessions (name, used_at)
SELECT session, (extract(epoch FROM now()) * 1000000)::bigint
FROM (SELECT session FROM session_state UNION SELECT session FROM session_messages) known;

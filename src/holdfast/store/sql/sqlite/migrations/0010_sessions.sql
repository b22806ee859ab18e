-- Knows which sessions there are and when each was last used, so that idle ones can be deleted. Those
-- from before count as used now.

CREATE TABLE sessions (
    name TEXT PRIMARY KEY,
    used_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_used ON sessions (used_at);
INSERT INTO sessions (name, used_at)
SELECT session, strftime('%s', 'now') * 1000000
FROM (SELECT session FROM session_state UNION SELECT session FROM session_messages);

-- The current schema. The migrations, applied one after the other, give the same: a test holds that.
-- Times are whole microseconds since 1970. Keys that outsiders may still hold after a row is gone
-- (runs.key, inbox.id) are never used again, hence AUTOINCREMENT.

-- One durable execution of a workflow. Narrow columns come first: a large input must not be read to
-- learn the epoch.
CREATE TABLE runs (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    ready_at INTEGER,                             -- claimable from then on; NULL: not by itself
    blocked INTEGER NOT NULL DEFAULT 0,           -- 1: behind another run of its session
    holds_session INTEGER NOT NULL DEFAULT 0,
    session TEXT,
    while_waiting TEXT NOT NULL DEFAULT 'hold',
    parent INTEGER,
    parent_step TEXT,
    parent_generation INTEGER,                    -- of the parent, when it started this child
    generation INTEGER NOT NULL DEFAULT 1,
    strikes INTEGER NOT NULL DEFAULT 0,
    resumes INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ended_at INTEGER,
    deadline_at INTEGER,
    version TEXT NOT NULL DEFAULT '',
    queue TEXT NOT NULL DEFAULT 'default',
    incarnation TEXT NOT NULL,
    reason TEXT,
    digest BLOB NOT NULL,
    options BLOB,
    output BLOB,
    input BLOB NOT NULL,
    fairness_key TEXT NOT NULL DEFAULT ''         -- whose share of its queue this run takes
);

-- The queue, the timers and the wake-ups: what waits for mail alone is not in it. Its fourth column is
-- a run's lane, which says how it waits its turn: '>' in front if it was claimed before; then nothing, if
-- it has no fairness key; '-' if it has one and sleeps; '+' and the key if it is in line.
CREATE INDEX runs_ready ON runs (
    workflow, queue, priority,
    CASE WHEN epoch > 0 THEN '>' ELSE '' END || CASE WHEN fairness_key = '' THEN ''
        WHEN ready_at > updated_at THEN '-' ELSE '+' || fairness_key END,
    ready_at, strikes)
    WHERE ready_at IS NOT NULL AND blocked = 0;
CREATE INDEX runs_owner ON runs (owner, queue) WHERE owner IS NOT NULL;
CREATE INDEX runs_session ON runs (session) WHERE session IS NOT NULL AND ended_at IS NULL;
CREATE INDEX runs_holder ON runs (session) WHERE holds_session = 1;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_open ON runs (status) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;
-- Deadlines at which no owner looks: of runs that nobody has begun yet, or that are halted.
CREATE INDEX runs_deadline ON runs (deadline_at)
    WHERE deadline_at IS NOT NULL AND owner IS NULL AND ended_at IS NULL
      AND (epoch = 0 OR status IN ('paused', 'parked', 'quarantined'));

-- What a run did, in the order in which it was written. UNIQUE (run, seq) is the fence: a claim and
-- a superseded worker's append want the same place.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    digest BLOB,
    input BLOB,
    output BLOB,
    started_at INTEGER,
    due_at INTEGER,
    mail INTEGER,
    -- Reserved: their defaults stand until a feature writes them.
    format INTEGER NOT NULL DEFAULT 1,            -- version of this row's layout
    codec INTEGER NOT NULL DEFAULT 0,             -- how input and output are encoded
    encryption_key TEXT,                          -- id of the key they are encrypted with
    previous_hash BLOB,                           -- of the entry before: the tamper-evident chain
    blob TEXT,                                    -- where a large output is kept
    uuid BLOB,                                    -- to look up an unacknowledged commit
    UNIQUE (run, seq)
);

-- What outsiders want a run to know. Its owner journals the delivery.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    payload BLOB,
    at INTEGER NOT NULL,
    failed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX inbox_run ON inbox (run, id);
CREATE UNIQUE INDEX inbox_once ON inbox (run, kind, name) WHERE kind <> 'message';

-- Starts that joined a run of their session (on_busy="join"): each posts its input once, however often
-- it is repeated.
CREATE TABLE joins (
    id TEXT PRIMARY KEY,                          -- which the start gave, and no run has
    run INTEGER NOT NULL,                         -- that got the input
    digest BLOB NOT NULL,                         -- of the input
    mail INTEGER,                                 -- the input in that run's inbox
    spec TEXT                                     -- what is started if it is not received, as JSON
) WITHOUT ROWID;
CREATE INDEX joins_run ON joins (run);

-- What a run awaits from outside, for those who look for something to answer.
CREATE TABLE promises (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    type TEXT NOT NULL,
    prompt BLOB,
    created_at INTEGER NOT NULL,
    resolved INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;

CREATE TABLE session_state (
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

CREATE TABLE session_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    payload BLOB NOT NULL
);
CREATE INDEX session_messages_session ON session_messages (session, id);

-- Which sessions have state or messages, and when the last run of each ended; 0: its first has not.
CREATE TABLE sessions (
    name TEXT PRIMARY KEY,
    used_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_used ON sessions (used_at);

-- A lease ends at a reading of the monotonic clock, which counts from the boot: no change of the
-- wall clock can end it, and a lease of another boot is over.
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_started TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    lease_seconds REAL NOT NULL,
    lease_until REAL NOT NULL,
    boot TEXT NOT NULL,
    note TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- What apps have declared of their queues; a queue that nobody declared has no limits.
CREATE TABLE queues (
    name TEXT PRIMARY KEY,
    concurrency INTEGER,                          -- runs executed at once, by all workers together
    per_worker INTEGER,                           -- the same, by each worker
    rate_count INTEGER,                           -- first claims per rate_micros
    rate_micros INTEGER,
    next_at INTEGER NOT NULL DEFAULT 0,           -- when the rate allows the next one
    paused INTEGER NOT NULL DEFAULT 0,
    rate_burst INTEGER NOT NULL DEFAULT 1         -- so many first claims may come early
) WITHOUT ROWID;

-- How often each key of a queue was served: the least served goes first. The row without a key says
-- where those that have been in line all the time are by now: nobody who comes back starts below it.
CREATE TABLE shares (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- Limiters that the steps of all workers share.
CREATE TABLE limits (
    name TEXT PRIMARY KEY,
    next_at INTEGER NOT NULL DEFAULT 0,           -- when the rate allows the next call
    held_until INTEGER NOT NULL DEFAULT 0         -- a provider asked for patience until then
) WITHOUT ROWID;

-- What is started at which ticks. A tick moves next_at in the transaction that accepts its run.
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    input BLOB NOT NULL,
    digest BLOB NOT NULL,
    options BLOB,                                 -- of its runs, opaque to the store
    cron TEXT NOT NULL,
    zone TEXT NOT NULL,
    catch_up TEXT NOT NULL,                       -- what becomes of ticks that nobody was there for
    paused INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER,                              -- NULL: there is no further tick
    last_at INTEGER,
    last_run TEXT,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;

-- What is left of a run that was deleted: its id is not free again before expires_at.
CREATE TABLE tombstones (
    id TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    status TEXT NOT NULL,
    digest BLOB NOT NULL,
    ended_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tombstones_expire ON tombstones (expires_at);

-- Whether this store is being moved. One row at most; none: it is in use, and only here.
CREATE TABLE moves (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    state TEXT NOT NULL,                          -- leaving, left or arriving
    other TEXT NOT NULL,                          -- the store at the other end, without a password
    token TEXT NOT NULL,                          -- of this move: both ends have the same
    at INTEGER NOT NULL
);

-- Keeps what a start that joined a run would have started, for the case that the run ends without
-- receiving its input. Starts that joined before this are lost in that case, as they were.

ALTER TABLE joins ADD COLUMN mail INTEGER;
ALTER TABLE joins ADD COLUMN spec TEXT;

-- A journal as the first version of the tables had it.
CREATE TABLE lagent_schema (version INTEGER PRIMARY KEY);
INSERT INTO lagent_schema VALUES (1);
CREATE TABLE lagent_runs (
    id VARCHAR(200) PRIMARY KEY,
    status VARCHAR(20) NOT NULL,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    owner TEXT NOT NULL,
    expires REAL NOT NULL
);
CREATE TABLE lagent_bodies (
    run_id VARCHAR(200) NOT NULL,
    name VARCHAR(20) NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);
CREATE TABLE lagent_records (
    run_id VARCHAR(200) NOT NULL,
    seq INTEGER NOT NULL,
    type VARCHAR(20) NOT NULL,
    position VARCHAR(500) NOT NULL,
    time REAL NOT NULL,
    kind VARCHAR(20) NOT NULL,
    name TEXT NOT NULL,
    digest VARCHAR(64) NOT NULL,
    body TEXT NOT NULL,
    elapsed REAL,
    cost TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE TABLE lagent_blobs (digest VARCHAR(64) PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE lagent_blob_uses (
    run_id VARCHAR(200) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    PRIMARY KEY (run_id, digest)
);
INSERT INTO lagent_runs VALUES
    ('old-run', 'failed', 'how many rows', 1700000000.0, 1700000009.0, '', 0);
INSERT INTO lagent_bodies VALUES ('old-run', 'opening', '{"session":7}');
INSERT INTO lagent_records VALUES
    ('old-run', 1, 'intent', '1', 1700000001.0, 'kernel', 'interpreter', '', '"len(rows)"', NULL, '{}'),
    ('old-run', 2, 'result', '1', 1700000002.0, 'kernel', 'interpreter', '', '"100"', 0.5, '{}');

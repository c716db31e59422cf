CREATE TABLE sluice_outbox (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    group_id TEXT NOT NULL,
    group_seq BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    attributes TEXT NOT NULL,
    deduplication_id TEXT NOT NULL,
    status TEXT DEFAULT 'pending' NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    not_before_us BIGINT DEFAULT 0 NOT NULL,
    last_error TEXT,
    created_at_us BIGINT NOT NULL,
    sent_at_us BIGINT,
    sns_message_id TEXT,
    sns_sequence_number TEXT,
    CONSTRAINT sluice_outbox_status CHECK (status IN ('pending', 'sent', 'quarantined')),
    CONSTRAINT sluice_outbox_place UNIQUE (topic, group_id, group_seq),
    CONSTRAINT sluice_outbox_event UNIQUE (topic, event_id)
);

CREATE INDEX sluice_outbox_sent ON sluice_outbox (topic, sent_at_us) WHERE status = 'sent';

CREATE INDEX sluice_outbox_unfinished ON sluice_outbox (topic, group_id, group_seq) WHERE status <> 'sent';

CREATE TABLE sluice_outbox_audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    topic TEXT NOT NULL,
    group_id TEXT,
    group_seq BIGINT,
    reason TEXT NOT NULL,
    detail TEXT
);

CREATE TABLE sluice_outbox_group (
    topic TEXT NOT NULL,
    group_id TEXT NOT NULL,
    epoch BIGINT DEFAULT 1 NOT NULL,
    first_seq BIGINT DEFAULT 1 NOT NULL,
    last_seq BIGINT NOT NULL,
    updated_at_us BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (topic, group_id)
);

CREATE INDEX sluice_outbox_group_unused ON sluice_outbox_group (topic, updated_at_us);

CREATE TABLE sluice_outbox_lease (
    topic TEXT NOT NULL,
    owner TEXT NOT NULL,
    token BIGINT NOT NULL,
    expires_at_us BIGINT NOT NULL,
    lease_us BIGINT DEFAULT 30000000 NOT NULL,
    PRIMARY KEY (topic)
);
CREATE TABLE sluice_inbox_audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    consumer TEXT NOT NULL,
    group_id TEXT,
    seq BIGINT,
    reason TEXT NOT NULL,
    detail TEXT
);

CREATE TABLE sluice_inbox_consumer (
    consumer TEXT NOT NULL,
    forgotten_before_us BIGINT NOT NULL,
    PRIMARY KEY (consumer)
);

CREATE TABLE sluice_inbox_exception (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    consumer TEXT NOT NULL,
    group_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    through BIGINT NOT NULL,
    state TEXT NOT NULL,
    event_id TEXT,
    sqs_message_id TEXT,
    receive_count INTEGER,
    reason TEXT,
    seen_at_us BIGINT NOT NULL,
    closed_at_us BIGINT,
    CONSTRAINT sluice_inbox_exception_state CHECK (state IN ('gap', 'filled', 'dead', 'redriven', 'skipped')),
    CONSTRAINT sluice_inbox_exception_place UNIQUE (consumer, group_id, epoch, seq)
);

CREATE INDEX sluice_inbox_exception_closed ON sluice_inbox_exception (consumer, closed_at_us) WHERE closed_at_us IS NOT NULL;

CREATE INDEX sluice_inbox_exception_open ON sluice_inbox_exception (consumer, group_id) WHERE closed_at_us IS NULL;

CREATE TABLE sluice_inbox_group (
    consumer TEXT NOT NULL,
    group_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    last_event_id TEXT,
    awaits_seq BIGINT,
    awaits_until_us BIGINT,
    parked_at_us BIGINT,
    updated_at_us BIGINT NOT NULL,
    PRIMARY KEY (consumer, group_id)
);

CREATE INDEX sluice_inbox_group_parked ON sluice_inbox_group (consumer, group_id) WHERE parked_at_us IS NOT NULL;

CREATE INDEX sluice_inbox_group_updated ON sluice_inbox_group (consumer, updated_at_us);

CREATE TABLE sluice_inbox_parked (
    consumer TEXT NOT NULL,
    group_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    body TEXT NOT NULL,
    attributes TEXT NOT NULL,
    sqs_message_id TEXT NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    not_before_us BIGINT DEFAULT 0 NOT NULL,
    held_at_us BIGINT,
    last_error TEXT,
    parked_at_us BIGINT NOT NULL,
    PRIMARY KEY (consumer, group_id, epoch, seq)
);

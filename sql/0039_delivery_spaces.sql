-- Who may read a delivery, and what it carries. Null: whoever may read the account's log. Else the members of a space:
-- whoever keeps spaces says so in the transaction that publishes. What a user's key sees is said in
-- src/delivery/visibility.ts.
alter table sealpost.deliveries add column space_id uuid;

-- The spaces of all that a bulk replay has. Null: not known, as of those that a version before makes. What was made
-- until now has none.
alter table sealpost.replays add column space_ids uuid[] default '{}';
alter table sealpost.replays alter column space_ids drop default;

-- A text that is sealed with SECRETS_KEY: whoever cannot open it has another key than this database's secrets. Sealed
-- with the first of these, or by `migrate` where there are some. Null: nothing has been sealed since.
alter table sealpost.settings add column secrets_canary text;

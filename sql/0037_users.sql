-- People of an account, and keys that act for one of them. A key without a user acts for the account alone.
create table sealpost.users (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null references sealpost.accounts,
  -- Who it is at the account's identity provider.
  idp_user_id text not null check (length(idp_user_id) between 1 and 200),
  email text not null check (length(email) between 1 and 254),
  name text not null check (length(name) between 1 and 200),
  image_url text check (length(image_url) <= 2048),
  created_at timestamptz not null default now(),
  unique (account_id, id),
  unique (account_id, idp_user_id)
);

-- Never changed. Where a moved account's rows are deleted its keys stay, and its users go.
alter table sealpost.api_keys
  add column user_id uuid,
  add constraint api_keys_user foreign key (account_id, user_id)
    references sealpost.users (account_id, id) on delete set null (user_id),
  add constraint api_keys_user_account check (user_id is null or account_id is not null);

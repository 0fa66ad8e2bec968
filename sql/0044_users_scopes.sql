-- What is the account's is not for a key that acts for one of its users: who changed what, the endpoint and who is told
-- of it, the signing secrets. The same list is in src/base/model/api-keys.ts.
update sealpost.api_keys
set scopes = array(
  select scope from unnest(scopes) as scope
  where scope not in ('audit:read', 'webhooks:secrets', 'webhooks:write')
)
where user_id is not null and scopes && array['audit:read', 'webhooks:secrets', 'webhooks:write'];

alter table sealpost.api_keys add constraint api_keys_user_scopes
  check (user_id is null or not scopes && array['audit:read', 'webhooks:secrets', 'webhooks:write']);

# Imports every module of the client that openapi-python-client has generated, and calls the API with it.
import importlib
import json
import pkgutil
import sys
from uuid import UUID

import client
from client.api.deliveries import webhooks_deliveries_get, webhooks_deliveries_list

for module in pkgutil.walk_packages(client.__path__, "client."):
    importlib.import_module(module.name)

url, key, unknown = sys.argv[1:]
api = client.AuthenticatedClient(base_url=url, token=key)
page = webhooks_deliveries_list.sync(client=api, limit=1)
problem = webhooks_deliveries_get.sync(UUID(unknown), client=api)
[delivery] = page.items
print(json.dumps([page.total, delivery.analysis_id, delivery.status.value, problem.status, problem.code]))

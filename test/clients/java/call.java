// Calls the API with the client that openapi-generator has generated.
import client.ApiClient;
import client.ApiException;
import client.JSON;
import client.api.DeliveriesApi;
import client.model.Problem;
import java.util.List;
import java.util.UUID;

class Call {
  public static void main(String[] args) throws ApiException {
    var api = new ApiClient().setBasePath(args[0]);
    api.setBearerToken(args[1]);
    var deliveries = new DeliveriesApi(api);
    var page = deliveries.webhooksDeliveriesList().limit(1).execute();
    var delivery = page.getItems().get(0);
    try {
      deliveries.webhooksDeliveriesGet(UUID.fromString(args[2])).execute();
    } catch (ApiException refused) {
      Problem problem = JSON.deserialize(refused.getResponseBody(), Problem.class);
      var status = delivery.getStatus();
      var told = List.of(page.getTotal(), delivery.getAnalysisId(), status, problem.getStatus(), problem.getCode());
      System.out.println(JSON.serialize(told));
    }
  }
}

// The same shop behind Once's gateway: no keys, no claims, no replays here; only how far a request has come.
//
//     once serve --upstream http://127.0.0.1:9000 --required --takeover rerun --complete
//
// The gateway lets each request through once at a time, and tells the service in header fields which one it is
// (docs/nginx.md):
//
//     Once-Record, Once-Fence    who we are when we speak to the daemon's JSON API (docs/api.md)
//     Once-Key                   the same on every attempt of a request, and on no other
//     Once-Recovery-Point        how far an earlier attempt came; not there: nowhere
//     Once-Checkpoint            what it kept there, as :base64:
//
// The order is in our database and the recovery point in the daemon's: these are two commits, and we may be killed between
// them. So what comes before a point must be harmless to repeat. The order's row is, for Once-Key is unique in it; the
// charge is, for the provider honours the key that we send. A point saves the repetition, and keeps what it brought.
//
// Whoever lost its request to a successor is told `fenced` by the JSON API, and stops: the gateway answers its client from
// the record. Killed, the service is sent the request again: by the client's retry, or by the daemon without one
// (--complete). `--takeover rerun` allows that, because all steps can be repeated; a service for which that is not so
// takes 'probe' or 'escalate'.
//
// DATABASE_URL has the tables of schema.sql, and nothing of Once; PROVIDER_URL, ONCE_API, PORT: see below.
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Base64;
import java.util.concurrent.Executors;

public class OrdersGateway {
    static final String DATABASE = setting("DATABASE_URL", "postgresql://127.0.0.1/shop?user=shop");
    static final String PROVIDER = setting("PROVIDER_URL", "http://127.0.0.1:9100");
    static final String API = setting("ONCE_API", "http://127.0.0.1:7411");
    static final int PORT = Integer.parseInt(setting("PORT", "9000"));
    static final Duration CALL_TIME = Duration.ofSeconds(Long.parseLong(setting("ORDERS_CALL_SECONDS", "10")));
    static final int BODY_MAX = 65536;

    static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    static final HttpClient HTTP =
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(CALL_TIME).build();

    record Answer(int status, ObjectNode document) {}

    /** A request as the gateway let it through. `point` is null where no attempt came to one. */
    record Attempt(String record, long fence, String key, String point, String checkpoint) {
        /** null: it did not come through the gateway, or without a key. Nobody else can make these fields: the gateway
         *  drops a client's own, and we listen where only the gateway connects. */
        static Attempt of(Headers headers) {
            String record = headers.getFirst("Once-Record"), fence = headers.getFirst("Once-Fence");
            String key = headers.getFirst("Once-Key"), kept = headers.getFirst("Once-Checkpoint");
            if (record == null || key == null || fence == null || !fence.matches("[0-9]{1,18}")) {
                return null;
            }
            String checkpoint = kept == null ? "" : text(Base64.getDecoder().decode(kept.replace(":", "")));
            return new Attempt(record, Long.parseLong(fence), key, headers.getFirst("Once-Recovery-Point"), checkpoint);
        }

        /** From here on the next attempt begins after this. Repeating the same point is fine. */
        void advance(String point, String checkpoint) throws IOException, InterruptedException {
            JsonNode answer = askOnce("advance", JSON.createObjectNode().put("record", record).put("fence", fence)
                                                     .put("point", point).put("checkpoint", checkpoint));
            if (!answer.path("arm").asText().equals("done")) {
                throw new IOException("fenced: somebody else has this request by now");
            }
        }
    }

    // ---------------------------------------------------------------- calls

    static HttpResponse<String> post(String url, String type, String body, String... headers)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).timeout(CALL_TIME)
            .header("Content-Type", type).POST(HttpRequest.BodyPublishers.ofString(body));
        for (int i = 0; i < headers.length; i += 2) {
            request.header(headers[i], headers[i + 1]);
        }
        return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    static JsonNode askOnce(String verb, ObjectNode members) throws IOException, InterruptedException {
        HttpResponse<String> answer = post(API + "/v1/" + verb, "application/json", members.toString());
        if (answer.statusCode() != 200) {
            throw new IOException("once, " + verb + ": " + answer.body());
        }
        return JSON.readTree(answer.body());
    }

    /** "paid ch_17" or "declined". Whether it charged or not when this throws: it is asked again with the same key. */
    static String callProvider(long order, long amount, String key) throws IOException, InterruptedException {
        HttpResponse<String> answer = post(PROVIDER + "/charges", "application/x-www-form-urlencoded",
                                           "order=" + order + "&cents=" + amount, "Idempotency-Key", '"' + key + '"');
        if (answer.statusCode() != 200 && answer.statusCode() != 402) {
            throw new IOException("provider: " + answer.body());
        }
        return answer.statusCode() == 200 ? answer.body() : "declined";
    }

    // ---------------------------------------------------------------- POST /orders

    static Answer postOrder(Attempt attempt, String item, long amount) throws Exception {
        long order;
        String charge;
        String[] kept = attempt.checkpoint().split(" ", 2);
        if (attempt.point() == null) {
            order = book(attempt.key(), item, amount);
            attempt.advance("ordered", Long.toString(order));
        } else {
            order = Long.parseLong(kept[0]);
        }
        if (!"charged".equals(attempt.point())) {
            ObjectNode call = JSON.createObjectNode().put("record", attempt.record()).put("call", "charge");
            charge = callProvider(order, amount, askOnce("child-key", call).path("child_key").asText());
            attempt.advance("charged", order + " " + charge);
        } else {
            charge = kept[1];
        }
        String[] words = charge.split(" ", 2);
        boolean paid = words[0].equals("paid");
        try (Connection db = connect();
             PreparedStatement s = db.prepareStatement("UPDATE orders SET status = ?, charge = nullif(?, '') WHERE id = ?")) {
            s.setString(1, words[0]);
            s.setString(2, paid ? words[1] : "");
            s.setLong(3, order);
            s.executeUpdate();
        }
        ObjectNode document = JSON.createObjectNode().put("order", order).put("status", words[0]);
        return paid ? new Answer(201, document.put("charge", words[1])) : new Answer(402, document);
    }

    /** One row per Once-Key, whoever comes, and its id also if it was there. */
    static long book(String key, String item, long amount) throws SQLException {
        try (Connection db = connect(); PreparedStatement s = db.prepareStatement("""
                INSERT INTO orders (item, amount, status, once_key) VALUES (?, ?, 'new', ?)
                ON CONFLICT (once_key) DO UPDATE SET once_key = excluded.once_key RETURNING id""")) {
            s.setString(1, item);
            s.setLong(2, amount);
            s.setString(3, key);
            ResultSet row = s.executeQuery();
            row.next();
            return row.getLong(1);
        }
    }

    /** Each statement is a transaction. (From a pool, in earnest.) */
    static Connection connect() throws SQLException {
        return DriverManager.getConnection("jdbc:" + DATABASE);
    }

    // ---------------------------------------------------------------- HTTP

    static Answer respond(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readNBytes(BODY_MAX + 1);
        Attempt attempt = Attempt.of(exchange.getRequestHeaders());
        if (body.length > BODY_MAX) {
            return say(413, "A body of up to " + BODY_MAX + " bytes");
        } else if (!exchange.getRequestMethod().equals("POST") || !exchange.getRequestURI().getPath().equals("/orders")) {
            return say(404, "POST /orders is all there is");
        } else if (attempt == null) {
            return say(400, "This needs an Idempotency-Key, and comes through the gateway");
        }
        JsonNode item, amount;
        try {
            JsonNode document = JSON.readTree(text(body));
            item = document.path("item");
            amount = document.path("amount");
        } catch (JsonProcessingException | StackOverflowError e) {
            return say(400, "This is no order"); // which the gateway stores, as any answer that is final
        }
        boolean good = item.isTextual() && item.textValue().matches("[A-Za-z0-9 ._-]{1,100}") && amount.isIntegralNumber() &&
                       amount.canConvertToInt() && amount.intValue() >= 1 && amount.intValue() <= 1_000_000_000;
        if (!good) {
            return say(400, "This is no order");
        }
        try {
            return postOrder(attempt, item.textValue(), amount.intValue());
        } catch (Exception e) {
            // The gateway notes that it failed and may be tried again, which begins at the last recovery point.
            System.err.println("orders: " + attempt.record() + ": " + e);
            return say(503, "Ask again under the same key");
        }
    }

    static Answer say(int status, String title) {
        return new Answer(status, JSON.createObjectNode().put("title", title));
    }

    static void serve(HttpExchange exchange) throws IOException {
        Answer answer = respond(exchange);
        byte[] body = (answer.document() + "\n").getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(answer.status(), body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), PORT), 128);
        server.setExecutor(Executors.newFixedThreadPool(20));
        server.createContext("/", OrdersGateway::serve);
        server.start();
        System.out.println("orders: listening on http://127.0.0.1:" + PORT);
    }
}

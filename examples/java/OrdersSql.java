// A shop that takes each order once, with Once's SQL functions in its own transactions (plain JDBC).
//
//     POST /orders {"item": "tea", "amount": 2500}    booked, charged at the payment provider, its receipt staged
//     POST /stock  {"item": "tea", "count": 5}        goods came in: nothing but our own database
//
// An order is three steps. Each transaction commits its writes together with what Once has to know of them:
//
//     transaction   claim the key, book the order, record the recovery point `ordered`
//     call          charge, with a key that is derived from the record: the same on every attempt
//     transaction   the order is paid, its receipt is in the outbox, the answer is stored
//
// Killed anywhere, the next request with the same key goes on at `ordered` as soon as the lease is over, with the same
// order and the same key for the provider. That is what `takeover => 'rerun'` allows, and it is right because the
// provider honours keys. One that does not, and cannot be asked: 'escalate' (the record becomes `unknown`, and a person
// looks). One that can be asked: 'probe' (the claim says `probe`: ask first). docs/sql.md has all functions.
//
// With Spring, inTransaction() is a TransactionTemplate and the statements are a JdbcTemplate's; the call to the provider
// stays outside of any @Transactional method.
//
// DATABASE_URL has the schema `once` (once migrate) and schema.sql; PROVIDER_URL, PORT, ORDERS_LEASE: see below.
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.ConnectException;
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
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class OrdersSql {
    static final String DATABASE = setting("DATABASE_URL", "postgresql://127.0.0.1/shop?user=shop");
    static final String PROVIDER = setting("PROVIDER_URL", "http://127.0.0.1:9100");
    static final int PORT = Integer.parseInt(setting("PORT", "9000"));
    static final String LEASE = setting("ORDERS_LEASE", "30 seconds"); // longer than the call may take: nobody has to renew it
    static final Duration CALL_TIME = Duration.ofSeconds(Long.parseLong(setting("ORDERS_CALL_SECONDS", "10")));
    static final int BODY_MAX = 65536;
    static final String TENANT = "shop"; // of many shops in one database: whoever is logged in, so that their keys do not meet

    static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    static final HttpClient HTTP =
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(CALL_TIME).build();

    record Answer(int status, byte[] body, Map<String, String> headers) {}

    record Asked(String item, long number) {}

    /** What once.claim and once.lookup answer, as far as it is needed here. */
    record Stored(String arm, String record, long fence, String state, boolean retryable, int status, byte[] headers,
                  byte[] body, String point, byte[] checkpoint, long retryAfterMs) {
        static Stored of(ResultSet row) throws SQLException {
            row.next();
            return new Stored(row.getString("arm"), row.getString("record"), row.getLong("fence"), row.getString("state"),
                              row.getBoolean("retryable"), row.getInt("status"), row.getBytes("headers"),
                              row.getBytes("body"), row.getString("recovery_point"), row.getBytes("checkpoint"),
                              row.getLong("retry_after_ms"));
        }
    }

    record Begun(Stored claim, long order, String chargeKey) {}

    /** What the client sent is no order: nothing was claimed, the key is as good as new. */
    static class Refused extends Exception {}

    /** The provider certainly did nothing. */
    static class NotCharged extends Exception {}

    /** No answer that says anything. */
    static class MaybeCharged extends Exception {}

    // ---------------------------------------------------------------- POST /orders

    static Answer postOrder(String key, byte[] body) throws Exception {
        Asked asked = read(body, "amount");
        Begun begun = inTransaction(db -> beginOrder(db, key, body, asked));
        Stored claim = begun.claim();
        if (!claim.arm().equals("execute")) {
            return answerFrom(claim);
        }
        String charge;
        try {
            charge = callProvider(begun.order(), asked.number(), begun.chargeKey());
        } catch (NotCharged e) {
            // It stays `failed`, to be retried, at `ordered`: whoever asks next need not wait for the lease.
            inTransaction(db -> run(db, "SELECT once.release(?::uuid, ?)", claim.record(), claim.fence()));
            return problem(503, "The payment provider is busy; ask again under the same key", "Retry-After", "1");
        } catch (MaybeCharged e) {
            // Nobody knows, so it stays as it is; its lease is the pause until the same call is made again.
            inTransaction(db -> run(db, "SELECT once.extend(?::uuid, ?, '1 second')", claim.record(), claim.fence()));
            return problem(503, "The payment provider did not answer; ask again under the same key", "Retry-After", "1");
        }
        try {
            return inTransaction(db -> endOrder(db, claim, begun.order(), charge));
        } catch (SQLException e) {
            if (!"ONC01".equals(e.getSQLState())) {
                throw e;
            }
            // We were thought dead and somebody took over. Our writes are rolled back, and its answer is the answer.
            return inTransaction(db -> {
                try (PreparedStatement s = prepare(db, "SELECT * FROM once.lookup(?, ?)", TENANT, key)) {
                    return answerFrom(Stored.of(s.executeQuery()));
                }
            });
        }
    }

    static Begun beginOrder(Connection db, String key, byte[] body, Asked asked) throws SQLException {
        Stored claim;
        try (PreparedStatement s = prepare(db, """
                SELECT * FROM once.claim(?, ?, once.fingerprint(?, 'POST', '/orders', '', ?, json => true),
                                         lease => ?::interval, takeover => 'rerun')""", TENANT, key, TENANT, body, LEASE)) {
            claim = Stored.of(s.executeQuery());
        }
        if (!claim.arm().equals("execute")) {
            return new Begun(claim, 0, null);
        }
        long order;
        if ("ordered".equals(claim.point())) { // an earlier attempt came as far as this
            order = Long.parseLong(text(claim.checkpoint()));
        } else {
            order = Long.parseLong(run(db, "INSERT INTO orders (item, amount, status) VALUES (?, ?, 'new') RETURNING id",
                                       asked.item(), asked.number()));
            run(db, "SELECT once.advance(?::uuid, ?, 'ordered', ?)", claim.record(), claim.fence(), bytes(Long.toString(order)));
        }
        return new Begun(claim, order, run(db, "SELECT once.child_key(?::uuid, 'charge')", claim.record()));
    }

    /** "paid ch_17" or "declined". Outside of any transaction: nothing of ours is locked while they think. */
    static String callProvider(long order, long amount, String key) throws NotCharged, MaybeCharged, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(PROVIDER + "/charges")).timeout(CALL_TIME)
            .header("Idempotency-Key", '"' + key + '"').header("Content-Type", "application/x-www-form-urlencoded")
            .POST(HttpRequest.BodyPublishers.ofString("order=" + order + "&cents=" + amount)).build();
        HttpResponse<String> answer;
        try {
            answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (ConnectException e) {
            throw new NotCharged();
        } catch (IOException e) {
            throw new MaybeCharged();
        }
        switch (answer.statusCode()) {
            case 200: return answer.body();
            case 402: return "declined";
            case 429, 503: throw new NotCharged();
            default: throw new MaybeCharged();
        }
    }

    static Answer endOrder(Connection db, Stored claim, long order, String charge) throws SQLException {
        String[] words = charge.split(" ", 2);
        boolean paid = words[0].equals("paid");
        // If somebody took over meanwhile, this fails the transaction; from here to its end nobody can.
        run(db, "SELECT once.guard(?::uuid, ?)", claim.record(), claim.fence());
        run(db, "UPDATE orders SET status = ?, charge = nullif(?, '') WHERE id = ?", words[0], paid ? words[1] : "", order);
        ObjectNode document = JSON.createObjectNode().put("order", order).put("status", words[0]);
        if (!paid) {
            // Declined is an outcome like any other: it is stored, and the card is not tried again under this key.
            return finish(db, claim, 402, document, "failed");
        }
        document.put("charge", words[1]);
        byte[] receipt = bytes(JSON.createObjectNode().put("order", order).put("charge", words[1]).toString());
        run(db, "SELECT once.enqueue('receipts', ?, ?, content_type => 'application/json')", Long.toString(order), receipt);
        return finish(db, claim, 201, document, "succeeded");
    }

    // ---------------------------------------------------------------- POST /stock

    /** Where all of the work is in this database, one transaction is all there is to it. A second request with the same
     *  key waits for the first one's end, then replays it, or executes if it was rolled back. */
    static Answer postStock(String key, byte[] body) throws Exception {
        Asked asked = read(body, "count");
        return inTransaction(db -> {
            Stored claim;
            try (PreparedStatement s = prepare(db, """
                    SELECT * FROM once.claim(?, ?, once.fingerprint(?, 'POST', '/stock', '', ?, json => true))""",
                    TENANT, key, TENANT, body)) {
                claim = Stored.of(s.executeQuery());
            }
            if (!claim.arm().equals("execute")) {
                return answerFrom(claim);
            }
            String now = run(db, """
                    INSERT INTO stock VALUES (?, ?) ON CONFLICT (item) DO UPDATE SET count = stock.count + excluded.count
                    RETURNING count""", asked.item(), asked.number());
            ObjectNode document = JSON.createObjectNode().put("item", asked.item()).put("count", Long.parseLong(now));
            return finish(db, claim, 200, document, "succeeded");
        });
    }

    // ---------------------------------------------------------------- SQL

    interface Work<T> {
        T in(Connection db) throws SQLException;
    }

    /** Committed at its end, rolled back if it throws. (From a pool, in earnest.) */
    static <T> T inTransaction(Work<T> work) throws SQLException {
        try (Connection db = DriverManager.getConnection("jdbc:" + DATABASE)) {
            db.setAutoCommit(false);
            T result = work.in(db);
            db.commit();
            return result;
        } // closing what was not committed rolls back
    }

    static PreparedStatement prepare(Connection db, String sql, Object... values) throws SQLException {
        PreparedStatement s = db.prepareStatement(sql);
        for (int i = 0; i < values.length; i++) {
            s.setObject(i + 1, values[i]);
        }
        return s;
    }

    /** One statement; the first value of its first row, if it has one. */
    static String run(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement s = prepare(db, sql, values)) {
            if (!s.execute()) {
                return null;
            }
            ResultSet rows = s.getResultSet();
            return rows.next() ? rows.getString(1) : null;
        }
    }

    // ---------------------------------------------------------------- answers

    /** Stores the answer with the work. What is given back is sent only after the transaction's commit. */
    static Answer finish(Connection db, Stored claim, int status, ObjectNode document, String state) throws SQLException {
        byte[] body = bytes(document + "\n");
        run(db, "SELECT once.finish(?::uuid, ?, ?, ?, ?, state => ?)", claim.record(), claim.fence(), status, body,
            "Content-Type: application/json\r\n", state);
        return new Answer(status, body, Map.of("Content-Type", "application/json"));
    }

    /** What to say when we are not the one who executes. */
    static Answer answerFrom(Stored record) {
        String state = record.state() == null ? "" : record.state();
        if (record.arm().equals("mismatch")) {
            return problem(422, "This key was used for another request");
        } else if (state.equals("unknown")) {
            return problem(502, "It is not known how this ended; somebody will look", "Idempotency-Outcome", "unknown");
        } else if ((state.equals("succeeded") || state.equals("failed")) && !record.retryable()) {
            Map<String, String> headers = new LinkedHashMap<>();
            for (String line : text(record.headers()).split("\r\n")) {
                String[] parts = line.split(": ", 2);
                if (parts.length == 2) {
                    headers.put(parts[0], parts[1]);
                }
            }
            headers.put("Idempotency-Replayed", "true");
            return new Answer(record.status(), record.body() == null ? new byte[0] : record.body(), headers);
        }
        long seconds = Math.max(1, (record.retryAfterMs() + 999) / 1000);
        return problem(409, "This request is being worked on", "Retry-After", Long.toString(seconds));
    }

    static Answer problem(int status, String title, String... header) {
        Map<String, String> headers = new LinkedHashMap<>(Map.of("Content-Type", "application/problem+json"));
        if (header.length == 2) {
            headers.put(header[0], header[1]);
        }
        return new Answer(status, bytes(JSON.createObjectNode().put("title", title).put("status", status) + "\n"), headers);
    }

    // ---------------------------------------------------------------- HTTP

    /** The item, and the member called `number`. */
    static Asked read(byte[] body, String number) throws Refused {
        JsonNode item, value;
        try {
            JsonNode document = JSON.readTree(text(body));
            item = document.path("item");
            value = document.path(number);
        } catch (JsonProcessingException | StackOverflowError e) {
            throw new Refused();
        }
        boolean good = item.isTextual() && item.textValue().matches("[A-Za-z0-9 ._-]{1,100}") && value.isIntegralNumber() &&
                       value.canConvertToInt() && value.intValue() >= 1 && value.intValue() <= 1_000_000_000;
        if (!good) {
            throw new Refused();
        }
        return new Asked(item.textValue(), value.intValue());
    }

    static final Pattern KEY = Pattern.compile("\"([!#-\\[\\]-~]{1,255})\"|([!#-\\[\\]-~]{1,255})");

    /** Quoted, as the draft has it, or bare, as many clients send it. null: none. */
    static String readKey(List<String> fields) {
        Matcher found = KEY.matcher(fields != null && fields.size() == 1 ? fields.get(0) : "");
        return !found.matches() ? null : found.group(1) != null ? found.group(1) : found.group(2);
    }

    interface Handler {
        Answer handle(String key, byte[] body) throws Exception;
    }

    static void serve(HttpExchange exchange, String path, Handler handler) throws IOException {
        byte[] body = exchange.getRequestBody().readNBytes(BODY_MAX + 1);
        String key = readKey(exchange.getRequestHeaders().get("Idempotency-Key"));
        Answer answer;
        if (body.length > BODY_MAX) {
            answer = problem(413, "A body of up to " + BODY_MAX + " bytes", "Connection", "close");
        } else if (!exchange.getRequestMethod().equals("POST") || !exchange.getRequestURI().getPath().equals(path)) {
            answer = problem(404, "POST /orders and POST /stock are all there is");
        } else if (key == null) {
            answer = problem(400, "This needs one Idempotency-Key, of 1 to 255 visible characters");
        } else {
            try {
                answer = handler.handle(key, body);
            } catch (Refused e) {
                answer = problem(400, "It takes a JSON object: an item and an amount for an order, an item and a count for stock");
            } catch (Exception e) {
                // Also where the answer to a COMMIT was lost: whether it took effect is what the next request finds out.
                System.err.println("orders: " + key + ": " + e);
                answer = problem(503, "Ask again under the same key", "Retry-After", "1");
            }
        }
        answer.headers().forEach((name, value) -> exchange.getResponseHeaders().set(name, value));
        exchange.sendResponseHeaders(answer.status(), answer.body().length == 0 ? -1 : answer.body().length);
        exchange.getResponseBody().write(answer.body());
        exchange.close();
    }

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "" : new String(bytes, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), PORT), 128);
        server.setExecutor(Executors.newFixedThreadPool(20));
        server.createContext("/", exchange -> serve(exchange, "", null));
        server.createContext("/orders", exchange -> serve(exchange, "/orders", OrdersSql::postOrder));
        server.createContext("/stock", exchange -> serve(exchange, "/stock", OrdersSql::postStock));
        server.start();
        System.out.println("orders: listening on http://127.0.0.1:" + PORT);
    }
}

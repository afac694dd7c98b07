// A shop that takes each order once, with Once's SQL functions in its own transactions (pgx).
//
//	POST /orders {"item": "tea", "amount": 2500}    booked, charged at the payment provider, its receipt staged
//	POST /stock  {"item": "tea", "count": 5}        goods came in: nothing but our own database
//
// An order is three steps. Each transaction commits its writes together with what Once has to know of them:
//
//	transaction   claim the key, book the order, record the recovery point `ordered`
//	call          charge, with a key that is derived from the record: the same on every attempt
//	transaction   the order is paid, its receipt is in the outbox, the answer is stored
//
// Killed anywhere, the next request with the same key goes on at `ordered` as soon as the lease is over, with the same
// order and the same key for the provider. That is what `takeover => 'rerun'` allows, and it is right because the
// provider honours keys. One that does not, and cannot be asked: 'escalate' (the record becomes `unknown`, and a person
// looks). One that can be asked: 'probe' (the claim says `probe`: ask first). docs/sql.md has all functions.
//
// DATABASE_URL has the schema `once` (once migrate) and schema.sql; PROVIDER_URL, PORT, ORDERS_LEASE: see below.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	bodyMax = 65536
	tenant  = "shop" // of many shops in one database: whoever is logged in, so that they do not meet each other's keys
)

var (
	provider = setting("PROVIDER_URL", "http://127.0.0.1:9100")
	lease    = setting("ORDERS_LEASE", "30 seconds") // longer than the call may take: then nobody has to renew it
	callTime = callSeconds()
	pool     *pgxpool.Pool

	errRefused      = errors.New("this is no such thing")      // nothing was claimed, the key is as good as new
	errNotCharged   = errors.New("certainly not charged")      // the provider did nothing
	errMaybeCharged = errors.New("charged, or not: no answer") // nobody knows
)

// record is what once.claim and once.lookup answer, as far as it is needed here.
type record struct {
	Arm           string
	Record        *string
	Fence         *int64
	State         *string
	Retryable     *bool
	Status        *int
	Headers, Body []byte
	Point         *string
	Checkpoint    []byte
	RetryAfterMs  *int64
}

const columns = "arm, record::text, fence, state, retryable, status, headers, body, recovery_point, checkpoint, retry_after_ms"

func scan(row pgx.Row) (r record, err error) {
	err = row.Scan(&r.Arm, &r.Record, &r.Fence, &r.State, &r.Retryable, &r.Status, &r.Headers, &r.Body, &r.Point, &r.Checkpoint,
		&r.RetryAfterMs)
	return r, err
}

type answer struct {
	status  int
	body    []byte
	headers map[string]string
}

// ---------------------------------------------------------------- POST /orders

func postOrder(ctx context.Context, key string, body []byte) (answer, error) {
	var request struct {
		Item   string
		Amount int64
	}
	if json.Unmarshal(body, &request) != nil || !isGood(request.Item, request.Amount) {
		return answer{}, errRefused
	}
	claim, order, chargeKey, err := beginOrder(ctx, key, body, request.Item, request.Amount)
	if err != nil || claim.Arm != "execute" {
		return answerFrom(claim), err
	}
	charge, err := callProvider(ctx, order, request.Amount, chargeKey)
	switch {
	case errors.Is(err, errNotCharged): // it stays `failed`, to be retried, at `ordered`: who asks next need not wait for the lease
		_, err = pool.Exec(ctx, "SELECT once.release($1, $2)", claim.Record, claim.Fence)
	case errors.Is(err, errMaybeCharged): // it stays as it is; its lease is the pause until the same call is made again
		_, err = pool.Exec(ctx, "SELECT once.extend($1, $2, '1 second')", claim.Record, claim.Fence)
	default:
		return endOrder(ctx, key, claim, order, charge)
	}
	return problem(503, "No word from the payment provider; ask again under the same key", "Retry-After", "1"), err
}

func beginOrder(ctx context.Context, key string, body []byte, item string, amount int64) (claim record, order int64, chargeKey string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		claim, err = scan(tx.QueryRow(ctx, "SELECT "+columns+
			" FROM once.claim($1, $2, once.fingerprint($1, 'POST', '/orders', '', $3, json => true),"+
			" lease => $4::text::interval, takeover => 'rerun')", tenant, key, body, lease))
		if err != nil || claim.Arm != "execute" {
			return err
		}
		if claim.Point != nil && *claim.Point == "ordered" { // an earlier attempt came as far as this
			order, err = strconv.ParseInt(string(claim.Checkpoint), 10, 64)
		} else {
			err = tx.QueryRow(ctx, "INSERT INTO orders (item, amount, status) VALUES ($1, $2, 'new') RETURNING id",
				item, amount).Scan(&order)
			if err == nil {
				_, err = tx.Exec(ctx, "SELECT once.advance($1, $2, 'ordered', $3)", claim.Record, claim.Fence,
					[]byte(strconv.FormatInt(order, 10)))
			}
		}
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT once.child_key($1, 'charge')", claim.Record).Scan(&chargeKey)
	})
	return claim, order, chargeKey, err
}

// callProvider answers "paid ch_17" or "declined". It is called outside of any transaction: nothing of ours is locked while
// they think. (net/http repeats a POST with an Idempotency-Key by itself when a connection breaks; that is fine here.)
func callProvider(ctx context.Context, order, amount int64, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	form := fmt.Sprintf("order=%d&cents=%d", order, amount)
	request, err := http.NewRequestWithContext(ctx, "POST", provider+"/charges", strings.NewReader(form))
	if err != nil {
		return "", errNotCharged
	}
	request.Header.Set("Idempotency-Key", `"`+key+`"`)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", errNotCharged
	} else if err != nil {
		return "", errMaybeCharged
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1000))
	switch {
	case err != nil:
		return "", errMaybeCharged
	case response.StatusCode == 200:
		return string(text), nil
	case response.StatusCode == 402:
		return "declined", nil
	case response.StatusCode == 429 || response.StatusCode == 503:
		return "", errNotCharged
	}
	return "", errMaybeCharged
}

func endOrder(ctx context.Context, key string, claim record, order int64, charge string) (a answer, err error) {
	word, id, _ := strings.Cut(charge, " ")
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		// If somebody took over meanwhile, this fails the transaction; from here to its end nobody can.
		if _, err = tx.Exec(ctx, "SELECT once.guard($1, $2)", claim.Record, claim.Fence); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, "UPDATE orders SET status = $1, charge = nullif($2, '') WHERE id = $3", word, id, order); err != nil {
			return err
		}
		if word != "paid" {
			// Declined is an outcome like any other: it is stored, and the card is not tried again under this key.
			a, err = finish(ctx, tx, claim, 402, map[string]any{"order": order, "status": "declined"}, "failed")
			return err
		}
		receipt, _ := json.Marshal(map[string]any{"order": order, "charge": id})
		if _, err = tx.Exec(ctx, "SELECT once.enqueue('receipts', $1, $2, content_type => 'application/json')",
			strconv.FormatInt(order, 10), receipt); err != nil {
			return err
		}
		a, err = finish(ctx, tx, claim, 201, map[string]any{"order": order, "status": "paid", "charge": id}, "succeeded")
		return err
	})
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == "ONC01" {
		// We were thought dead and somebody took over. Our writes are rolled back, and its answer is the answer.
		stored, err := scan(pool.QueryRow(ctx, "SELECT "+columns+" FROM once.lookup($1, $2)", tenant, key))
		return answerFrom(stored), err
	}
	return a, err
}

// ---------------------------------------------------------------- POST /stock

// postStock: where all of the work is in this database, one transaction is all there is to it. A second request with the same
// key waits for the first one's end, then replays it, or executes if it was rolled back.
func postStock(ctx context.Context, key string, body []byte) (a answer, err error) {
	var request struct {
		Item  string
		Count int64
	}
	if json.Unmarshal(body, &request) != nil || !isGood(request.Item, request.Count) {
		return answer{}, errRefused
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		claim, err := scan(tx.QueryRow(ctx, "SELECT "+columns+
			" FROM once.claim($1, $2, once.fingerprint($1, 'POST', '/stock', '', $3, json => true))", tenant, key, body))
		if err != nil || claim.Arm != "execute" {
			a = answerFrom(claim)
			return err
		}
		var now int64
		err = tx.QueryRow(ctx, "INSERT INTO stock VALUES ($1, $2) ON CONFLICT (item)"+
			" DO UPDATE SET count = stock.count + excluded.count RETURNING count", request.Item, request.Count).Scan(&now)
		if err == nil {
			a, err = finish(ctx, tx, claim, 200, map[string]any{"item": request.Item, "count": now}, "succeeded")
		}
		return err
	})
	return a, err
}

// ---------------------------------------------------------------- answers

// finish stores the answer with the work. What it gives back is sent only after the transaction's commit.
func finish(ctx context.Context, tx pgx.Tx, claim record, status int, document any, state string) (answer, error) {
	body, _ := json.Marshal(document)
	body = append(body, '\n')
	_, err := tx.Exec(ctx, "SELECT once.finish($1, $2, $3, $4, $5, state => $6)", claim.Record, claim.Fence, status, body,
		"Content-Type: application/json\r\n", state)
	return answer{status, body, map[string]string{"Content-Type": "application/json"}}, err
}

// answerFrom is what to say when we are not the one who executes.
func answerFrom(r record) answer {
	state := ""
	if r.State != nil {
		state = *r.State
	}
	switch {
	case r.Arm == "mismatch":
		return problem(422, "This key was used for another request")
	case state == "unknown":
		return problem(502, "It is not known how this ended; somebody will look", "Idempotency-Outcome", "unknown")
	case (state == "succeeded" || state == "failed") && !*r.Retryable:
		headers := map[string]string{"Idempotency-Replayed": "true"}
		for _, line := range strings.Split(string(r.Headers), "\r\n") {
			if name, value, found := strings.Cut(line, ": "); found {
				headers[name] = value
			}
		}
		return answer{*r.Status, r.Body, headers}
	}
	seconds := int64(1)
	if r.RetryAfterMs != nil && *r.RetryAfterMs > 1000 {
		seconds = (*r.RetryAfterMs + 999) / 1000
	}
	return problem(409, "This request is being worked on", "Retry-After", strconv.FormatInt(seconds, 10))
}

func problem(status int, title string, more ...string) answer {
	body, _ := json.Marshal(map[string]any{"title": title, "status": status})
	headers := map[string]string{"Content-Type": "application/problem+json"}
	for i := 0; i < len(more); i += 2 {
		headers[more[i]] = more[i+1]
	}
	return answer{status, append(body, '\n'), headers}
}

// ---------------------------------------------------------------- HTTP

var itemForm = regexp.MustCompile(`^[A-Za-z0-9 ._-]{1,100}$`)

func isGood(item string, number int64) bool {
	return itemForm.MatchString(item) && number >= 1 && number <= 1e9
}

var keyForm = regexp.MustCompile(`^(?:"([!#-\[\]-~]{1,255})"|([!#-\[\]-~]{1,255}))$`)

// readKey takes it quoted, as the draft has it, or bare, as many clients send it. "" is none.
func readKey(fields []string) string {
	if len(fields) != 1 {
		return ""
	}
	found := keyForm.FindStringSubmatch(fields[0])
	if found == nil {
		return ""
	}
	return found[1] + found[2]
}

func serve(handler func(context.Context, string, []byte) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
		key := readKey(r.Header.Values("Idempotency-Key"))
		var a answer
		switch {
		case err != nil:
			a = problem(413, fmt.Sprintf("A body of up to %d bytes", bodyMax))
		case r.Method != "POST":
			a = problem(405, "POST is all there is")
		case key == "":
			a = problem(400, "This needs one Idempotency-Key, of 1 to 255 visible characters")
		default:
			// Not the request's context: what was begun is finished also when the client hangs up.
			a, err = handler(context.Background(), key, body)
			if errors.Is(err, errRefused) {
				a = problem(400, "It takes a JSON object: an item and an amount for an order, an item and a count for stock")
			} else if err != nil {
				// Also where the answer to a COMMIT was lost: whether it took effect is what the next request finds out.
				log.Printf("orders: %s: %v", key, err)
				a = problem(503, "Ask again under the same key", "Retry-After", "1")
			}
		}
		for name, value := range a.headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(a.status)
		w.Write(a.body)
	}
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func callSeconds() time.Duration {
	seconds, err := time.ParseDuration(setting("ORDERS_CALL_SECONDS", "10") + "s")
	if err != nil {
		log.Fatal(err)
	}
	return seconds
}

func main() {
	var err error
	pool, err = pgxpool.New(context.Background(), setting("DATABASE_URL", "postgresql://127.0.0.1/shop?user=shop"))
	if err != nil {
		log.Fatal("orders: ", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+setting("PORT", "9000"))
	if err != nil {
		log.Fatal("orders: ", err)
	}
	http.HandleFunc("/orders", serve(postOrder))
	http.HandleFunc("/stock", serve(postStock))
	fmt.Printf("orders: listening on http://%s\n", listener.Addr())
	log.Fatal((&http.Server{ReadHeaderTimeout: 60 * time.Second}).Serve(listener))
}

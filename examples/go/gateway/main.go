// The same shop behind Once's gateway: no keys, no claims, no replays here; only how far a request has come.
//
//	once serve --upstream http://127.0.0.1:9000 --required --takeover rerun --complete
//
// The gateway lets each request through once at a time, and tells the service in header fields which one it is
// (docs/nginx.md):
//
//	Once-Record, Once-Fence    who we are when we speak to the daemon's JSON API (docs/api.md)
//	Once-Key                   the same on every attempt of a request, and on no other
//	Once-Recovery-Point        how far an earlier attempt came; not there: nowhere
//	Once-Checkpoint            what it kept there, as :base64:
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
package main

import (
	"bytes"
	"context"
	"encoding/base64"
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
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const bodyMax = 65536

var (
	provider = setting("PROVIDER_URL", "http://127.0.0.1:9100")
	api      = setting("ONCE_API", "http://127.0.0.1:7411")
	client   = &http.Client{Timeout: callSeconds()}
	pool     *pgxpool.Pool
	itemForm = regexp.MustCompile(`^[A-Za-z0-9 ._-]{1,100}$`)
)

// attempt is a request as the gateway let it through.
type attempt struct {
	record     string
	fence      uint64
	key        string
	point      string // "": none
	checkpoint string
}

// readAttempt: false if it did not come through the gateway, or without a key. Nobody else can make these fields: the gateway
// drops a client's own, and we listen where only the gateway connects.
func readAttempt(h http.Header) (attempt, bool) {
	fence, err := strconv.ParseUint(h.Get("Once-Fence"), 10, 64)
	checkpoint, err2 := base64.StdEncoding.DecodeString(strings.Trim(h.Get("Once-Checkpoint"), ":"))
	a := attempt{h.Get("Once-Record"), fence, h.Get("Once-Key"), h.Get("Once-Recovery-Point"), string(checkpoint)}
	return a, err == nil && err2 == nil && a.record != "" && a.key != ""
}

// ---------------------------------------------------------------- the JSON API

func askOnce(ctx context.Context, verb string, members map[string]any) (answer struct {
	Arm      string
	ChildKey string `json:"child_key"`
}, err error) {
	body, _ := json.Marshal(members)
	request, err := http.NewRequestWithContext(ctx, "POST", api+"/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return answer, fmt.Errorf("once, %s: %s", verb, text)
	}
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// advance: from here on the next attempt begins after this. Repeating the same point is fine.
func (a attempt) advance(ctx context.Context, point, checkpoint string) error {
	answer, err := askOnce(ctx, "advance", map[string]any{"record": a.record, "fence": a.fence, "point": point, "checkpoint": checkpoint})
	if err == nil && answer.Arm != "done" {
		return errors.New("fenced: somebody else has this request by now")
	}
	return err
}

// ---------------------------------------------------------------- POST /orders

type answer struct {
	status   int
	document map[string]any
}

func postOrder(ctx context.Context, a attempt, item string, amount int64) (answer, error) {
	var err error
	order, charge, _ := strings.Cut(a.checkpoint, " ")
	if a.point == "" {
		if order, err = book(ctx, a.key, item, amount); err != nil {
			return answer{}, err
		}
		if err = a.advance(ctx, "ordered", order); err != nil {
			return answer{}, err
		}
	}
	if a.point != "charged" {
		child, err := askOnce(ctx, "child-key", map[string]any{"record": a.record, "call": "charge"})
		if err != nil {
			return answer{}, err
		}
		if charge, err = callProvider(ctx, order, amount, child.ChildKey); err != nil {
			return answer{}, err
		}
		if err = a.advance(ctx, "charged", order+" "+charge); err != nil {
			return answer{}, err
		}
	}
	word, id, _ := strings.Cut(charge, " ")
	number, err := strconv.ParseInt(order, 10, 64)
	if err == nil {
		_, err = pool.Exec(ctx, "UPDATE orders SET status = $1, charge = nullif($2, '') WHERE id = $3", word, id, number)
	}
	if word == "paid" {
		return answer{201, map[string]any{"order": number, "status": "paid", "charge": id}}, err
	}
	return answer{402, map[string]any{"order": number, "status": "declined"}}, err
}

// book makes one row per Once-Key, whoever comes, and gives its id also if it was there.
func book(ctx context.Context, key, item string, amount int64) (order string, err error) {
	err = pool.QueryRow(ctx, "INSERT INTO orders (item, amount, status, once_key) VALUES ($1, $2, 'new', $3)"+
		" ON CONFLICT (once_key) DO UPDATE SET once_key = excluded.once_key RETURNING id::text", item, amount, key).Scan(&order)
	return order, err
}

// callProvider answers "paid ch_17" or "declined". Whether it charged or not when this fails: it is asked again with the same key.
func callProvider(ctx context.Context, order string, amount int64, key string) (string, error) {
	form := fmt.Sprintf("order=%s&cents=%d", order, amount)
	request, err := http.NewRequestWithContext(ctx, "POST", provider+"/charges", strings.NewReader(form))
	if err != nil {
		return "", err
	}
	request.Header.Set("Idempotency-Key", `"`+key+`"`)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1000))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode == 402:
		return "declined", nil
	case response.StatusCode != 200:
		return "", fmt.Errorf("provider: %s", text)
	}
	return string(text), nil
}

// ---------------------------------------------------------------- HTTP

func respond(w http.ResponseWriter, r *http.Request) answer {
	var order struct {
		Item   string
		Amount int64
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	a, ours := readAttempt(r.Header)
	switch {
	case err != nil:
		return answer{413, map[string]any{"title": fmt.Sprintf("A body of up to %d bytes", bodyMax)}}
	case r.Method != "POST":
		return answer{405, map[string]any{"title": "POST is all there is"}}
	case !ours:
		return answer{400, map[string]any{"title": "This needs an Idempotency-Key, and comes through the gateway"}}
	case json.Unmarshal(body, &order) != nil || !itemForm.MatchString(order.Item) || order.Amount < 1 || order.Amount > 1e9:
		return answer{400, map[string]any{"title": "This is no order"}} // which the gateway stores, as any answer that is final
	}
	done, err := postOrder(context.Background(), a, order.Item, order.Amount)
	if err != nil {
		// The gateway notes that it failed and may be tried again, which begins at the last recovery point.
		log.Printf("orders: %s: %v", a.record, err)
		return answer{503, map[string]any{"title": "Ask again under the same key"}}
	}
	return done
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
	http.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		a := respond(w, r)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		json.NewEncoder(w).Encode(a.document)
	})
	fmt.Printf("orders: listening on http://%s\n", listener.Addr())
	log.Fatal((&http.Server{ReadHeaderTimeout: 60 * time.Second}).Serve(listener))
}
